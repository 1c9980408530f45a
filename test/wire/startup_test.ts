// Initial packets and the `options` parameter, as tables; PostgreSQL's and PgBouncer's verdicts.

import { serialize } from "pg-protocol";
import { assert, suite } from "../support/harness.ts";
import {
  cancelRequest,
  concatBytes,
  gssRequest,
  type InitialPacket,
  initialPacketLengthProblem,
  parseInitialPacket,
  parseOptions,
  sslRequest,
  startupPacket,
  WireError,
  writeInt32,
} from "../../shared/wire/mod.ts";
import { ascii, hex, initialSamples } from "./samples.ts";

const test = suite("wire/startup");

function parse(bytes: Uint8Array): InitialPacket {
  return parseInitialPacket(bytes, 0, bytes.length);
}

function packet(code: number, body: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(8 + body.length);
  writeInt32(bytes, 0, bytes.length);
  writeInt32(bytes, 4, code);
  bytes.set(body, 8);
  return bytes;
}

const v3 = 196608;

test("parseInitialPacket() tells the requests apart", () => {
  assert.equal(parse(sslRequest()), { kind: "ssl" });
  assert.equal(parse(gssRequest()), { kind: "gss" });
  for (const size of [4, 32, 256]) {
    const secret = new Uint8Array(size).fill(7);
    assert.equal(parse(cancelRequest(-5, secret)), { kind: "cancel", processId: -5, secret });
  }
});

test("sslRequest(), cancelRequest() and startupPacket() build what pg-protocol builds", () => {
  assert.is(hex(sslRequest()), hex(serialize.requestSsl()));
  assert.is(
    hex(cancelRequest(1234, new Uint8Array([0, 1, 2, 3]))),
    hex(serialize.cancel(1234, 0x00010203)),
  );
  const parameters = { user: "a", database: "b" };
  assert.is(
    hex(startupPacket({ ...parameters, client_encoding: "UTF8" })),
    hex(serialize.startup(parameters)),
  );
});

test("parseInitialPacket() reads version, parameters and protocol options", () => {
  const parameters = { user: "alice", database: "shop", application_name: "caf\u00e9 \u20ac" };
  assert.equal(parse(startupPacket({ ...parameters, "_pq_.a": "1", "_pq_.b": "" }, 2)), {
    kind: "startup",
    major: 3,
    minor: 2,
    user: "alice",
    database: "shop",
    parameters: new Map(Object.entries(parameters)),
    protocolOptions: ["_pq_.a", "_pq_.b"],
  });
});

test("parseInitialPacket() takes any minor version of 3, the last duplicate, the user as database", () => {
  const pairs: [string, string][] = [["user", "a"], ["user", "b"], ["DateStyle", "ISO"]];
  const startup = parse(startupPacket(pairs, 9999));
  assert.ok(startup.kind === "startup");
  assert.is(startup.minor, 9999);
  assert.is(startup.user, "b");
  assert.is(startup.database, "b");
  assert.is(startup.parameters.get("DateStyle"), "ISO");
  const empty = parse(startupPacket({ user: "a", database: "" }));
  assert.ok(empty.kind === "startup" && empty.database === "a");
});

test("parseInitialPacket() reads at an offset of a larger buffer and no further", () => {
  const inner = startupPacket({ user: "u" });
  const bytes = concatBytes(ascii("junk"), inner, ascii("database\0other\0\0"));
  const startup = parseInitialPacket(bytes, 4, inner.length);
  assert.ok(startup.kind === "startup");
  assert.equal([...startup.parameters], [["user", "u"]]);
});

const layout = "invalid startup packet layout: expected terminator as last byte";
const many = ascii(
  Array.from({ length: 400 }, (_, i) => `k${i}\0v\0`).join("") + "user\0u\0\0",
);

const refused: [what: string, bytes: Uint8Array, sqlstate: string, message: string | RegExp][] = [
  ["no terminator", packet(v3, ascii("user\0x\0")), "08P01", layout],
  ["an early terminator", packet(v3, ascii("\0user\0x\0\0")), "08P01", layout],
  ["two terminators", packet(v3, ascii("user\0x\0\0\0")), "08P01", layout],
  ["a name without value", packet(v3, ascii("user\0x\0database\0")), "08P01", layout],
  ["a string without end", packet(v3, ascii("user\0x\0database\0shop")), "08P01", layout],
  ["a name without end", packet(v3, ascii("user")), "08P01", layout],
  ["no parameters and no terminator", packet(v3, ascii("")), "08P01", layout],
  ["no parameters", packet(v3, ascii("\0")), "28000", "no username supplied"],
  ["no user", packet(v3, ascii("database\0x\0\0")), "28000", "no username supplied"],
  ["an empty user", packet(v3, ascii("user\0\0\0")), "28000", "no username supplied"],
  ["protocol 2", packet(131072, ascii("user\0x\0\0")), "0A000", "old V2 protocol not supported"],
  [
    "protocol 4",
    packet(4 << 16, ascii("user\0x\0\0")),
    "0A000",
    /^unsupported frontend protocol 4\.0/,
  ],
  ["code 0", packet(0, ascii("")), "0A000", /^unsupported frontend protocol 0\.0/],
  ["code -1", packet(-1, ascii("")), "0A000", /^unsupported frontend protocol 65535\.65535/],
  [
    "a name that is not UTF-8",
    packet(v3, ascii("us\xff\0x\0\0")),
    "08P01",
    /name is not valid UTF-8$/,
  ],
  [
    "a user that is not UTF-8",
    packet(v3, ascii("user\0\xe9\0\0")),
    "08P01",
    /"user" is not valid UTF-8$/,
  ],
  ["an overlong encoding", packet(v3, ascii("user\0\xc1\xa1\0\0")), "08P01", /not valid UTF-8$/],
  [
    "a surrogate in UTF-8",
    packet(v3, ascii("user\0\xed\xa0\x80\0\0")),
    "08P01",
    /not valid UTF-8$/,
  ],
  ["a long SSLRequest", packet(80877103, ascii("x")), "08P01", /^invalid length of SSLRequest/],
  [
    "a long GSSENCRequest",
    packet(80877104, ascii("x")),
    "08P01",
    /^invalid length of GSSENCRequest/,
  ],
  ["a cancel without key", packet(80877102, ascii("\0\0\0\x01")), "08P01", /CancelRequest: 12,/],
  [
    "a cancel with 3 bytes",
    packet(80877102, ascii("\0\0\0\x01abc")),
    "08P01",
    /CancelRequest: 15,/,
  ],
  [
    "a cancel with 257 bytes",
    cancelRequest(1, new Uint8Array(257)),
    "08P01",
    /CancelRequest: 269,/,
  ],
];

