// Parsers of message bodies: what builders wrote comes back, damaged bodies are refused, cut anywhere.

import { Buffer } from "node:buffer";
import { assert, suite } from "../support/harness.ts";
import * as wire from "../../shared/wire/mod.ts";
import { ascii } from "./samples.ts";

const test = suite("wire/parsers");

const body = (bytes: Uint8Array) => bytes.subarray(5);

test("parseErrorFields() reads back errorResponse()", () => {
  const fields = { severity: "FATAL", code: "28P01", message: "m\u00e9", detail: "d", hint: "h" };
  assert.equal(wire.parseErrorFields(body(wire.errorResponse(fields))), fields);
});

const none = { severity: "", code: "XX000", message: "", detail: "", hint: "" };
const damaged: [what: string, bytes: string, expected: wire.ParsedError][] = [
  ["nothing at all", "", none],
  ["only a terminator", "\0", none],
  ["no code", "SERROR\0Mno\0\0", { ...none, severity: "ERROR", message: "no" }],
  ["no message", "SERROR\0C42601\0\0", { ...none, severity: "ERROR", code: "42601" }],
  ["no severity", "C42601\0Mno\0\0", { ...none, code: "42601", message: "no" }],
  ["no terminator", "SERROR\0C42601\0", { ...none, severity: "ERROR", code: "42601" }],
  ["a field without NUL", "C42601\0Mcut of", { ...none, code: "42601", message: "cut of" }],
  ["a lone field type", "M", none],
  ["an empty code", "C\0\0", none],
  ["a code of 3", "C426\0\0", none],
  ["a code of 50", `C${"4".repeat(50)}\0\0`, none],
  ["a code in lower case", "Cabcde\0\0", none],
  ["a translated severity", "SFEHLER\0VERROR\0\0", { ...none, severity: "ERROR" }],
  ["bad UTF-8", "M\xff\0\0", { ...none, message: "\ufffd" }],
  ["1,000 unknown fields", "zx\0".repeat(1000) + "C40001\0\0", { ...none, code: "40001" }],
  ["bytes behind the terminator", "C40001\0\0Mx\0", { ...none, code: "40001" }],
];

for (const [what, text, expected] of damaged) {
  test(`parseErrorFields() makes the best of ${what}`, () => {
    assert.equal(wire.parseErrorFields(ascii(text)), expected);
  });
}

test("parseErrorFields() takes a message of 1 MiB", () => {
  const text = "x".repeat(1 << 20);
  assert.is(wire.parseErrorFields(ascii(`M${text}\0\0`)).message, text);
});

const statuses: [text: string, expected: { name: string; value: string } | null][] = [
  ["TimeZone\0UTC\0", { name: "TimeZone", value: "UTC" }],
  ["a\0\0", { name: "a", value: "" }],
  ["", null],
  ["a", null],
  ["a\0", null],
  ["a\0b", null],
  ["\0b\0", null],
  ["a\0b\0c", null],
  ["a\0b\0\0", null],
  ["a\0\xff\0", null],
];

test("parseParameterStatus() takes exactly a name and a value", () => {
  for (const [text, expected] of statuses) {
    assert.equal(wire.parseParameterStatus(ascii(text)), expected, JSON.stringify(text));
  }
});

const authentications: [bytes: Uint8Array, expected: Record<string, unknown>][] = [
  [wire.authenticationOk(), { kind: "ok" }],
  [wire.authenticationCleartext(), { kind: "cleartext" }],
  [wire.authenticationMd5(ascii("abcd")), { kind: "md5", salt: ascii("abcd") }],
  [wire.authenticationSasl(["A", "B"]), { kind: "sasl", mechanisms: ["A", "B"] }],
  [wire.authenticationSasl([]), { kind: "sasl", mechanisms: [] }],
  [wire.authenticationSaslContinue(ascii("x")), { kind: "saslContinue", data: ascii("x") }],
  [wire.authenticationSaslFinal(ascii("y")), { kind: "saslFinal", data: ascii("y") }],
  [ascii("R\0\0\0\x08\0\0\0\x07"), { kind: "unsupported", code: 7 }],
  [ascii("R\0\0\0\x08\0\0\0\x63"), { kind: "unsupported", code: 99 }],
];

