// From the settings of a bus to the options of the NATS client. Pure, apart from its random jitter and
// the files that settings name.
// Invariant: the URLs that come out have no credentials in them, so they may be logged.

import { Buffer } from "node:buffer";
import { readFileSync } from "node:fs";
import { type ConnectionOptions, credsAuthenticator } from "nats";
import { BusError } from "./errors.ts";
import { meshSubjects } from "./subjects.ts";

/** PEM text or paths of PEM files; `{}` asks for TLS with the system's authorities. */
export interface BusTls {
  readonly ca?: string | undefined;
  readonly caFile?: string | undefined;
  readonly cert?: string | undefined;
  readonly certFile?: string | undefined;
  readonly key?: string | undefined;
  readonly keyFile?: string | undefined;
  /** TLS before the server's greeting; the server must be configured for it. */
  readonly handshakeFirst?: boolean | undefined;
}

/** How to reach and log in to the brokers. */
export interface BusAddress {
  /** `nats://host:4222`, `tls://host`, with or without `user:password@` or `token@`. */
  readonly servers: readonly string[];
  readonly token?: string | undefined;
  readonly user?: string | undefined;
  readonly password?: string | undefined;
  /** The text of a `.creds` file. */
  readonly creds?: string | undefined;
  readonly tls?: BusTls | undefined;
  /** Names this client to the broker and in its inbox: letters, digits, `_`, `-`, at most 32. */
  readonly name: string;
  readonly mesh: string;
}

/** The settings of a mesh's bus, as in a configuration; "" is not set. */
export interface BusSettings {
  readonly mesh: string;
  readonly busUrl: readonly string[];
  readonly busCredentials: string;
  readonly busTlsCaFile: string;
  readonly busTlsCertFile: string;
  readonly busTlsKeyFile: string;
}

function readNamed(setting: string, path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    throw new BusError("INVALID", `read ${setting}: "${path}" ${code ?? "cannot be read"}`, {
      cause,
    });
  }
}

function readCredentials(path: string): string {
  const creds = readNamed("bus_credentials", path);
  try {
    credsAuthenticator(Buffer.from(creds))("nonce");
    return creds;
  } catch {
    // Its own error is not passed on: what it could not read may be in it.
    throw new BusError(
      "INVALID",
      `read bus_credentials: "${path}" is no credentials file, wanted one made by nsc`,
    );
  }
}

/**
 * How to reach the bus that the settings name, but for the client's own name. Throws `INVALID` for a file
 * that is missing or is not what it should be. TLS files are read again at each dial.
 */
export function busOptions(settings: BusSettings): Omit<BusAddress, "name"> {
  const { mesh, busUrl, busCredentials } = settings;
  const files = [
    ["bus_tls_ca_file", "caFile", settings.busTlsCaFile],
    ["bus_tls_cert_file", "certFile", settings.busTlsCertFile],
    ["bus_tls_key_file", "keyFile", settings.busTlsKeyFile],
  ] as const;
  const given = files.filter(([, , path]) => path !== "");
  for (const [setting, , path] of given) {
    if (!readNamed(setting, path).includes("-----BEGIN ")) {
      throw new BusError("INVALID", `read ${setting}: "${path}" is no PEM file`);
    }
  }
  const names = given.map(([, option]) => option);
  if (names.includes("certFile") !== names.includes("keyFile")) {
    throw new BusError(
      "INVALID",
      "read bus_tls_cert_file and bus_tls_key_file: one of them is empty, wanted both or none",
    );
  }
  return {
    servers: busUrl,
    mesh,
    ...busCredentials === "" ? {} : { creds: readCredentials(busCredentials) },
    ...given.length === 0
      ? {}
      : { tls: Object.fromEntries(given.map(([, option, path]) => [option, path])) },
  };
}

const pingIntervalMs = 2000;
/** Unanswered pings before the connection is given up: noticed within 6 s. */
const maxPingsOut = 2;
/** For one dial: TCP, greeting, TLS and login. */
const dialTimeoutMs = 3000;

const firstDelayMs = 100;
const maxDelayMs = 2000;

