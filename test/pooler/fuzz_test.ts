// Random and mutated answers to auth_query and startup packets, as the pooler reads them: nothing throws, nobody is
// found whom the answer does not name, and equal packets mean equal things. How many, and which: test/support/fuzz.ts.
// limit: 900 s

import { AuthAnswer } from "../../services/pooler/plane/auth_query.ts";
import {
  extrasMax,
  ParameterTracker,
  quoteLiteral,
} from "../../services/pooler/plane/parameters.ts";
import { StartupReader } from "../../services/pooler/plane/startup.ts";
import {
  commandComplete,
  concatBytes,
  dataRow,
  emptyQueryResponse,
  errorResponse,
  latin1Text,
  MessageReader,
  parameterStatus,
  readyForQuery,
  rowDescription,
  startupPacket,
  WireError,
} from "../../shared/wire/mod.ts";
import { secretKind } from "../../shared/config/mod.ts";
import { configOf, iniWith } from "../config/fixtures.ts";
import { type Dice, fuzz } from "../support/fuzz.ts";
import { assert, suite } from "../support/harness.ts";
import { initialSamples } from "../wire/samples.ts";

const test = suite("pooler/fuzz");

const columns = ["usename", "passwd"].map((name) => ({ name, typeOid: 25, typeSize: -1 }));
const scram = `SCRAM-SHA-256$4096:c2FsdA==$${"A".repeat(43)}=:${"B".repeat(43)}=`;
const end = concatBytes(commandComplete("SELECT 1"), readyForQuery("I"));
const answers = [
  concatBytes(rowDescription(columns), dataRow(["ann", scram]), end),
  concatBytes(rowDescription(columns), dataRow(["b\u00e9", "md5"]), dataRow(["c", "d"]), end),
  concatBytes(rowDescription(columns), dataRow([null, null]), end),
  concatBytes(rowDescription(columns.slice(1)), dataRow(["x"]), end),
  concatBytes(
    errorResponse({ severity: "ERROR", code: "42883", message: "no" }),
    readyForQuery("I"),
  ),
  concatBytes(emptyQueryResponse(), parameterStatus("TimeZone", "UTC"), readyForQuery("I")),
];

fuzz(test, "AuthAnswer takes any answer, and finds whom it names", 88_000, (dice, note) => {
  const bytes = dice.input(answers);
  note(bytes);
  const reader = new MessageReader({ side: "backend", maxLength: 100_000 });
  const answer = new AuthAnswer();
  try {
    reader.push(bytes);
    for (let next = reader.next(); next !== null; next = reader.next()) {
      if (!answer.take(next.type, next.body)) break;
    }
  } catch (error) {
    if (!(error instanceof WireError)) throw error;
  }
  const { found } = answer;
  if (found.kind === "failed") return assert.ok(found.reason !== "");
  if (found.kind === "nobody") return;
  const { user, kind, secret } = found.secret;
  assert.is(kind, secretKind(secret));
  // Byte for byte what the answer holds: one name never stands for another.
  const whole = latin1Text(bytes);
  for (const text of [user, secret]) {
    assert.ok(whole.includes(latin1Text(new TextEncoder().encode(text))), JSON.stringify(text));
  }
});

const ignored = new Set(["extra_float_digits", "geqo"]);
const { settings } = configOf(iniWith("ignore_startup_parameters = extra_float_digits, geqo"));
const tracker = new ParameterTracker(["search_path"]);
const packets = [
  ...initialSamples,
  startupPacket({ user: "a", options: "-c work_mem=1 --DateStyle=ISO -cgeqo=on", TimeZone: "UTC" }),
  startupPacket({ user: "b", replication: "database", search_path: 'x,"y z"' }),
  startupPacket({ user: "c", replication: "yes", extra_float_digits: "3", "my.own": "\u00e9\n" }),
  startupPacket([["user", "d"], ["WORK_MEM", "1"], ["work_mem", "2"], ["client_encoding", "x"]]),
];

function anyPacket(dice: Dice): Uint8Array {
  const bytes = dice.input(packets);
  if (bytes.length >= 8 && dice.chance(0.8)) {
    new DataView(bytes.buffer, bytes.byteOffset).setInt32(0, bytes.length);
  }
  return bytes;
}

let reader = new StartupReader(tracker, settings);

fuzz(
  test,
  "StartupReader reads any packet, and the same again as the same",
  60_000,
  (dice, note) => {
    const packet = anyPacket(dice);
    note(packet);
    // It has room for a few packets: with a new one now and then both ways are gone.
    if (dice.chance(0.01)) reader = new StartupReader(tracker, settings);
    const startup = reader.read(packet, 0, packet.length);
    if (startup.kind !== "startup") return;
    const again = reader.read(packet, 0, packet.length);
    assert.ok(again === startup);
    const { parameters, parameterRefusal, refusal, replication } = startup;
    for (const told of [refusal, parameterRefusal]) {
      if (told !== null) assert.match(`${told.code} ${told.message}`, /^(08P01|22023) [^\n]+$/);
    }
    assert.ok(parameters.extras.length <= extrasMax);
    for (const [name] of parameters.extras) {
      assert.ok(!ignored.has(name.toLowerCase()) && tracker.indexOf(name) < 0, name);
    }
    if (replication === null) return;
    assert.is(parameters, tracker.none);
    for (const name of reader.forwarded(startup.packet).keys()) {
      assert.ok(name !== "user" && name !== "database" && !ignored.has(name.toLowerCase()));
    }
  },
);

/** What PostgreSQL makes of a literal. */
function meaning(literal: string): string {
  const [, escaped, inner = ""] = /^( E)?'([^]*)'$/.exec(literal) ?? [];
  const plain = inner.replaceAll("''", "'");
  if (escaped === undefined) return plain;
  return plain.replace(
    /\\(?:U([0-9a-f]{8})|(\\))/g,
    (_, code: string | undefined) => code ? String.fromCodePoint(parseInt(code, 16)) : "\\",
  );
}

fuzz(test, "quoteLiteral() is one ASCII literal that means the value", 10_000, (dice, note) => {
  const value = dice.text([..."'\\$\"; -\t\na1", "''", "\\'", "E'", "\u00e9", "\u8868", "😀"]);
  note(value);
  const literal = quoteLiteral(value);
  assert.match(literal, /^ ?E?'(?:[\x20-\x26\x28-\x5b\x5d-\x7e]|''|\\\\|\\U)*'$/);
  assert.is(meaning(literal), value);
});

test.run();
