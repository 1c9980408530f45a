// MessageReader: messages come out the same however the stream was cut, and a bad frame ends it.

import { Buffer } from "node:buffer";
import { assert, suite } from "../support/harness.ts";
import {
  concatBytes,
  type Message,
  message,
  MessageReader,
  type MessageReaderOptions,
  queryMessage,
  readyForQuery,
  sslRequest,
  startupPacket,
  WireError,
} from "../../shared/wire/mod.ts";
import { ascii, backendSamples, frontendSamples } from "./samples.ts";

const test = suite("wire/message_reader");

function readAll(chunks: Uint8Array[], options?: MessageReaderOptions): Message[] {
  const reader = new MessageReader(options);
  const messages: Message[] = [];
  for (const chunk of chunks) {
    reader.push(chunk);
    for (let next = reader.next(); next; next = reader.next()) messages.push(next);
  }
  assert.is(reader.buffered, 0);
  return messages;
}

function expected(samples: readonly Uint8Array[]): Message[] {
  return samples.map((bytes) => ({ type: bytes[0]!, body: bytes.slice(5) }));
}

for (
  const [side, samples] of [["backend", backendSamples], ["frontend", frontendSamples]] as const
) {
  const stream = concatBytes(...samples);

  test(`next() gives ${side} messages when they come whole`, () => {
    assert.equal(readAll([stream], { side }), expected(samples));
  });

  test(`next() gives ${side} messages when they come byte by byte`, () => {
    const chunks = Array.from(stream, (byte) => Uint8Array.of(byte));
    assert.equal(readAll(chunks, { side }), expected(samples));
  });

  test(`next() gives ${side} messages when the stream is cut at any point`, () => {
    for (let at = 0; at <= stream.length; at++) {
      const chunks = [stream.subarray(0, at), stream.subarray(at)];
      assert.equal(readAll(chunks, { side }), expected(samples), `cut at ${at}`);
    }
  });
}

test("next() gives bodies that outlive the pushed buffer, also a Buffer", () => {
  const reader = new MessageReader();
  const chunk = Buffer.from(concatBytes(readyForQuery("I"), readyForQuery("T")));
  reader.push(chunk);
  const first = reader.next();
  chunk.fill(0xff);
  const second = reader.next();
  reader.push(new Uint8Array(4096).fill(0xee).subarray(0, 4));
  assert.equal(first, { type: 0x5a, body: ascii("I") });
  assert.equal(second, { type: 0x5a, body: ascii("T") });
});

const bad: [what: string, bytes: Uint8Array, options?: MessageReaderOptions][] = [
  ["negative length", Uint8Array.of(0x44, 0xff, 0xff, 0xff, 0xff)],
  ["length below itself", Uint8Array.of(0x44, 0, 0, 0, 3)],
  ["unknown type", Uint8Array.of(0, 0, 0, 0, 4)],
  ["a frontend type", queryMessage("SELECT 1")],
  ["a backend type", readyForQuery("I"), { side: "frontend" }],
  ["ReadyForQuery of 6", Uint8Array.of(0x5a, 0, 0, 0, 6, 0x49, 0)],
  ["1 GiB", Uint8Array.of(0x44, 0x40, 0, 0, 0)],
  ["more than maxLength", message(0x44, new Uint8Array(97)), { maxLength: 100 }],
];

for (const [what, bytes, options] of bad) {
  test(`next() throws for ${what} and refuses all input afterwards`, () => {
    const reader = new MessageReader(options);
    reader.push(bytes);
    let first: unknown;
    assert.throws(() => reader.next(), (error: unknown) => {
      first = error;
      return error instanceof WireError && error.sqlstate === "08P01";
    });
    const same = (error: unknown) => error === first;
    assert.throws(() => reader.next(), same);
    assert.throws(() => reader.push(readyForQuery("I")), same);
    assert.throws(() => reader.nextByte(), same);
    assert.throws(() => reader.nextInitialPacket(), same);
    assert.is(reader.buffered, 0);
  });
}

test("next() takes a message of exactly maxLength", () => {
  const bytes = message(0x44, new Uint8Array(96));
  assert.is(readAll([bytes], { maxLength: 100 })[0]!.body.length, 96);
});

test("next() gives the messages before a bad frame first", () => {
  const reader = new MessageReader();
  reader.push(concatBytes(readyForQuery("I"), Uint8Array.of(0x5a, 0, 0, 0, 4)));
  assert.is(reader.next()?.type, 0x5a);
  assert.throws(() => reader.next(), (error: unknown) => error instanceof WireError);
});

test("next() waits for a large message without holding its claimed length", () => {
  const reader = new MessageReader({ maxLength: 0x3fffffff });
  reader.push(Uint8Array.of(0x44, 0x3f, 0xff, 0xff, 0xff, 0, 1));
  assert.is(reader.next(), null);
  assert.is(reader.buffered, 7);
});

test("nextInitialPacket() and nextByte() read what has no type byte, cut at any point", () => {
  const startup = startupPacket({ user: "u", database: "d" });
  const stream = concatBytes(sslRequest(), startup, queryMessage("SELECT 1"));
  for (let at = 0; at <= stream.length; at++) {
    const reader = new MessageReader({ side: "frontend" });
    const packets: Uint8Array[] = [];
    const messages: Message[] = [];
    for (const chunk of [stream.subarray(0, at), stream.subarray(at)]) {
      reader.push(chunk);
      while (packets.length < 2) {
        const packet = reader.nextInitialPacket();
        if (!packet) break;
        packets.push(packet);
      }
      if (packets.length < 2) continue;
      for (let next = reader.next(); next; next = reader.next()) messages.push(next);
    }
    assert.equal(packets, [sslRequest(), startup]);
    assert.equal(messages, expected([queryMessage("SELECT 1")]));
  }
  const reader = new MessageReader();
  assert.is(reader.nextByte(), null);
  reader.push(concatBytes(ascii("N"), readyForQuery("I")));
  assert.is(reader.nextByte(), 0x4e);
  assert.is(reader.next()?.type, 0x5a);
});

test("nextInitialPacket() throws for a length out of bounds", () => {
  for (
    const bytes of [
      ascii("GET / HTTP/1.1\r\n"),
      Uint8Array.of(0, 0, 0, 7),
      ascii("\x16\x03\x01\x02"),
    ]
  ) {
    const reader = new MessageReader({ side: "frontend" });
    reader.push(bytes);
    assert.throws(() => reader.nextInitialPacket(), (error: unknown) => error instanceof WireError);
  }
});

test.run();
