// 200,000 random and mutated inputs for every parser, the reader and both SCRAM sides. Looked for: a
// throw other than WireError, an endless loop (the runner's time limit), a verdict that depends on how
// the stream was cut, a name that is not the bytes that were sent, a forged login.
// Replay a failure with PGWEIR_FUZZ_SEED=<the printed seed>.

import process from "node:process";
import { assert, seededRandom, suite } from "../support/harness.ts";
import * as wire from "../../shared/wire/mod.ts";
import { ascii, backendSamples, frontendSamples, hex, initialSamples } from "./samples.ts";

const test = suite("wire/fuzz");

const seed = Number(process.env.PGWEIR_FUZZ_SEED ?? (Date.now() % 2 ** 32));
const random = seededRandom(seed);
const below = (n: number) => Math.floor(random() * n);
const pick = <T>(items: readonly T[]): T => items[below(items.length)]!;

const awkward = [
  0,
  1,
  3,
  4,
  5,
  0x7fffffff,
  -0x80000000,
  -1,
  -2,
  -16,
  0x3fffffff,
  0x40000000,
  65_536,
];

function randomBytes(most: number): Uint8Array {
  const bytes = new Uint8Array(below(most));
  for (let i = 0; i < bytes.length; i++) bytes[i] = below(256);
  return bytes;
}

/** One to four changes: a bit, a byte, a cut, an insertion, a repeated part, an awkward integer. */
function mutate(source: Uint8Array): Uint8Array {
  let bytes: Uint8Array = source.slice();
  for (let changes = 1 + below(4); changes > 0; changes--) {
    const at = below(bytes.length + 1);
    switch (below(6)) {
      case 0:
        if (at < bytes.length) bytes[at]! ^= 1 << below(8);
        break;
      case 1:
        if (at < bytes.length) bytes[at] = pick([0, 0xff, 0x2c, 0x3d, below(256)]);
        break;
      case 2:
        bytes = bytes.slice(0, at);
        break;
      case 3:
        bytes = wire.concatBytes(bytes.subarray(0, at), randomBytes(8), bytes.subarray(at));
        break;
      case 4:
        bytes = wire.concatBytes(bytes, bytes.subarray(at));
        break;
      case 5:
        if (at + 4 <= bytes.length) wire.writeInt32(bytes, at, pick(awkward));
        break;
    }
  }
  return bytes;
}

function input(samples: readonly Uint8Array[]): Uint8Array {
  return below(8) === 0 ? randomBytes(64) : mutate(pick(samples));
}

/** Runs `one` `count` times; a failure names seed, round and the last input. */
function fuzz(name: string, count: number, one: (note: (bytes: Uint8Array) => void) => void): void {
  test(name, () => {
    for (let round = 0; round < count; round++) {
      let last: Uint8Array = new Uint8Array(0);
      try {
        one((bytes) => last = bytes);
      } catch (error) {
        throw new Error(`fuzz: seed ${seed}, round ${round}, input ${hex(last)}`, { cause: error });
      }
    }
  });
}

const bodies = [...backendSamples, ...frontendSamples].map((bytes) => bytes.slice(5));
const encoder = new TextEncoder();
const encode = (text: string) => hex(encoder.encode(text));

fuzz("parsers of bodies take anything", 90_000, (note) => {
  const body = input(bodies);
  note(body);
  const before = hex(body);
  const fields = wire.parseErrorFields(body);
  assert.match(fields.code, /^[0-9A-Z]{5}$/);
  const status = wire.parseParameterStatus(body);
  if (status) assert.is(encode(`${status.name}\0${status.value}\0`), before);
  const authentication = wire.parseAuthentication(body);
  if (authentication.kind === "md5") assert.is(authentication.salt.length, 4);
  const backendKey = wire.parseBackendKeyData(body);
  if (backendKey) {
    assert.is(hex(wire.backendKeyData(backendKey.processId, backendKey.secret).slice(5)), before);
  }
  wire.parseNegotiateProtocolVersion(body);
  wire.parseCommandTag(body);
  wire.parseRowDescription(body);
  wire.parseDataRow(body);
  const password = wire.parsePassword(body);
  if (password.kind === "password") {
    assert.is(hex(wire.passwordMessage(password.password).slice(5)), before);
  }
  const sasl = wire.parseSaslInitialResponse(body);
  if (sasl.kind === "saslInitial" && sasl.data) assert.ok(sasl.data.length < body.length);
  assert.is(hex(body), before, "the input is not changed");
});

