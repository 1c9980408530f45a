// Startup packets and what the pooler thinks of them: names, and the parameters that follow the client.
// Applications send the same packet at every connection, so the last ones are remembered whole: a
// known packet costs a comparison of bytes. Nothing here depends on who is allowed in.

import type { Settings } from "../../../shared/config/mod.ts";
import {
  type InitialPacket,
  parseInitialPacket,
  parseOptions,
  type StartupPacket,
} from "../../../shared/wire/mod.ts";
import type { ParameterSet, ParameterTracker } from "./parameters.ts";
import { type Refusal, refusals } from "./refusals.ts";

/** Longer names are refused, never cut: two names must not become one. */
const userMaxBytes = 128;
const databaseMaxBytes = 63;
const rememberedMax = 32;
const utf8 = new TextEncoder();

export interface Startup {
  readonly kind: "startup";
  readonly packet: StartupPacket;
  /** What is wrong with the names; told at once. */
  readonly refusal: Refusal | null;
  readonly parameters: ParameterSet;
  /** What is wrong with the parameters; told only to who has proved to be somebody. */
  readonly parameterRefusal: Refusal | null;
}

type OtherPacket = Exclude<InitialPacket, StartupPacket>;

export class StartupReader {
  readonly #tracker: ParameterTracker;
  readonly #ignored: ReadonlySet<string>;
  readonly #remembered: { bytes: Uint8Array; startup: Startup }[] = [];
  #next = 0;

  constructor(tracker: ParameterTracker, settings: Settings) {
    this.#tracker = tracker;
    this.#ignored = new Set(settings.ignoreStartupParameters.map((name) => name.toLowerCase()));
  }

  /** Reads one complete initial packet, `length` bytes at `at`. */
  read(bytes: Uint8Array, at: number, length: number): Startup | OtherPacket {
    for (const known of this.#remembered) {
      if (sameBytes(known.bytes, bytes, at, length)) return known.startup;
    }
    const packet = parseInitialPacket(bytes, at, length);
    if (packet.kind !== "startup") return packet;
    const startup = this.#judge(packet);
    const entry = { bytes: bytes.slice(at, at + length), startup };
    this.#remembered[this.#next] = entry;
    this.#next = (this.#next + 1) % rememberedMax;
    return startup;
  }

  #judge(packet: StartupPacket): Startup {
    let refusal: Refusal | null = null;
    if (utf8.encode(packet.user).length > userMaxBytes) {
      refusal = { code: "08P01", message: "username too long" };
    } else if (utf8.encode(packet.database).length > databaseMaxBytes) {
      refusal = { code: "08P01", message: "database name too long" };
    }
    const values = this.#tracker.names.map((): string | null => null);
    const parameterRefusal = this.#takeParameters(packet, values);
    const parameters = this.#tracker.intern(values);
    return { kind: "startup", packet, refusal, parameters, parameterRefusal };
  }

  /** Tracked parameters go into `values`, listed ones are ignored, others refused. */
  #takeParameters(packet: StartupPacket, values: (string | null)[]): Refusal | null {
    for (const [name, value] of packet.parameters) {
      if (name === "user" || name === "database") continue;
      const refusal = name === "replication"
        ? replicationRefusal(value)
        : name === "options" && !this.#ignored.has("options")
        ? this.#takeOptions(value, values)
        : this.#take(name, value, "", values);
      if (refusal !== null) return refusal;
    }
    return null;
  }

  #takeOptions(text: string, values: (string | null)[]): Refusal | null {
    const options = parseOptions(text);
    if (options.kind === "problem") return { code: options.sqlstate, message: options.message };
    for (const [name, value] of options.parameters) {
      const refusal = this.#take(name, value, " in options", values);
      if (refusal !== null) return refusal;
    }
    return null;
  }

  #take(name: string, value: string, where: string, values: (string | null)[]): Refusal | null {
    const index = this.#tracker.indexOf(name);
    if (index >= 0) {
      values[index] = name.toLowerCase() === "application_name" ? asciiOnly(value) : value;
    } else if (!this.#ignored.has(name.toLowerCase())) {
      return {
        code: "22023",
        message: `unsupported startup parameter${where}: ${asciiOnly(name).slice(0, 64)}`,
        hint: "Add it to ignore_startup_parameters, or let the client not send it",
      };
    }
    return null;
  }
}

/** Every byte outside printable ASCII replaced by `?`, as PostgreSQL does to application_name. */
function asciiOnly(text: string): string {
  if (/^[\x20-\x7e]*$/.test(text)) return text;
  return Array.from(
    utf8.encode(text),
    (byte) => byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : "?",
  ).join("");
}

function replicationRefusal(value: string): Refusal | null {
  const word = value.toLowerCase();
  if (["false", "off", "no", "0", "f", "n"].includes(word)) return null;
  if (["true", "on", "yes", "1", "t", "y", "database"].includes(word)) {
    return refusals.notReplication;
  }
  return { code: "22023", message: 'invalid value for parameter "replication"' };
}

function sameBytes(known: Uint8Array, bytes: Uint8Array, at: number, length: number): boolean {
  if (known.length !== length) return false;
  for (let i = 0; i < length; i++) if (known[i] !== bytes[at + i]) return false;
  return true;
}
