// Log lines as operators read them: the shape of both formats, what is escaped, cut and redacted.

import { Buffer } from "node:buffer";
import process from "node:process";
import { assert, seededRandom, suite } from "../support/harness.ts";
import {
  createLogger,
  type Fields,
  isLogLevel,
  type LogFormat,
  type Logger,
  type LogLevel,
} from "../../shared/telemetry/mod.ts";

const time = Date.UTC(2026, 10, 29, 12, 0, 0, 123);
const head = `2026-11-29 12:00:00.123 UTC [${process.pid}]`;

function recorder(format: LogFormat, level: LogLevel = "debug"): { log: Logger; lines: string[] } {
  const lines: string[] = [];
  const log = createLogger({
    component: "pooler",
    level,
    format,
    write: (line) => lines.push(line),
    clock: () => time,
  });
  return { log, lines };
}

function textOf(message: string, fields?: Fields): string {
  const { log, lines } = recorder("text");
  log.info(message, fields);
  assert.is(lines.length, 1);
  return lines[0] ?? "";
}

function jsonOf(message: string, fields?: Fields): Record<string, unknown> {
  const { log, lines } = recorder("json");
  log.info(message, fields);
  assert.is(lines.length, 1);
  return JSON.parse(lines[0] ?? "");
}

const text = suite("text lines");

text("setFormat() is for the logger and its relatives, from the next line on", () => {
  const { log, lines } = recorder("text");
  const child = log.child({ a: 1 });
  child.info("b");
  log.setFormat("json");
  child.info("c");
  assert.is(lines[0], `${head} LOG b a=1\n`);
  assert.is(JSON.parse(lines[1]!).message, "c");
});

text("log() writes PgBouncer's shape and level names", () => {
  const { log, lines } = recorder("text");
  log.debug("a");
  log.info("b");
  log.warning("c");
  log.error("d");
  log.fatal("e");
  assert.equal(lines, [
    `${head} DEBUG a\n`,
    `${head} LOG b\n`,
    `${head} WARNING c\n`,
    `${head} ERROR d\n`,
    `${head} FATAL e\n`,
  ]);
});

text("log() appends fields as name=value", () => {
  const rows: [Fields, string][] = [
    [{ port: 6432 }, "port=6432"],
    [{ host: "db-1.example:5432" }, "host=db-1.example:5432"],
    [{ user: "two words" }, 'user="two words"'],
    [{ user: "" }, 'user=""'],
    [{ user: 'a"b\\c' }, 'user="a\\"b\\\\c"'],
    [{ user: "x=y" }, 'user="x=y"'],
    [{ ok: true, none: null, gone: undefined }, "ok=true none=null"],
    [{ big: 12345678901234567890n, odd: NaN }, "big=12345678901234567890 odd=NaN"],
    [{ list: [1, "b"] }, 'list=[1,"b"]'],
    [{ bytes: new Uint8Array(16) }, 'bytes="[16 bytes]"'],
    [{ when: new Date(time) }, "when=2026-11-29T12:00:00.123Z"],
    [{ f: () => 1 }, "f=function"],
    [{ "a b\nc": 1 }, "a_b_c=1"],
    [{ error: new Error("no route") }, 'error="no route"'],
    [
      {
        error: new Error("connect", {
          cause: Object.assign(new Error("refused"), { code: "ECONNREFUSED" }),
        }),
      },
      'error="connect: refused (ECONNREFUSED)"',
    ],
  ];
  for (const [fields, expected] of rows) {
    assert.is(textOf("m", fields), `${head} LOG m ${expected}\n`);
  }
});

text("log() escapes what could forge a line, move a cursor or reorder text", () => {
  const rows: [string, string][] = [
    ["a\nb", "a\\nb"],
    ["a\r\nb\tc", "a\\r\\nb\\tc"],
    ["\u001b[2Jx", "\\u001b[2Jx"],
    ["\u009b2J", "\\u009b2J"],
    ["nul\u0000", "nul\\u0000"],
    ["x\u2028y\u2029z", "x\\u2028y\\u2029z"],
    ["\u202egnp", "\\u202egnp"],
    ["\ud83d\ude00 ok", "\ud83d\ude00 ok"],
    ["half \ud83d", "half \\ud83d"],
    ["half \ude00", "half \\ude00"],
    ["café", "café"],
  ];
  for (const [raw, expected] of rows) {
    assert.is(textOf(raw), `${head} LOG ${expected}\n`);
    const quoted = /^[A-Za-z0-9]+$/.test(raw) ? expected : `"${expected}"`;
    assert.is(textOf("m", { user: raw }), `${head} LOG m user=${quoted}\n`);
    const nested = textOf("m", { nested: { user: raw } }).slice(0, -1);
    for (const bad of ["\n", "\r", "\u001b", "\u202e"]) assert.is(nested.includes(bad), false);
  }
});

text("log() keeps a line in 4096 bytes and cuts it at a character", () => {
  for (const filler of ["x", "é", "\u20ac", "\ud83d\ude00", "\n"]) {
    const line = textOf(filler.repeat(5000), { a: filler.repeat(5000), b: filler.repeat(5000) });
    assert.ok(Buffer.byteLength(line) <= 4096, `${Buffer.byteLength(line)} bytes`);
    assert.ok(line.endsWith(" [truncated]\n"));
    assert.not.match(line, /\ufffd/);
    assert.is(line.indexOf("\n"), line.length - 1);
  }
});

