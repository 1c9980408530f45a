// SCRAM-SHA-256 and SCRAM-SHA-256-PLUS (RFC 5802, 7677) as PostgreSQL speaks them, both sides.
// The exchanges are synchronous and never throw on what the peer sent. The one slow step, PBKDF2, is
// saltedPassword(), outside of them, so that the caller chooses where it runs.
// An exchange takes each message once, in order; after a failure it accepts nothing more.

import { randomBytes, timingSafeEqual } from "node:crypto";
import { type WireProblem, wireProblem } from "./errors.ts";
import { concatBytes } from "./messages.ts";
import {
  hmac,
  isIterationCount,
  keyBytes,
  maxSaltBytes,
  maxScramIterations,
  type MockScramSecret,
  type ScramKeys,
  scramKeys,
  type ScramSecret,
  sha256,
} from "./scram_keys.ts";
import { decodeBase64, encodeBase64, latin1Bytes, latin1Text } from "./text.ts";

export const scramSha256 = "SCRAM-SHA-256";
export const scramSha256Plus = "SCRAM-SHA-256-PLUS";

const nonceBytes = 18;

function xor(a: Uint8Array, b: Uint8Array): Uint8Array {
  return a.map((byte, i) => byte ^ b[i]!);
}

function randomNonce(): string {
  return encodeBase64(randomBytes(nonceBytes));
}

// RFC 5802 "printable": visible ASCII but the comma.
function isNonce(text: string): boolean {
  return /^[\x21-\x2b\x2d-\x7e]+$/.test(text);
}

/** Splits "x=value,y=value" behind the fixed leading attributes; null unless all are well-formed. */
function attributes(text: string): [name: string, value: string][] | null {
  const list: [string, string][] = [];
  for (const item of text.split(",")) {
    if (!/^[A-Za-z]=/.test(item)) return null;
    list.push([item[0]!, item.slice(2)]);
  }
  return list;
}

// SCRAM messages are handled as one character per byte, so that what is hashed is what was received.
function messageText(message: Uint8Array): string | null {
  return message.length > 0 && !message.includes(0) ? latin1Text(message) : null;
}

export type ScramServerOptions = {
  /** What the client chose; default SCRAM-SHA-256. */
  mechanism?: string;
  /**
   * The tls-server-end-point data (hash of our certificate) if SCRAM-SHA-256-PLUS was offered to this
   * client, else null, the default. With it, a client that says it was not offered is refused.
   */
  channelBinding?: Uint8Array | null;
  /** More secrets of the user, any of which will do; of the same salt and iterations. */
  others?: readonly ScramSecret[];
  /** Our part of the nonce, for tests; random if absent. */
  nonce?: string;
};

export type ScramServerReply = { ok: true; reply: Uint8Array } | ScramFailure;
export type ScramServerResult =
  /** clientKey, with the serverKey of the secret that was proved, can log in to a server that has the same. */
  | { ok: true; reply: Uint8Array; clientKey: Uint8Array; secret: ScramSecret }
  | ScramFailure;
/** SQLSTATE and text for the client: 28P01 = wrong password, others = protocol violations. */
export type ScramFailure = { ok: false; sqlstate: string; message: string };

function failure(sqlstate: string, message: string): ScramFailure {
  return { ok: false, sqlstate, message };
}

const malformed = (what: string) => failure("08P01", `malformed SCRAM message (${what})`);

/** The server's side: first(client-first) -> reply, then final(client-final) -> reply or failure. */
export class ScramServerExchange {
  readonly #secret: ScramSecret;
  readonly #others: readonly ScramSecret[];
  readonly #doomed: boolean;
  readonly #plus: boolean;
  readonly #binding: Uint8Array | null;
  readonly #ownNonce: string;
  #state: "first" | "final" | "done" = "first";
  #gs2Header = "";
  #nonce = "";
  #clientFirstBare = "";
  #serverFirst = "";

  constructor(secret: ScramSecret | MockScramSecret, options: ScramServerOptions = {}) {
    this.#secret = secret;
    this.#others = options.others ?? [];
    this.#doomed = "mock" in secret;
    this.#plus = options.mechanism === scramSha256Plus;
    this.#binding = options.channelBinding ?? null;
    this.#ownNonce = options.nonce ?? randomNonce();
  }

