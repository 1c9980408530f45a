// The broker's parser: every split of the input gives the same commands, and every malformed line
// ends the parsing with the error a NATS server gives.

import { Buffer } from "node:buffer";
import {
  CommandParser,
  type CommandSink,
  maxControlLineBytes,
  type ParseError,
} from "../../shared/bus/command_parser.ts";
import { assert, seededRandom, suite } from "../support/harness.ts";

const maxPayloadBytes = 1000;

function recorder(refused: readonly string[] = []): { sink: CommandSink; log: string[] } {
  const log: string[] = [];
  let open = true;
  const sink: CommandSink = {
    get open() {
      return open;
    },
    allows(operation) {
      if (!refused.includes(operation)) return true;
      log.push(`refused ${operation}`);
      open = false;
      return false;
    },
    onConnect: (json) => log.push(`connect ${json.trim()}`),
    onPing: () => log.push("ping"),
    onPong: () => log.push("pong"),
    onPublish: (subject, reply, headerBytes, data) =>
      log.push(`pub ${subject} ${reply || "-"} ${headerBytes} ${JSON.stringify(textOf(data))}`),
    onSubscribe: (subject, queue, sid) => log.push(`sub ${subject} ${queue || "-"} ${sid}`),
    onUnsubscribe: (sid, max) => log.push(`unsub ${sid} ${max}`),
  };
  return { sink, log };
}

function textOf(data: Uint8Array): string {
  return Buffer.from(data).toString("latin1");
}

/** Feeds the pieces and returns the commands, with the error last. */
function parse(pieces: readonly Buffer[]): string[] {
  const { sink, log } = recorder();
  const parser = new CommandParser(sink, maxPayloadBytes);
  let error: ParseError | null = null;
  for (const piece of pieces) error = parser.feed(piece);
  return error === null ? log : [...log, `error ${error}`];
}

function parseText(text: string): string[] {
  return parse([Buffer.from(text, "latin1")]);
}

const script =
  'CONNECT {"auth_token":"t","name":"caf\u00c3\u00a9"}\r\nPING\r\nPONG\r\nSUB a.* 1\r\n' +
  "SUB a.> grp 2\r\nPUB a.b 0\r\n\r\nPUB a.b in.box 5\r\na\r\nb\u0000\r\n" +
  "HPUB a.b 12 14\r\nNATS/1.0\r\n\r\nhi\r\nHPUB a.b r 12 12\r\nNATS/1.0\r\n\r\n\r\n" +
  "UNSUB 1\r\nUNSUB 2 7\r\nping\r\npub\ta \t 1 \r\nx\r\n";

const expected = [
  'connect {"auth_token":"t","name":"caf\u00e9"}',
  "ping",
  "pong",
  "sub a.* - 1",
  "sub a.> grp 2",
  'pub a.b - 0 ""',
  'pub a.b in.box 0 "a\\r\\nb\\u0000"',
  'pub a.b - 12 "NATS/1.0\\r\\n\\r\\nhi"',
  'pub a.b r 12 "NATS/1.0\\r\\n\\r\\n"',
  "unsub 1 0",
  "unsub 2 7",
  "ping",
  'pub a - 0 "x"',
];

const parser = suite("CommandParser");

parser("feed() gives the same commands whole, byte by byte and split at every point", () => {
  const bytes = Buffer.from(script, "latin1");
  assert.equal(parse([bytes]), expected);
  assert.equal(parse(Array.from(bytes, (byte) => Buffer.from([byte]))), expected);
  for (let cut = 0; cut <= bytes.length; cut += 1) {
    assert.equal(parse([bytes.subarray(0, cut), bytes.subarray(cut)]), expected, `cut at ${cut}`);
  }
});