fuzz("parseInitialPacket() takes anything and keeps every byte of a name", 40_000, (note) => {
  const bytes = input(initialSamples);
  if (bytes.length >= 4 && below(4) > 0) wire.writeInt32(bytes, 0, bytes.length);
  note(bytes);
  const offset = below(3);
  const padded = wire.concatBytes(new Uint8Array(offset), bytes, new Uint8Array(below(3)));
  const parsed = wire.parseInitialPacket(padded, offset, bytes.length);
  if (parsed.kind !== "startup") return;
  assert.is(parsed.major, 3);
  assert.is.not(parsed.user, "");
  assert.is.not(parsed.database, "");
  const whole = hex(bytes);
  for (const [name, value] of parsed.parameters) {
    assert.ok(whole.includes(encode(`${name}\0${value}\0`)), "the pair is in the packet, as sent");
  }
});

const optionTexts = ["-c a=b --c=d", "-c search_path=a\\ b,c\\\\", "--x-y=1 -cz=", "  -c\t"].map(
  ascii,
);

fuzz("parseOptions() and saslprep() take any text", 20_000, (note) => {
  const bytes = input(optionTexts);
  note(bytes);
  const text = String.fromCharCode(...bytes, below(0x10000));
  const options = wire.parseOptions(text);
  if (options.kind === "options") {
    for (const name of options.parameters.keys()) assert.match(name, /^[^=-]+$/);
  }
  wire.saslprep(text);
  wire.preparePassword(bytes);
  wire.parseScramSecret(text);
});

/** All messages of a stream and the text of the error that ended it, however it is cut. */
function readStream(side: "backend" | "frontend", chunks: Uint8Array[]): string[] {
  const reader = new wire.MessageReader({ side, maxLength: 1000 });
  const events: string[] = [];
  try {
    for (const chunk of chunks) {
      reader.push(chunk);
      for (let next = reader.next(); next; next = reader.next()) {
        events.push(`${next.type}:${hex(next.body)}`);
      }
    }
  } catch (error) {
    if (!(error instanceof wire.WireError)) throw error;
    events.push(error.message);
  }
  return events;
}

for (
  const [side, samples] of [["backend", backendSamples], ["frontend", frontendSamples]] as const
) {
  fuzz(`MessageReader gives the same for a ${side} stream however it is cut`, 15_000, (note) => {
    const stream = wire.concatBytes(pick(samples), input(samples), pick(samples));
    note(stream);
    const whole = readStream(side, [stream]);
    const chunks: Uint8Array[] = [];
    for (let at = 0; at < stream.length;) {
      const size = 1 + below(below(4) === 0 ? 40 : 6);
      chunks.push(stream.subarray(at, at + size));
      at += size;
    }
    assert.equal(readStream(side, chunks), whole);
  });
}

const salt = ascii("0123456789abcdef");
const salted = await wire.saltedPassword("pencil", salt, 2);
const secret = wire.deriveScramSecret(salted, salt, 2);

fuzz("SCRAM: a changed message never logs in, and nothing throws", 20_000, (note) => {
  const server = new wire.ScramServerExchange(secret, { nonce: "server" });
  const client = new wire.ScramClientExchange({ nonce: "client" });
  const target = below(4);
  let changed = false;
  const pass = (step: number, bytes: Uint8Array): Uint8Array => {
    if (step !== target) return bytes;
    const other = input([bytes]);
    changed = hex(other) !== hex(bytes);
    note(other);
    return other;
  };
  const first = server.first(pass(0, client.first()));
  if (!first.ok) return assert.ok(changed);
  const challenge = client.continue(pass(1, first.reply));
  if (challenge.kind === "problem") return assert.ok(changed);
  // The salted password is that of the true salt: the server's own check decides.
  const final = server.final(pass(2, client.proof(salted)));
  assert.is(final.ok, !(changed && target < 3), "a login with a changed message");
  if (!final.ok) return;
  const reply = pass(3, final.reply);
  // Attributes behind the signature are allowed, so a reply that only grew some is still good.
  const grown = /^,[A-Za-z]=/.test(String.fromCharCode(...reply.subarray(final.reply.length)));
  const sameStart = hex(reply).startsWith(hex(final.reply));
  assert.is(client.verifyFinal(reply), !changed || (sameStart && grown && !reply.includes(0)));
});

test.run();
