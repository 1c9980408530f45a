// Startup packets and what the pooler thinks of them: names, and the parameters that follow the client:
// tracked ones, and all others that PostgreSQL may know, whose values a server judges at the login.
// Applications send the same packet at every connection, so the last ones are remembered whole: a
// known packet costs a comparison of bytes. Nothing here depends on who is allowed in.

import type { Settings } from "../../../shared/config/mod.ts";
import {
  type InitialPacket,
  parseInitialPacket,
  parseOptions,
  type StartupPacket,
} from "../../../shared/wire/mod.ts";
import {
  type Extra,
  extrasMax,
  isParameterName,
  type ParameterSet,
  type ParameterTracker,
} from "./parameters.ts";
import type { Refusal } from "./refusals.ts";

/** Longer names are refused, never cut: two names must not become one. */
const userMaxBytes = 128;
const databaseMaxBytes = 63;
const rememberedMax = 32;
const utf8 = new TextEncoder();

/** What kind of replication a client asks for. */
export type Replication = "physical" | "logical";

export interface Startup {
  readonly kind: "startup";
  readonly packet: StartupPacket;
  /** What is wrong with the names; told at once. */
  readonly refusal: Refusal | null;
  readonly parameters: ParameterSet;
  /** Null: an ordinary session. */
  readonly replication: Replication | null;
  /** What is wrong with the parameters; told only to who has proved to be somebody. */
  readonly parameterRefusal: Refusal | null;
}

type OtherPacket = Exclude<InitialPacket, StartupPacket>;

/** What a packet asks for; of names that differ only in case the last one counts. */
interface Asked {
  readonly values: (string | null)[];
  readonly extras: Map<string, Extra>;
}

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
    const asksFor = packet.parameters.get("replication") ?? "off";
    const replication = replicationOf(asksFor);
    const isPlain = replication === null;
    const values = this.#tracker.names.map((): string | null => null);
    const asked: Asked = { values, extras: new Map() };
    // What a replication client asks for is between it and its own server.
    const parameterRefusal = replication === "invalid"
      ? invalidReplication(asksFor)
      : isPlain
      ? this.#takeParameters(packet, asked)
      : null;
    const parameters = isPlain && parameterRefusal === null
      ? this.#tracker.intern(values, [...asked.extras.values()])
      : this.#tracker.none;
    return {
      kind: "startup",
      packet,
      refusal,
      parameters,
      replication: replication === "invalid" ? null : replication,
      parameterRefusal,
    };
  }

  /** What a replication client's server is told: all but the names, and what is to be ignored. */
  forwarded(packet: StartupPacket): Map<string, string> {
    const others = [...packet.parameters].filter(([name]) =>
      name !== "user" && name !== "database" && !this.#ignored.has(name.toLowerCase())
    );
    return new Map(others);
  }

  #takeParameters(packet: StartupPacket, asked: Asked): Refusal | null {
    // First, as in PostgreSQL: what the packet says itself wins, wherever it stands.
    const options = packet.parameters.get("options");
    if (options !== undefined && !this.#ignored.has("options")) {
      const refusal = this.#takeOptions(options, asked);
      if (refusal !== null) return refusal;
    }
    for (const [name, value] of packet.parameters) {
      if (["user", "database", "options", "replication"].includes(name)) continue;
      const refusal = this.#take(name, value, "", asked);
      if (refusal !== null) return refusal;
    }
    return null;
  }

  #takeOptions(text: string, asked: Asked): Refusal | null {
    const options = parseOptions(text);
    if (options.kind === "problem") return { code: options.sqlstate, message: options.message };
    for (const [name, value] of options.parameters) {
      const refusal = this.#take(name, value, " in options", asked);
      if (refusal !== null) return refusal;
    }
    return null;
  }

  /** Tracked parameters go into `values`, listed ones are ignored, others are extras if they may be any. */
  #take(name: string, value: string, where: string, asked: Asked): Refusal | null {
    const index = this.#tracker.indexOf(name);
    const lower = name.toLowerCase();
    if (index >= 0) {
      asked.values[index] = lower === "application_name" ? asciiOnly(value) : value;
      return null;
    }
    if (this.#ignored.has(lower)) return null;
    if (!isParameterName(name)) {
      return {
        code: "22023",
        message: `unsupported startup parameter${where}: ${asciiOnly(name).slice(0, 64)}`,
        hint: "Add it to ignore_startup_parameters, or let the client not send it",
      };
    }
    asked.extras.set(lower, [name, value]);
    if (asked.extras.size <= extrasMax) return null;
    return {
      code: "22023",
      message: `too many startup parameters: more than ${extrasMax} that are not tracked`,
      hint: "Set them by ALTER ROLE, or add them to ignore_startup_parameters",
    };
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

/** In PostgreSQL's words. */
function invalidReplication(value: string): Refusal {
  const said = asciiOnly(value).slice(0, 64);
  return {
    code: "22023",
    message: `invalid value for parameter "replication": "${said}"`,
    hint: 'Valid values are: "false", 0, "true", 1, "database".',
  };
}

/** As PostgreSQL reads it: `database` as it stands here, or a boolean, which may be cut and in any case. */
function replicationOf(value: string): Replication | null | "invalid" {
  if (value === "database") return "logical";
  const word = value.toLowerCase();
  const means = (whole: string, least: number) => word.length >= least && whole.startsWith(word);
  if (word === "1" || means("true", 1) || means("yes", 1) || word === "on") return "physical";
  if (word === "0" || means("false", 1) || means("no", 1) || means("off", 2)) return null;
  return "invalid";
}

function sameBytes(known: Uint8Array, bytes: Uint8Array, at: number, length: number): boolean {
  if (known.length !== length) return false;
  for (let i = 0; i < length; i++) if (known[i] !== bytes[at + i]) return false;
  return true;
}
