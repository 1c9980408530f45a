// What the settings client_tls_* and server_tls_* ask for: words and shortcuts, as PgBouncer has them, become what
// shared/sys makes TLS contexts of. Also what is wrong with them, as far as one can tell without reading the files.
// Pure.

import type { Settings } from "./settings.ts";

export type TlsVersionName = "tlsv1.0" | "tlsv1.1" | "tlsv1.2" | "tlsv1.3";

/** The form of shared/sys. */
export interface TlsPlan {
  readonly role: "server" | "client";
  readonly name: string;
  readonly certFile: string;
  readonly keyFile: string;
  readonly caFile: string;
  readonly peer: "unverified" | "offered" | "verified";
  readonly checksHost: boolean;
  readonly versions: readonly TlsVersionName[];
  readonly ciphers: string;
  readonly tls13Ciphers: string;
  readonly groups: string;
  readonly dh: "none" | "auto" | "legacy";
}

const all: readonly TlsVersionName[] = ["tlsv1.0", "tlsv1.1", "tlsv1.2", "tlsv1.3"];
const secure: readonly TlsVersionName[] = ["tlsv1.2", "tlsv1.3"];

const versionWords: ReadonlyMap<string, readonly TlsVersionName[]> = new Map([
  ["all", all],
  ["legacy", all],
  ["secure", secure],
  ["default", secure],
  ["tlsv1", all],
  ...all.map((name): [string, readonly TlsVersionName[]] => [name, [name]]),
]);

/** "" is OpenSSL's own list, which the system's administrator decides. */
const cipherWords: ReadonlyMap<string, string> = new Map([
  ["default", ""],
  ["secure", ""],
  ["fast", ""],
  ["normal", ""],
  ["compat", "HIGH:+3DES:!aNULL"],
  ["legacy", "HIGH:MEDIUM:+3DES:!aNULL"],
  ["insecure", "ALL:!aNULL:!eNULL"],
  ["all", "ALL:!aNULL:!eNULL"],
]);

/** The versions that a list names, `!` before one takes it out; null if a word is unknown, or none is left. */
export function tlsVersions(list: readonly string[]): TlsVersionName[] | null {
  const words = list.flatMap((item) => item.split(":")).map((word) => word.trim().toLowerCase())
    .filter((word) => word !== "");
  if (words.length === 0) return [...secure];
  const chosen = new Set<TlsVersionName>(words[0]!.startsWith("!") ? all : []);
  for (const word of words) {
    const isOut = word.startsWith("!");
    const versions = versionWords.get(isOut ? word.slice(1).trim() : word);
    if (versions === undefined) return null;
    for (const version of versions) {
      if (isOut) chosen.delete(version);
      else chosen.add(version);
    }
  }
  return chosen.size === 0 ? null : all.filter((version) => chosen.has(version));
}

function ciphersOf(text: string): string {
  return cipherWords.get(text.toLowerCase()) ?? text;
}

/** TLS towards clients; null where they get none. */
export function clientTlsPlan(settings: Settings): TlsPlan | null {
  const mode = settings.clientTlsSslmode;
  if (mode === "disable") return null;
  const curve = settings.clientTlsEcdhcurve.toLowerCase();
  const ciphers = ciphersOf(settings.clientTlsCiphers);
  return {
    role: "server",
    name: "client_tls",
    certFile: settings.clientTlsCertFile,
    keyFile: settings.clientTlsKeyFile,
    caFile: settings.clientTlsCaFile,
    // Without authorities there is nothing to check a certificate with, so none is asked for.
    peer: mode.startsWith("verify-")
      ? "verified"
      : settings.clientTlsCaFile === ""
      ? "unverified"
      : "offered",
    checksHost: false,
    versions: tlsVersions(settings.clientTlsProtocols) ?? secure,
    ciphers: curve === "none" ? `${ciphers || "DEFAULT"}:!kECDHE` : ciphers,
    tls13Ciphers: settings.clientTls13Ciphers,
    groups: curve === "auto" || curve === "none" ? "" : settings.clientTlsEcdhcurve,
    dh: settings.clientTlsDheparams,
  };
}

/** TLS towards servers; null where it is never used. */
export function serverTlsPlan(settings: Settings): TlsPlan | null {
  const mode = settings.serverTlsSslmode;
  if (mode === "disable") return null;
  return {
    role: "client",
    name: "server_tls",
    certFile: settings.serverTlsCertFile,
    keyFile: settings.serverTlsKeyFile,
    caFile: settings.serverTlsCaFile,
    peer: mode.startsWith("verify-") ? "verified" : "unverified",
    checksHost: mode === "verify-full",
    versions: tlsVersions(settings.serverTlsProtocols) ?? secure,
    ciphers: ciphersOf(settings.serverTlsCiphers),
    tls13Ciphers: settings.serverTls13Ciphers,
    groups: "",
    dh: "auto",
  };
}

/** Whether who is not encrypted is refused: a client, or by a server. */
export function requiresTls(mode: Settings["clientTlsSslmode"]): boolean {
  return mode === "require" || mode.startsWith("verify-");
}

/** What is wrong with the settings, each with the name of one to change. */
export function tlsProblems(settings: Settings): [setting: string, problem: string][] {
  const found: [string, string][] = [];
  for (
    const [name, list] of [
      ["client_tls_protocols", settings.clientTlsProtocols],
      ["server_tls_protocols", settings.serverTlsProtocols],
    ] as const
  ) {
    if (tlsVersions(list) !== null) continue;
    const wanted = "wanted versions from tlsv1.0 to tlsv1.3, or all, secure, legacy";
    found.push([name, `${name} names no TLS versions: ${wanted}`]);
  }
  const mode = settings.clientTlsSslmode;
  const hasOwn = settings.clientTlsKeyFile !== "" && settings.clientTlsCertFile !== "";
  if (mode !== "disable" && !hasOwn) {
    const missing = "client_tls_key_file and client_tls_cert_file must be set";
    const message = `To allow TLS connections from clients, ${missing}`;
    found.push(["client_tls_sslmode", message]);
  }
  if (mode.startsWith("verify-") && settings.clientTlsCaFile === "") {
    found.push(["client_tls_sslmode", `client_tls_sslmode = ${mode} requires client_tls_ca_file`]);
  }
  if (settings.authType === "cert" && !mode.startsWith("verify-")) {
    const needed = "requires client_tls_sslmode = verify-full (or verify-ca)";
    found.push(["auth_type", `auth_type = cert ${needed}`]);
  }
  if ((settings.serverTlsCertFile === "") !== (settings.serverTlsKeyFile === "")) {
    const [set, empty] = settings.serverTlsKeyFile === ""
      ? ["server_tls_cert_file", "server_tls_key_file"]
      : ["server_tls_key_file", "server_tls_cert_file"];
    found.push([set!, `${set} is set and ${empty} is empty: both are needed`]);
  }
  return found;
}