text("log() survives values that throw, recurse or never end", () => {
  const circular: Record<string, unknown> = {};
  circular.self = circular;
  assert.match(textOf("m", { circular }), /circular=\{/);
  const hostile = {
    get message(): string {
      throw new Error("no");
    },
  };
  Object.setPrototypeOf(hostile, Error.prototype);
  assert.match(textOf("m", { hostile, after: 1 }), /hostile="\[unprintable\]" after=1\n$/);
  assert.ok(textOf("m", { wide: Array.from({ length: 10_000 }, (_, i) => i) }).length < 4096);
});

text("log() under the level is not written, and setLevel() reaches every relative", () => {
  const { log, lines } = recorder("text", "warning");
  const child = log.child({ client: 7 });
  child.info("no");
  assert.is(child.enabled("info"), false);
  assert.is(child.enabled("error"), true);
  child.setLevel("debug");
  log.debug("yes");
  child.debug("yes");
  assert.equal(lines, [`${head} DEBUG yes\n`, `${head} DEBUG yes client=7\n`]);
});

text("child() adds fields; those of the call win", () => {
  const { log, lines } = recorder("text");
  log.child({ client: 1, db: "a" }).child({ db: "b" }).info("m", { client: 2 });
  assert.equal(lines, [`${head} LOG m client=2 db=b\n`]);
});

text("isLogLevel() knows the levels", () => {
  assert.is(isLogLevel("warning"), true);
  for (const other of ["warn", "LOG", "", 1, null]) assert.is(isLogLevel(other), false);
});

text.run();

const json = suite("JSON lines");

json("log() writes one object with the fields beside the fixed names", () => {
  assert.equal(jsonOf("m\n", { user: "x\ny", n: 1, level: "sham", nested: { a: [true] } }), {
    time: "2026-11-29T12:00:00.123Z",
    pid: process.pid,
    level: "info",
    component: "pooler",
    message: "m\n",
    user: "x\ny",
    n: 1,
    level_: "sham",
    nested: { a: [true] },
  });
});

json("log() stays parseable and within 4096 bytes however large the fields are", () => {
  for (const filler of ["x", "\u20ac", "\u0001", '"']) {
    const { log, lines } = recorder("json");
    log.error(filler.repeat(9000), { a: filler.repeat(9000), b: 1, c: filler.repeat(9000) });
    const line = lines[0] ?? "";
    assert.ok(Buffer.byteLength(line) <= 4096, `${Buffer.byteLength(line)} bytes`);
    const entry = JSON.parse(line);
    assert.is(entry.truncated, true);
    assert.is(entry.level, "error");
    assert.ok(entry.message.startsWith(filler.repeat(100)));
  }
});

json("log() of random text gives one parseable line", () => {
  const seed = Date.now() >>> 0;
  const random = seededRandom(seed);
  const word = (): string =>
    Array.from(
      { length: Math.floor(random() * 40) },
      () => String.fromCharCode(Math.floor(random() * (random() < 0.5 ? 0x100 : 0x10000))),
    ).join("");
  for (let i = 0; i < 500; i += 1) {
    const { log, lines } = recorder("json");
    log.info(word(), { [word()]: word(), nested: { [word()]: [word()] } });
    const line = lines[0] ?? "";
    assert.is(line.indexOf("\n"), line.length - 1, `seed ${seed}`);
    assert.type(JSON.parse(line), "object", `seed ${seed}`);
  }
});

json.run();

const secrets = suite("redaction");

secrets("log() never prints the value of a secret's name", () => {
  const names = [
    "password",
    "PASSWORD",
    "userPassword",
    "pg_password_hash",
    "secret",
    "clientSecret",
    "token",
    "busToken",
    "bus-token",
    "access_tokens",
    "key",
    "cancelKey",
    "keyBytes",
    "apikey",
    "TLS_KEY",
    "credentials",
    "pass",
    "pgpass_pwd",
  ];
  for (const name of names) {
    for (const value of ["hunter2", { deep: "hunter2" }, ["hunter2"], new Error("hunter2")]) {
      assert.not.match(textOf("m", { [name]: value }), /hunter2/, name);
      assert.not.match(textOf("m", { nested: [{ [name]: value }] }), /hunter2/, name);
      assert.not.match(JSON.stringify(jsonOf("m", { [name]: value })), /hunter2/, name);
    }
  }
  assert.is(textOf("m", { token: "hunter2" }), `${head} LOG m token=[redacted]\n`);
});

secrets("log() prints names that only resemble a secret's", () => {
  for (const name of ["keyboard", "user", "auth_type", "passed", "compass_heading", "database"]) {
    assert.match(textOf("m", { [name]: "plain" }), / [a-z_]+=plain\n$/, name);
  }
});

secrets("log() takes the user information out of URLs, in messages, fields and errors", () => {
  const url = "nats://worker:hunter2@10.0.0.1:4222";
  const safe = "nats://[redacted]@10.0.0.1:4222";
  assert.is(textOf(`bus ${url} lost`), `${head} LOG bus ${safe} lost\n`);
  assert.is(textOf("m", { url }), `${head} LOG m url="${safe}"\n`);
  assert.is(textOf("m", { error: new Error(url) }), `${head} LOG m error="${safe}"\n`);
  assert.is(jsonOf(url, { list: [url] }).message, safe);
  assert.equal(jsonOf(url, { list: [url] }).list, [safe]);
  assert.is(
    textOf("see https://example.com/a?b=c@d"),
    `${head} LOG see https://example.com/a?b=c@d\n`,
  );
});

secrets("log() prints the length of bytes, not the bytes", () => {
  assert.match(textOf("m", { payload: Buffer.from("hunter2") }), /payload="\[7 bytes\]"/);
});

secrets.run();
