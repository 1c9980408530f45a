// What must not reach a log line, and how the rest is made harmless: secrets are replaced by name,
// URLs lose their credentials, and every character that could end a line, move a terminal's cursor
// or reorder text is written as an escape. Pure.

export const redacted = "[redacted]";

const secretWords =
  /(?:password|passwd|passphrase|secret|token|credential|authorization)|(?:^|_)(?:pass|pwd|auth|creds)$|keys?(?:$|_)/;

/** Whether values under this field name are secrets: `password`, `busToken`, `cancel_key`, `apikeys`. */
export function isSecretName(name: string): boolean {
  const words = name.replace(/([a-z0-9])([A-Z])/g, "$1_$2").replace(/[^A-Za-z0-9]+/g, "_");
  return secretWords.test(words.toLowerCase());
}

const urlCredentials = /:\/\/[^\s/@"']{1,512}@/g;

/** `nats://user:pass@host` without its user information. */
export function withoutUrlCredentials(text: string): string {
  return text.includes("://") ? text.replace(urlCredentials, `://${redacted}@`) : text;
}

// C0 and C1 controls, line and paragraph separators, bidirectional overrides, byte order mark,
// lone surrogates.
const unsafe =
  // deno-lint-ignore no-control-regex
  /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

const shortEscapes: Record<string, string> = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

function escapeCharacter(character: string): string {
  const short = shortEscapes[character];
  if (short !== undefined) return short;
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
}

/** The text on one line, with nothing in it that a terminal or a log reader acts on. */
export function escapeControls(text: string): string {
  return text.replace(unsafe, escapeCharacter);
}