/**
 * The pause between two dials: doubles from 0.1 s to 2 s, less a random half, so that the workers
 * of a broker that was restarted do not come in step.
 */
export class Backoff {
  readonly #random: () => number;
  #attempt = 0;
  #delayMs = 0;

  constructor(random: () => number = Math.random) {
    this.#random = random;
    this.reset();
  }

  /** The same until `advance()` or `reset()`: the client asks several times per dial. */
  get delayMs(): number {
    return this.#delayMs;
  }

  advance(): void {
    const full = Math.min(maxDelayMs, firstDelayMs * 2 ** Math.min(this.#attempt, 16));
    this.#delayMs = Math.round(full / 2 + this.#random() * full / 2);
    this.#attempt += 1;
  }

  reset(): void {
    this.#attempt = 0;
    this.advance();
  }
}

interface Login {
  readonly user?: string;
  readonly pass?: string;
  readonly token?: string;
}

interface Server {
  readonly address: string;
  readonly tls: boolean;
  readonly login: Login;
}

function parseServer(text: string): Server {
  const withScheme = text.includes("://") ? text : `nats://${text}`;
  let url: URL;
  try {
    url = new URL(withScheme);
  } catch {
    throw invalidServer("is not a URL");
  }
  if (url.protocol !== "nats:" && url.protocol !== "tls:") {
    throw invalidServer(`has the scheme "${url.protocol.slice(0, -1)}"`);
  }
  if (url.hostname === "") throw invalidServer("has no host");
  return {
    address: `${url.hostname}:${url.port || 4222}`,
    tls: url.protocol === "tls:",
    login: loginInUrl(url),
  };
}

function loginInUrl(url: URL): Login {
  try {
    const user = decodeURIComponent(url.username);
    const pass = decodeURIComponent(url.password);
    if (pass !== "") return { user, pass };
    return user === "" ? {} : { token: user };
  } catch {
    throw invalidServer("has user information that is not percent-encoded");
  }
}

/** The text itself may hold a password, and is not quoted. */
function invalidServer(what: string): BusError {
  return new BusError(
    "INVALID",
    `read bus server: ${what}, wanted nats://host:port or tls://host:port`,
  );
}

/** Credentials that are given by name win over those in a URL. */
function loginOf(address: BusAddress, servers: readonly Server[]): Login {
  if (address.token !== undefined) return { token: address.token };
  if (address.user !== undefined) return { user: address.user, pass: address.password ?? "" };
  return servers.find((server) => Object.keys(server.login).length > 0)?.login ?? {};
}

export function natsOptions(
  address: BusAddress,
  backoff: Backoff,
): ConnectionOptions & { servers: string[] } {
  if (address.servers.length === 0) {
    throw new BusError("INVALID", "connect bus: no server is given, wanted at least one");
  }
  const servers = address.servers.map(parseServer);
  const tls = address.tls ?? (servers.some((server) => server.tls) ? {} : undefined);
  return {
    servers: servers.map((server) => server.address),
    name: address.name,
    inboxPrefix: meshSubjects(address.mesh).inboxPrefix(address.name),
    ...(address.creds === undefined
      ? loginOf(address, servers)
      : { authenticator: credsAuthenticator(Buffer.from(address.creds)) }),
    ...(tls === undefined ? {} : { tls: defined(tls) }),
    pingInterval: pingIntervalMs,
    maxPingOut: maxPingsOut,
    timeout: dialTimeoutMs,
    reconnect: true,
    maxReconnectAttempts: -1,
    // A broker that was restarted with another token may get the old one back.
    ignoreAuthErrorAbort: true,
    noAsyncTraces: true,
    reconnectDelayHandler: () => backoff.delayMs,
    // Called once before each dial; null leaves the choice of the server to the client.
    reconnectToServer: () => {
      backoff.advance();
      return null;
    },
  };
}

function defined(tls: BusTls): { [name in keyof BusTls]: NonNullable<BusTls[name]> } {
  return Object.fromEntries(Object.entries(tls).filter(([, value]) => value !== undefined));
}
