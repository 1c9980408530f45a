// Builders, against pg-protocol as an independent oracle: its parser reads our server messages, its
// serializer writes the same client messages. What it cannot do is compared with written-out bytes.

import { Buffer } from "node:buffer";
import { serialize } from "pg-protocol";
import { Parser } from "pg-protocol/dist/parser.js";
import { assert, suite } from "../support/harness.ts";
import * as wire from "../../shared/wire/mod.ts";
import { ascii, hex } from "./samples.ts";

const test = suite("wire/messages");

function oracle(bytes: Uint8Array): Record<string, unknown> {
  const messages: Record<string, unknown>[] = [];
  new Parser().parse(Buffer.from(bytes), (m) => messages.push(m as never));
  assert.is(messages.length, 1);
  return messages[0]!;
}

function check(bytes: Uint8Array, expected: Record<string, unknown>): void {
  const parsed = oracle(bytes);
  for (const [key, value] of Object.entries(expected)) assert.equal(parsed[key], value, key);
  assert.is(parsed.length, bytes.length - 1);
}

test("errorResponse() and noticeResponse() carry S, V, C, M, D, H", () => {
  const fields = {
    severity: "FATAL",
    code: "53300",
    message: "no more connections allowed (max_client_conn)",
    detail: "100 of 100 \u20ac",
    hint: "wait",
  };
  check(wire.errorResponse(fields), { name: "error", ...fields });
  check(wire.noticeResponse(fields), { name: "notice", ...fields });
  const short = { severity: "ERROR", code: "08P01", message: "x" };
  check(wire.errorResponse(short), { ...short, detail: undefined, hint: undefined });
  assert.is(
    hex(wire.errorResponse(short)),
    hex(ascii("E\0\0\0\x1dSERROR\0VERROR\0C08P01\0Mx\0\0")),
  );
});

test("errorResponse() replaces NUL bytes, so that no text can add a field", () => {
  const bytes = wire.errorResponse({ severity: "ERROR", code: "22000", message: "a\0Hevil\0" });
  check(bytes, { message: "a\ufffdHevil\ufffd", hint: undefined });
});

test("authentication builders are read by pg-protocol", () => {
  check(wire.authenticationOk(), { name: "authenticationOk" });
  check(wire.authenticationCleartext(), { name: "authenticationCleartextPassword" });
  const salt = Uint8Array.of(0, 255, 3, 4);
  check(wire.authenticationMd5(salt), { name: "authenticationMD5Password" });
  assert.is(hex(oracle(wire.authenticationMd5(salt)).salt as Uint8Array), "00ff0304");
  const mechanisms = ["SCRAM-SHA-256-PLUS", "SCRAM-SHA-256"];
  check(wire.authenticationSasl(mechanisms), { name: "authenticationSASL", mechanisms });
  check(wire.authenticationSaslContinue(ascii("r=x")), {
    name: "authenticationSASLContinue",
    data: "r=x",
  });
  check(wire.authenticationSaslFinal(ascii("v=x")), {
    name: "authenticationSASLFinal",
    data: "v=x",
  });
});

test("parameterStatus(), readyForQuery() and backendKeyData() are read by pg-protocol", () => {
  check(wire.parameterStatus("TimeZone", ""), {
    parameterName: "TimeZone",
    parameterValue: "",
  });
  for (const status of ["I", "T", "E"] as const) check(wire.readyForQuery(status), { status });
  check(wire.backendKeyData(4711, Uint8Array.of(1, 2, 3, 4)), {
    processID: 4711,
    secretKey: 0x01020304,
  });
  const long = wire.backendKeyData(1, new Uint8Array(32).fill(9));
  assert.is(hex(long), "4b0000002800000001" + "09".repeat(32));
});

test("rowDescription(), dataRow() and commandComplete() are read by pg-protocol", () => {
  const fields = oracle(wire.rowDescription([
    { name: "database", typeOid: 25, typeSize: -1 },
    { name: "\u00e9", typeOid: 20, typeSize: 8 },
  ])).fields as Record<string, unknown>[];
  assert.equal(
    fields.map((f) => [f.name, f.tableID, f.columnID, f.dataTypeID, f.dataTypeSize, f.format]),
    [["database", 0, 0, 25, -1, "text"], ["\u00e9", 0, 0, 20, 8, "text"]],
  );
  check(wire.rowDescription([]), { fieldCount: 0 });
  check(wire.dataRow(["a", null, "", "\u20ac"]), { fields: ["a", null, "", "\u20ac"] });
  check(wire.dataRow([]), { fieldCount: 0 });
  check(wire.commandComplete("SELECT 5"), { text: "SELECT 5" });
  check(wire.emptyQueryResponse(), { name: "emptyQuery" });
  check(wire.message(wire.Backend.parseComplete), { name: "parseComplete" });
});

