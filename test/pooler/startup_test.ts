// What the pooler takes from a startup packet: which parameters follow the client, which are ignored, which are
// refused; of `options`, of other spellings and of repetitions. Nothing here is connected to anything.

import { ParameterTracker } from "../../services/pooler/plane/parameters.ts";
import { type Startup, StartupReader } from "../../services/pooler/plane/startup.ts";
import { cancelRequest, sslRequest, startupPacket } from "../../shared/wire/mod.ts";
import { configOf, iniWith } from "../config/fixtures.ts";
import { assert, suite } from "../support/harness.ts";

const tracker = new ParameterTracker(["IntervalStyle"]);

function readerOf(ignored = ""): StartupReader {
  const { settings } = configOf(iniWith(`ignore_startup_parameters = ${ignored}`));
  return new StartupReader(tracker, settings);
}

function read(pairs: readonly [string, string][], reader = readerOf()): Startup {
  const packet = startupPacket([["user", "u"], ...pairs]);
  const startup = reader.read(packet, 0, packet.length);
  if (startup.kind !== "startup") throw new Error(`read startup packet: ${startup.kind}`);
  return startup;
}

/** The parameters as one object by name; the refusal's code instead if there is one. */
function taken(pairs: readonly [string, string][], reader?: StartupReader): unknown {
  const { parameters, parameterRefusal } = read(pairs, reader);
  if (parameterRefusal !== null) return parameterRefusal.code;
  const own = tracker.names.map((name, index) => [name, parameters.values[index]]);
  const set = own.filter(([, value]) => value !== null && value !== undefined);
  return Object.fromEntries([...set, ...parameters.extras]);
}

const test = suite("startup packets");

test("read() sorts parameters by what becomes of them", () => {
  const rows: [[string, string][], unknown][] = [
    [[], {}],
    [[["database", "d"]], {}],
    [[["TIMEZONE", "UTC"], ["intervalstyle", "iso_8601"]], {
      TimeZone: "UTC",
      IntervalStyle: "iso_8601",
    }],
    [[["application_name", "é\n"]], { application_name: "???" }],
    [[["work_mem", "é"], ["My.Own", ""]], { "My.Own": "", work_mem: "é" }],
    [[["work_mem", "1"], ["WORK_MEM", "2"]], { WORK_MEM: "2" }],
    [[["options", "-c work_mem=1 --My.Own=x -cTimeZone=UTC"]], {
      "My.Own": "x",
      work_mem: "1",
      TimeZone: "UTC",
    }],
    [[["options", "--work-mem=1"]], { work_mem: "1" }],
    // The packet's own word counts, wherever it stands.
    [[["work_mem", "1"], ["options", "-c work_mem=2"]], { work_mem: "1" }],
    [[["options", "-c work_mem=2"], ["work_mem", "1"]], { work_mem: "1" }],
    [[["options", "-d 5"]], "22023"],
    [[["options", "-c a;b=1"]], "22023"],
    [[["a b", "1"]], "22023"],
    [[['a"b', "1"]], "22023"],
    [[["replication", "off"]], {}],
    [[["geqo", "off"], ["Enable_Sort", "off"], ["options", "-c GEQO=off"]], {}],
  ];
  const ignoring = readerOf("geqo, enable_sort");
  for (const [pairs, expected] of rows) {
    assert.equal(taken(pairs, ignoring), expected, JSON.stringify(pairs));
  }
});

test("read() ignores options as a whole where it is listed", () => {
  assert.equal(
    taken([["options", "-d 5 -c work_mem=1"], ["TimeZone", "UTC"]], readerOf("Options")),
    {
      TimeZone: "UTC",
    },
  );
});

test("read() refuses a kind of replication that there is not in PostgreSQL's words", () => {
  for (const [value, said] of [["junk", "junk"], ["", ""], ["\u00e9", "??"]] as const) {
    const { code, message, hint } = read([["replication", value]]).parameterRefusal!;
    assert.equal(
      [code, message, hint],
      [
        "22023",
        `invalid value for parameter "replication": "${said}"`,
        'Valid values are: "false", 0, "true", 1, "database".',
      ],
    );
  }
});

test("read() takes a bounded number of extras, from both places", () => {
  const pairs = Array.from({ length: 50 }, (_, i): [string, string] => [`own.p${i}`, "v"]);
  assert.is(read(pairs).parameters.extras.length, 50);
  assert.is(taken([...pairs, ["own.more", "v"]]), "22023");
  assert.is(taken([...pairs, ["options", "-c own.more=v"]]), "22023");
  assert.is(read([...pairs, ["options", "-c OWN.P0=w"]]).parameterRefusal, null);
});

test("read() gives equal sets for packets that ask for the same", () => {
  const one = read([["work_mem", "1"], ["TimeZone", "UTC"], ["own.a", "b"]]);
  const other = read([["options", "-c own.a=b"], ["TimeZone", "UTC"], ["work_mem", "1"]]);
  assert.is(one.parameters, other.parameters);
  assert.is(read([["user", "someone"]]).parameters, tracker.none);
});

test("read() remembers packets by all their bytes", () => {
  const reader = readerOf();
  const first = read([["work_mem", "1"]], reader);
  assert.is(read([["work_mem", "1"]], reader), first);
  assert.not(read([["work_mem", "2"]], reader) === first);
  for (let i = 0; i < 100; i++) read([["work_mem", String(i)]], reader);
  const again = read([["work_mem", "1"]], reader);
  assert.not(again === first);
  assert.equal(again, first);
});

test("read() refuses names that are too long, and gives other packets as they are", () => {
  assert.is(read([["user", "u".repeat(128)], ["database", "d"]]).refusal, null);
  assert.is(read([["user", "u".repeat(129)]]).refusal?.code, "08P01");
  assert.is(read([["database", "d".repeat(64)]]).refusal?.code, "08P01");
  const reader = readerOf();
  const secret = new Uint8Array(32);
  for (
    const [packet, kind] of [[sslRequest(), "ssl"], [cancelRequest(1, secret), "cancel"]] as const
  ) {
    assert.is(reader.read(packet, 0, packet.length).kind, kind);
  }
});

test.run();