  /** Takes client-first-message; on success `reply` is for AuthenticationSASLContinue. */
  first(message: Uint8Array): ScramServerReply {
    if (this.#state !== "first") return malformed("unexpected message");
    this.#state = "done";
    if (this.#plus && this.#binding === null) {
      return failure("08P01", "client selected an invalid SASL authentication mechanism");
    }
    const text = messageText(message);
    if (text === null) return malformed("empty, or with a NUL byte");
    const header = /^([a-z](?:=[^,]*)?),([^,]*),/.exec(text);
    if (!header) return malformed("no GS2 header");
    const flagFailure = this.#flagFailure(header[1]!);
    if (flagFailure) return flagFailure;
    if (header[2] !== "") {
      const what = "client uses authorization identity, but it is not supported";
      return header[2]!.startsWith("a=") ? failure("0A000", what) : malformed("bad GS2 header");
    }
    this.#gs2Header = header[0];
    this.#clientFirstBare = text.slice(header[0].length);
    if (this.#clientFirstBare.startsWith("m=")) {
      return failure("0A000", "client requires an unsupported SCRAM extension");
    }
    // The user name (n=) is ignored, as in PostgreSQL: the startup packet names the user.
    const [user, nonce] = attributes(this.#clientFirstBare) ?? [];
    if (user?.[0] !== "n" || nonce?.[0] !== "r") return malformed("attributes n, r expected");
    if (!isNonce(nonce[1])) return malformed("nonce with a character that is not allowed");
    this.#nonce = nonce[1] + this.#ownNonce;
    const { salt, iterations } = this.#secret;
    this.#serverFirst = `r=${this.#nonce},s=${encodeBase64(salt)},i=${iterations}`;
    this.#state = "final";
    return { ok: true, reply: latin1Bytes(this.#serverFirst) };
  }

  #flagFailure(flag: string): ScramFailure | null {
    if (flag === "n") {
      return this.#plus ? malformed("SCRAM-SHA-256-PLUS without channel binding data") : null;
    }
    if (flag === "y") {
      if (this.#plus) return malformed("SCRAM-SHA-256-PLUS without channel binding data");
      // The client would have bound the channel, had it seen the offer: somebody took the offer out.
      return this.#binding ? failure("28000", "SCRAM channel binding negotiation error") : null;
    }
    if (!flag.startsWith("p=")) return malformed("unexpected channel-binding flag");
    if (!this.#plus) return malformed("SCRAM-SHA-256 with channel binding data");
    return flag === "p=tls-server-end-point"
      ? null
      : failure("08P01", "unsupported SCRAM channel-binding type");
  }

  /** Takes client-final-message; on success `reply` is for AuthenticationSASLFinal. */
  final(message: Uint8Array): ScramServerResult {
    if (this.#state !== "final") return malformed("unexpected message");
    this.#state = "done";
    const text = messageText(message);
    if (text === null) return malformed("empty, or with a NUL byte");
    const proofAt = text.lastIndexOf(",p=");
    const withoutProof = text.slice(0, Math.max(0, proofAt));
    const [binding, nonce] = attributes(withoutProof) ?? [];
    if (binding?.[0] !== "c" || nonce?.[0] !== "r") return malformed("attributes c, r, p expected");
    const proof = decodeBase64(text.slice(proofAt + 3));
    if (proof?.length !== keyBytes) return malformed("malformed proof in client-final-message");
    const bindingFailure = this.#bindingFailure(binding[1]);
    if (bindingFailure) return bindingFailure;
    if (nonce[1] !== this.#nonce) return failure("08P01", "invalid SCRAM response");

    const authMessage = latin1Bytes(
      `${this.#clientFirstBare},${this.#serverFirst},${withoutProof}`,
    );
    // All of it is computed for a mock secret too: time must not tell who exists.
    let proven: { secret: ScramSecret; clientKey: Uint8Array } | null = null;
    for (const secret of [this.#secret, ...this.#others]) {
      const clientKey = xor(proof, hmac(secret.storedKey, authMessage));
      if (timingSafeEqual(sha256(clientKey), secret.storedKey)) proven = { secret, clientKey };
    }
    const { serverKey } = proven?.secret ?? this.#secret;
    const signature = hmac(serverKey, authMessage);
    if (proven === null || this.#doomed) return failure("28P01", "SASL authentication failed");
    return { ok: true, reply: latin1Bytes(`v=${encodeBase64(signature)}`), ...proven };
  }

  #bindingFailure(value: string): ScramFailure | null {
    const header = latin1Bytes(this.#gs2Header);
    const wanted = this.#plus ? concatBytes(header, this.#binding!) : header;
    if (value === encodeBase64(wanted)) return null;
    return this.#plus
      ? failure("28000", "SCRAM channel binding check failed")
      : malformed("unexpected channel-binding attribute in client-final-message");
  }
}

export type ScramClientOptions = {
  /**
   * Bytes: bind the channel with this tls-server-end-point data (mechanism SCRAM-SHA-256-PLUS).
   * "not offered": we could, but the server did not offer it. "none", the default: no TLS, or unable.
   */
  channelBinding?: Uint8Array | "not offered" | "none";
  /** For tests; random if absent. */
  nonce?: string;
};

// Named after the call that is due: continue = first() was called, proof = the challenge is known,
// final = the proof was given, done = verified or failed.
type ClientState = "first" | "continue" | "proof" | "final" | "done";

export type ScramChallenge = { kind: "challenge"; salt: Uint8Array; iterations: number };

/**
 * The client's side: first() -> continue(server-first) -> proof(...) -> verifyFinal(server-final).
 * Only when verifyFinal() says true has the server shown that it knows the password.
 */
export class ScramClientExchange {
  readonly mechanism: string;
  readonly #gs2Header: string;
  readonly #binding: Uint8Array;
  readonly #nonce: string;
  readonly #firstBare: string;
  #state: ClientState = "first";
  #serverFirst = "";
  #serverNonce = "";
  #signature: Uint8Array | null = null;

  constructor(options: ScramClientOptions = {}) {
    const binding = options.channelBinding ?? "none";
    const bound = binding instanceof Uint8Array;
    this.mechanism = bound ? scramSha256Plus : scramSha256;
    this.#gs2Header = bound
      ? "p=tls-server-end-point,,"
      : binding === "not offered"
      ? "y,,"
      : "n,,";
    this.#binding = bound ? binding : new Uint8Array(0);
    this.#nonce = options.nonce ?? randomNonce();
    // PostgreSQL ignores the name here; libpq sends it empty.
    this.#firstBare = `n=,r=${this.#nonce}`;
  }

  /** client-first-message, the data of SASLInitialResponse. */
  first(): Uint8Array {
    this.#advance("first", "continue");
    return latin1Bytes(this.#gs2Header + this.#firstBare);
  }

  /** Takes server-first-message: what to derive the salted password with, or a problem. */
  continue(message: Uint8Array): ScramChallenge | WireProblem {
    if (this.#state !== "continue") return badServer("unexpected message");
    this.#state = "done";
    const text = messageText(message);
    const [nonce, salt, count] = (text === null ? null : attributes(text)) ?? [];
    if (text === null || nonce?.[0] !== "r" || salt?.[0] !== "s" || count?.[0] !== "i") {
      return badServer("attributes r, s, i expected");
    }
    const isLonger = nonce[1].startsWith(this.#nonce) && nonce[1].length > this.#nonce.length;
    if (!isLonger || !isNonce(nonce[1])) return badServer("invalid nonce");
    const saltValue = decodeBase64(salt[1]);
    if (!saltValue || saltValue.length === 0 || saltValue.length > maxSaltBytes) {
      return badServer("invalid salt");
    }
    const iterations = /^[0-9]{1,8}$/.test(count[1]) ? Number(count[1]) : 0;
    if (!isIterationCount(iterations)) {
      return badServer(`invalid iteration count, wanted 1 to ${maxScramIterations}`);
    }
    this.#serverFirst = text;
    this.#serverNonce = nonce[1];
    this.#state = "proof";
    return { kind: "challenge", salt: saltValue, iterations };
  }

  /** client-final-message, from the salted password. Follows a challenge. */
  proof(saltedPassword: Uint8Array): Uint8Array {
    return this.proofFromKeys(scramKeys(saltedPassword));
  }

  /** client-final-message, from keys that a client's own login gave (same salt and iterations). */
  proofFromKeys({ clientKey, serverKey }: ScramKeys): Uint8Array {
    this.#advance("proof", "final");
    const binding = encodeBase64(concatBytes(latin1Bytes(this.#gs2Header), this.#binding));
    const withoutProof = `c=${binding},r=${this.#serverNonce}`;
    const authMessage = latin1Bytes(`${this.#firstBare},${this.#serverFirst},${withoutProof}`);
    this.#signature = hmac(serverKey, authMessage);
    const proof = xor(clientKey, hmac(sha256(clientKey), authMessage));
    return latin1Bytes(`${withoutProof},p=${encodeBase64(proof)}`);
  }

  /** Takes server-final-message: true only if it carries the right server signature. */
  verifyFinal(message: Uint8Array): boolean {
    if (this.#state !== "final") return false;
    this.#state = "done";
    const text = messageText(message);
    const [verifier] = (text === null ? null : attributes(text)) ?? [];
    const given = verifier?.[0] === "v" ? decodeBase64(verifier[1]) : null;
    return given?.length === keyBytes && timingSafeEqual(given, this.#signature!);
  }

  // Calling out of order is a bug of the caller; what the peer sends out of order is a problem.
  #advance(from: ClientState, to: ClientState): void {
    if (this.#state !== from) {
      throw new Error(`advance SCRAM exchange: state "${this.#state}", wanted "${from}"`);
    }
    this.#state = to;
  }
}

function badServer(what: string): WireProblem {
  return wireProblem("08P01", `malformed SCRAM message from server (${what})`);
}