test("parseAuthentication() tells the requests apart", () => {
  for (const [bytes, expected] of authentications) {
    assert.equal(wire.parseAuthentication(body(bytes)) as Record<string, unknown>, expected);
  }
});

test("parseAuthentication() reports damaged requests", () => {
  const texts = ["", "\0\0\0", "\0\0\0\0x", "\0\0\0\x03x", "\0\0\0\x05abc", "\0\0\0\x05abcde"];
  const lists = [
    "\0\0\0\x0a",
    "\0\0\0\x0aA",
    "\0\0\0\x0aA\0",
    "\0\0\0\x0aA\0\0\0",
    "\0\0\0\x0a\0A\0",
  ];
  for (const text of [...texts, ...lists]) {
    assert.is(wire.parseAuthentication(ascii(text)).kind, "problem", JSON.stringify(text));
  }
});

test("parseBackendKeyData() takes keys of 4 to 256 bytes", () => {
  for (const size of [4, 5, 32, 256]) {
    const secret = new Uint8Array(size).fill(size);
    const parsed = wire.parseBackendKeyData(body(wire.backendKeyData(-7, secret)));
    assert.equal(parsed, { processId: -7, secret });
  }
  for (const size of [0, 4, 7, 261]) {
    assert.is(wire.parseBackendKeyData(new Uint8Array(size)), null);
  }
});

test("parseNegotiateProtocolVersion() reads back negotiateProtocolVersion()", () => {
  const bytes = body(wire.negotiateProtocolVersion(2, ["_pq_.a", "_pq_.b"]));
  assert.equal(wire.parseNegotiateProtocolVersion(bytes), {
    minor: 2,
    names: ["_pq_.a", "_pq_.b"],
  });
  for (let at = 0; at < bytes.length; at++) {
    assert.is(wire.parseNegotiateProtocolVersion(bytes.subarray(0, at)), null, `cut at ${at}`);
  }
  assert.is(wire.parseNegotiateProtocolVersion(ascii("\0\x03\0\0\x7f\xff\xff\xff")), null);
  assert.is(wire.parseNegotiateProtocolVersion(ascii("\0\x02\0\0\0\0\0\0")), null);
});

const tags: [tag: string, command: string, rows: number | null][] = [
  ["SELECT 5", "SELECT", 5],
  ["INSERT 0 12", "INSERT", 12],
  ["UPDATE 0", "UPDATE", 0],
  ["COPY 1000000", "COPY", 1000000],
  ["BEGIN", "BEGIN", null],
  ["CREATE TABLE", "CREATE TABLE", null],
  ["SELECT 18446744073709551615", "SELECT", 18446744073709551615],
  ["SHOW", "SHOW", null],
  ["", "", null],
  ["5", "5", null],
  ["INSERT -1 x", "INSERT -1 x", null],
];

test("parseCommandTag() separates command and rows", () => {
  for (const [tag, command, rows] of tags) {
    assert.equal(wire.parseCommandTag(body(wire.commandComplete(tag))), { tag, command, rows });
    assert.equal(wire.parseCommandTag(ascii(tag)), { tag, command, rows }, "without its NUL");
  }
});

test("parseRowDescription() and parseDataRow() read back what was built, cut nowhere", () => {
  const columns = [
    { name: "a", typeOid: 25, typeSize: -1 },
    { name: "\u00e9", typeOid: 4294967295, typeSize: 8 },
  ];
  const description = body(wire.rowDescription(columns));
  assert.equal(
    wire.parseRowDescription(description),
    columns.map((column) => ({ ...column, format: 0 })),
  );
  const row = body(wire.dataRow(["a", null, "", "bc"]));
  assert.equal(wire.parseDataRow(row), [ascii("a"), null, ascii(""), ascii("bc")]);
  for (let at = 0; at < description.length; at++) {
    assert.is(wire.parseRowDescription(description.subarray(0, at)), null);
  }
  for (let at = 0; at < row.length; at++) assert.is(wire.parseDataRow(row.subarray(0, at)), null);
});