parser("feed() refuses malformed lines and everything after them", () => {
  const rows: [string, ParseError][] = [
    ["\r\n", "Unknown Protocol Operation"],
    [" PING\r\n", "Unknown Protocol Operation"],
    ["PING x\r\n", "Unknown Protocol Operation"],
    ["PINGPONG\r\n", "Unknown Protocol Operation"],
    ["PING\n", "Unknown Protocol Operation"],
    ["PI\rNG\r\n", "Unknown Protocol Operation"],
    ["PI\u0000NG\r\n", "Unknown Protocol Operation"],
    ["INFO {}\r\n", "Unknown Protocol Operation"],
    ["MSG a 1 1\r\n", "Unknown Protocol Operation"],
    ["+OK\r\n", "Unknown Protocol Operation"],
    ["PUB\r\n", "Parser Error"],
    ["PUB a\r\n", "Parser Error"],
    ["PUB a b c 1\r\n", "Parser Error"],
    ["PUB a -1\r\n", "Parser Error"],
    ["PUB a +1\r\n", "Parser Error"],
    ["PUB a 1e2\r\n", "Parser Error"],
    ["PUB a 0x10\r\n", "Parser Error"],
    ["PUB a 99999999999999999999\r\n", "Parser Error"],
    ["PUB a 1001\r\n", "Maximum Payload Violation"],
    ["HPUB a 1\r\n", "Parser Error"],
    ["HPUB a 5 4\r\n", "Parser Error"],
    ["HPUB a x 4\r\n", "Parser Error"],
    ["HPUB a 1 1001\r\n", "Maximum Payload Violation"],
    ["HPUB a b c 1 1\r\n", "Parser Error"],
    ["PUB a 2\r\nhiPING\r\n", "Parser Error"],
    ["PUB a 2\r\nhi\n\r", "Parser Error"],
    ["PUB a 1\r\nhi\r\n", "Parser Error"],
    ["SUB\r\n", "Parser Error"],
    ["SUB a\r\n", "Parser Error"],
    ["SUB a b c d\r\n", "Parser Error"],
    ["UNSUB\r\n", "Parser Error"],
    ["UNSUB 1 x\r\n", "Parser Error"],
    ["UNSUB 1 2 3\r\n", "Parser Error"],
    ["x".repeat(maxControlLineBytes + 2), "Maximum Control Line Exceeded"],
    [`SUB ${"x".repeat(maxControlLineBytes)} 1\r\n`, "Maximum Control Line Exceeded"],
  ];
  for (const [text, error] of rows) {
    assert.equal(
      parseText(`PING\r\n${text}PING\r\n`),
      ["ping", `error ${error}`],
      text.slice(0, 40),
    );
    const bytes = Array.from(Buffer.from(`PING\r\n${text}PING\r\n`, "latin1"));
    assert.equal(
      parse(bytes.map((byte) => Buffer.from([byte]))),
      ["ping", `error ${error}`],
      `by bytes: ${text.slice(0, 40)}`,
    );
  }
});

parser("feed() takes a control line and a payload of exactly their bounds", () => {
  const subject = "x".repeat(maxControlLineBytes - "SUB  1".length);
  assert.equal(parseText(`SUB ${subject} 1\r\n`), [`sub ${subject} - 1`]);
  const payload = "p".repeat(maxPayloadBytes);
  assert.equal(parseText(`PUB a ${maxPayloadBytes}\r\n${payload}\r\n`), [`pub a - 0 "${payload}"`]);
});

parser("feed() stops in the middle of a chunk when the sink closes, before any payload", () => {
  const { sink, log } = recorder(["PUB"]);
  const one = new CommandParser(sink, maxPayloadBytes);
  assert.is(one.feed(Buffer.from("PING\r\nPUB a 900\r\nPING\r\nPING\r\n")), null);
  assert.is(one.feed(Buffer.from("PING\r\n")), null);
  assert.equal(log, ["ping", "refused PUB"]);
});

parser("feed() of random input gives the same whichever way it is split, and never throws", () => {
  const seed = Date.now() >>> 0;
  const random = seededRandom(seed);
  const words = [
    "PUB ",
    "HPUB ",
    "SUB ",
    "UNSUB ",
    "PING",
    "CONNECT {}",
    "\r\n",
    "a.b ",
    "3",
    "0",
    " ",
    "\r",
    "\n",
    "xyz",
  ];
  for (let round = 0; round < 3000; round += 1) {
    const text = Array.from(
      { length: Math.floor(random() * 25) },
      () => words[Math.floor(random() * words.length)] ?? "",
    ).join("");
    const bytes = Buffer.from(text, "latin1");
    const pieces: Buffer[] = [];
    for (let at = 0; at < bytes.length;) {
      const end = at + 1 + Math.floor(random() * 6);
      pieces.push(bytes.subarray(at, end));
      at = end;
    }
    assert.equal(parse(pieces), parse([bytes]), `seed ${seed}: ${JSON.stringify(text)}`);
  }
});

parser.run();