test("negotiateProtocolVersion() sends the whole version number, as PostgreSQL does", () => {
  const bytes = wire.negotiateProtocolVersion(2, ["_pq_.a", "_pq_.b"]);
  assert.is(hex(bytes), hex(ascii("v\0\0\0\x1a\0\x03\0\x02\0\0\0\x02_pq_.a\0_pq_.b\0")));
  assert.is(hex(wire.negotiateProtocolVersion(0, [])), "760000000c0003000000000000");
});

const sameAsOracle: [what: string, mine: Uint8Array, theirs: Uint8Array][] = [
  ["queryMessage", wire.queryMessage("SELECT '\u20ac'"), serialize.query("SELECT '\u20ac'")],
  ["passwordMessage", wire.passwordMessage("p\u00e4ss"), serialize.password("p\u00e4ss")],
  [
    "saslInitialResponse",
    wire.saslInitialResponse("SCRAM-SHA-256", ascii("n,,n=,r=x")),
    serialize.sendSASLInitialResponseMessage("SCRAM-SHA-256", "n,,n=,r=x"),
  ],
  [
    "saslResponse",
    wire.saslResponse(ascii("c=biws")),
    serialize.sendSCRAMClientFinalMessage("c=biws"),
  ],
  ["terminateMessage", wire.terminateMessage(), serialize.end()],
  ["syncMessage", wire.syncMessage(), serialize.sync()],
  ["flushMessage", wire.flushMessage(), serialize.flush()],
  [
    "parseMessage",
    wire.parseMessage("s", "SELECT $1", [23, 25]),
    serialize.parse({ name: "s", text: "SELECT $1", types: [23, 25] }),
  ],
  ["describeMessage", wire.describeMessage("S", "s"), serialize.describe({ type: "S", name: "s" })],
  ["closeMessage", wire.closeMessage("P", "p"), serialize.close({ type: "P", name: "p" })],
  ["executeMessage", wire.executeMessage("p", 7), serialize.execute({ portal: "p", rows: 7 })],
  ["copyDataMessage", wire.copyDataMessage(ascii("a\n")), serialize.copyData(Buffer.from("a\n"))],
  ["copyDoneMessage", wire.copyDoneMessage(), serialize.copyDone()],
  ["copyFailMessage", wire.copyFailMessage("no"), serialize.copyFail("no")],
];

for (const [what, mine, theirs] of sameAsOracle) {
  test(`${what}() writes what pg-protocol writes`, () => {
    assert.is(hex(mine), hex(theirs));
  });
}

test("bindMessage() writes text, binary and null values and result formats", () => {
  assert.is(hex(wire.bindMessage("", "s")), hex(ascii("B\0\0\0\x0d\0s\0\0\0\0\0\0\0")));
  assert.is(
    hex(wire.bindMessage("p", "", ["ab", null], [1])),
    hex(ascii("B\0\0\0\x19p\0\0\0\0\0\x02\0\0\0\x02ab\xff\xff\xff\xff\0\x01\0\x01")),
  );
  assert.is(
    hex(wire.bindMessage("", "", ["a", Uint8Array.of(0)])),
    hex(ascii("B\0\0\0\x1a\0\0\0\x02\0\0\0\x01\0\x02\0\0\0\x01a\0\0\0\x01\0\0\0")),
  );
});

test("passwordMessage() and saslInitialResponse() take bytes and no initial response", () => {
  assert.is(hex(wire.passwordMessage(Uint8Array.of(0xff, 0xfe))), "7000000007fffe00");
  assert.is(hex(wire.saslInitialResponse("X", null)), "700000000a5800ffffffff");
});

const refused: [what: string, build: () => Uint8Array][] = [
  ["queryMessage with NUL", () => wire.queryMessage("SELECT 1\0; DROP")],
  ["passwordMessage with NUL", () => wire.passwordMessage("sesame\0x")],
  ["passwordMessage with NUL in bytes", () => wire.passwordMessage(ascii("sesame\0x"))],
  ["parameterStatus with NUL", () => wire.parameterStatus("a", "b\0c")],
  ["parseMessage with NUL", () => wire.parseMessage("a\0", "")],
  ["describeMessage with NUL", () => wire.describeMessage("S", "a\0")],
  ["an md5 salt of 3", () => wire.authenticationMd5(new Uint8Array(3))],
  ["a key of 3", () => wire.backendKeyData(1, new Uint8Array(3))],
  ["a key of 257", () => wire.backendKeyData(1, new Uint8Array(257))],
  ["65,536 values", () => wire.dataRow(new Array(65_536).fill(""))],
];

for (const [what, build] of refused) {
  test(`builders throw WireError for ${what}`, () => {
    assert.throws(
      build,
      (error: Error) => error instanceof wire.WireError && !error.message.includes("sesame"),
    );
  });
}

test("dataRow() takes 65,535 values", () => {
  const values = wire.parseDataRow(wire.dataRow(new Array(65_535).fill(null)).subarray(5));
  assert.is(values?.length, 65_535);
});

test("concatBytes() joins in order", () => {
  assert.is(hex(wire.concatBytes()), "");
  assert.is(hex(wire.concatBytes(ascii("a"), new Uint8Array(0), ascii("bc"))), "616263");
});

test.run();