for (const [what, bytes, sqlstate, message] of refused) {
  test(`parseInitialPacket() refuses ${what}`, () => {
    const result = parse(bytes);
    assert.ok(result.kind === "problem", result.kind);
    assert.is(result.sqlstate, sqlstate);
    if (typeof message === "string") assert.is(result.message, message);
    else assert.match(result.message, message);
  });
}

test("parseInitialPacket() takes 400 parameters", () => {
  const startup = parse(packet(v3, many));
  assert.ok(startup.kind === "startup" && startup.parameters.size === 401);
});

test("parseInitialPacket() never lets two byte strings become one name", () => {
  // A decoder that strips a byte order mark would log "\uFEFFbob" in as "bob".
  const startup = parse(packet(v3, ascii("user\0\xef\xbb\xbfbob\0\0")));
  assert.ok(startup.kind === "startup");
  assert.is(startup.user, "\ufeffbob");
  const replacement = parse(packet(v3, ascii("user\0\xef\xbf\xbd\0\0")));
  assert.ok(replacement.kind === "startup" && replacement.user === "\ufffd");
});

test("parseInitialPacket() refuses a packet cut at any point", () => {
  for (const bytes of initialSamples) {
    assert.is.not(parse(bytes).kind, "problem");
    for (let at = 0; at < bytes.length; at++) {
      const cut = bytes.slice(0, at);
      assert.is(parseInitialPacket(cut, 0, at).kind, "problem");
      assert.is(parseInitialPacket(cut, 0, bytes.length).kind, "problem");
      if (at < 8) continue;
      writeInt32(cut, 0, at); // a shorter packet that is consistent with itself
      const result = parse(cut);
      assert.ok(result.kind === "problem" || result.kind === "cancel" || at === 8, result.kind);
    }
  }
});

test("initialPacketLengthProblem() has PostgreSQL's bounds", () => {
  for (const length of [8, 9, 10_000, 10_004]) assert.is(initialPacketLengthProblem(length), null);
  for (const length of [-0x80000000, -1, 0, 4, 7, 10_005, 0x7fffffff]) {
    assert.match(initialPacketLengthProblem(length)!, /^invalid length of startup packet: /);
  }
  const big = startupPacket({ user: "u", x: "y".repeat(10_004 - 8 - 7 - 2 - 2) });
  assert.is(big.length, 10_004);
  assert.is(parse(big).kind, "startup");
});

test("startupPacket() throws for a NUL byte and does not show the value", () => {
  const rows: [string, string][] = [["", "v"], ["a\0b", "v"], ["password", "se\0cret"]];
  for (const row of rows) {
    assert.throws(
      () => startupPacket([row]),
      (error: Error) => error instanceof WireError && !error.message.includes("cret"),
    );
  }
});

const options: [text: string, settings: Record<string, string>][] = [
  ["", {}],
  ["   ", {}],
  ["-c a=b", { a: "b" }],
  ["-ca=b", { a: "b" }],
  ["--a=b", { a: "b" }],
  ["  -c  a=b\t--c=d \n", { a: "b", c: "d" }],
  ["-c a=", { a: "" }],
  ["-c a=b=c", { a: "b=c" }],
  ["-c statement-timeout=5", { statement_timeout: "5" }],
  ["--search-path=a-b,c", { search_path: "a-b,c" }],
  ["-c a=1 -c a=2", { a: "2" }],
  ["-c TimeZone=UTC", { TimeZone: "UTC" }],
  ["-c a=x\\ y\\\\z", { a: "x y\\z" }],
  ["-c a=b\\", { a: "b" }],
  ["-c geqo=off --work_mem=64MB", { geqo: "off", work_mem: "64MB" }],
  ["--my.setting=1", { "my.setting": "1" }],
];

for (const [text, settings] of options) {
  test(`parseOptions() reads ${JSON.stringify(text)}`, () => {
    assert.equal(parseOptions(text), {
      kind: "options",
      parameters: new Map(Object.entries(settings)),
    });
  });
}

for (
  const text of ["-c", "-c a", "--a", "--", "-", "a=b", "-d 3", "-e", "-c =b", "--=b", "-c a=b x"]
) {
  test(`parseOptions() refuses ${JSON.stringify(text)}`, () => {
    assert.equal(parseOptions(text), {
      kind: "problem",
      sqlstate: "22023",
      message: "unsupported options startup parameter: " +
        "only '-c config=val' and '--config=val' are allowed",
    });
  });
}

test.run();