test("parseDataRow() and parseRowDescription() refuse counts and sizes that the body has not", () => {
  assert.is(wire.parseRowDescription(ascii("\xff\xff")), null);
  assert.is(wire.parseDataRow(ascii("\xff\xff")), null);
  for (
    const size of [
      "\x7f\xff\xff\xff",
      "\x80\0\0\0",
      "\xff\xff\xff\xfe",
      "\xff\xff\xff\xf0",
      "\0\0\0\x02",
    ]
  ) {
    assert.is(wire.parseDataRow(ascii(`\0\x01${size}a`)), null, JSON.stringify(size));
  }
  assert.is(wire.parseDataRow(ascii("\0\x01\0\0\0\x01ab")), null, "bytes left over");
});

test("parsePassword() takes one string with its NUL at the end", () => {
  const parsed = wire.parsePassword(body(wire.passwordMessage("p\u00e4ss")));
  assert.equal(parsed, { kind: "password", password: ascii("p\xc3\xa4ss") });
  assert.equal(wire.parsePassword(ascii("\0")), { kind: "password", password: new Uint8Array(0) });
  for (const text of ["", "a", "a\0b", "a\0b\0", "\0\0"]) {
    assert.is(wire.parsePassword(ascii(text)).kind, "problem", JSON.stringify(text));
  }
  const long = new Uint8Array(65_535).fill(0x61);
  const message = wire.passwordMessage(long);
  assert.is(wire.frontendFrameProblem(message[0]!, message.length - 1), null);
  assert.equal(wire.parsePassword(body(message)), { kind: "password", password: long });
});

test("parseSaslInitialResponse() reads mechanism and data, and no initial response", () => {
  const data = ascii("n,,n=,r=x");
  assert.equal(wire.parseSaslInitialResponse(body(wire.saslInitialResponse("M", data))), {
    kind: "saslInitial",
    mechanism: "M",
    data,
  });
  assert.equal(wire.parseSaslInitialResponse(body(wire.saslInitialResponse("", null))), {
    kind: "saslInitial",
    mechanism: "",
    data: null,
  });
});

test("parseSaslInitialResponse() refuses every length but the true one", () => {
  // A pooler computed "position + length > end" with a length near 2^32, which wrapped around, and
  // read far outside its buffer before anybody had logged in.
  const lengths = ["\xff\xff\xff\xff", "\xff\xff\xff\xfe", "\x7f\xff\xff\xff", "\x80\0\0\0"];
  const near = ["\xff\xff\xff\xf0", "\0\0\0\x04", "\0\0\0\x02", "\0\0\0\0"];
  for (const length of [...lengths, ...near]) {
    assert.is(wire.parseSaslInitialResponse(ascii(`SCRAM-SHA-256\0${length}n,,`)).kind, "problem");
  }
  for (
    const text of [
      "",
      "\0",
      "SCRAM-SHA-256",
      "SCRAM-SHA-256\0",
      "SCRAM-SHA-256\0\0\0\0",
      "\0\0\0\0\x01",
    ]
  ) {
    assert.is(wire.parseSaslInitialResponse(ascii(text)).kind, "problem", JSON.stringify(text));
  }
  const long = wire.parseSaslInitialResponse(ascii("M".repeat(10_000) + "\0\0\0\0\x01x"));
  assert.ok(long.kind === "saslInitial" && long.mechanism.length === 10_000);
});

test("parsers return copies, also from a Buffer", () => {
  const source = Buffer.from(body(wire.backendKeyData(1, ascii("abcd"))));
  const key = wire.parseBackendKeyData(source);
  const row = Buffer.from(body(wire.dataRow(["abcd"])));
  const values = wire.parseDataRow(row);
  source.fill(0);
  row.fill(0);
  assert.equal(key?.secret, ascii("abcd"));
  assert.equal(values, [ascii("abcd")]);
});

test.run();
