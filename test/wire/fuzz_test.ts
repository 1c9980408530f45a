// Random and mutated input for every parser, the reader and both SCRAM sides. Looked for: a throw other than
// WireError, an endless loop, a verdict that depends on how the stream was cut, a name that is not the bytes that were
// sent, a forged login. How many inputs and which: test/support/fuzz.ts.
// limit: 900 s

import { assert, suite } from "../support/harness.ts";
import { fuzz } from "../support/fuzz.ts";
import * as wire from "../../shared/wire/mod.ts";
import { ascii, backendSamples, frontendSamples, hex, initialSamples } from "./samples.ts";

const test = suite("wire/fuzz");

const bodies = [...backendSamples, ...frontendSamples].map((bytes) => bytes.slice(5));
const encoder = new TextEncoder();
const encode = (text: string) => hex(encoder.encode(text));

fuzz(test, "parsers of bodies take anything", 110_000, (dice, note) => {
  const body = dice.input(bodies);
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

fuzz(test, "parseInitialPacket() keeps every byte of a name", 80_000, (dice, note) => {
  const bytes = dice.input(initialSamples);
  if (bytes.length >= 4 && dice.below(4) > 0) wire.writeInt32(bytes, 0, bytes.length);
  note(bytes);
  const offset = dice.below(3);
  const padded = wire.concatBytes(new Uint8Array(offset), bytes, new Uint8Array(dice.below(3)));
  const parsed = wire.parseInitialPacket(padded, offset, bytes.length);
  if (parsed.kind !== "startup") return;
  assert.is(parsed.major, 3);
  assert.is.not(parsed.user, "");
  assert.is.not(parsed.database, "");
  const whole = hex(bytes);
  for (const [name, value] of parsed.parameters) {
    assert.ok(whole.includes(encode(`${name}\0${value}\0`)), "the pair is in the packet, as sent");
  }
  const again = wire.startupPacket([...parsed.parameters], parsed.minor);
  // Options of the protocol are not among the parameters.
  const reparsed = wire.parseInitialPacket(again, 0, again.length);
  assert.equal(reparsed, { ...parsed, protocolOptions: [] });
});

const optionTexts = ["-c a=b --c=d", "-c search_path=a\\ b,c\\\\", "--x-y=1 -cz=", "  -c\t"].map(
  ascii,
);

fuzz(test, "parseOptions() and saslprep() take any text", 40_000, (dice, note) => {
  const bytes = dice.input(optionTexts);
  note(bytes);
  const text = String.fromCharCode(...bytes, dice.below(0x10000));
  const options = wire.parseOptions(text);
  if (options.kind === "options") {
    for (const name of options.parameters.keys()) assert.match(name, /^[^=-]+$/);
    const printed = [...options.parameters].map(([name, value]) =>
      `-c ${`${name}=${value}`.replace(/[^]/g, "\\$&")}`
    );
    assert.equal(wire.parseOptions(printed.join(" ")), options);
  }
  wire.saslprep(text);
  wire.preparePassword(bytes);
});

const salt = ascii("0123456789abcdef");
const salted = await wire.saltedPassword("pencil", salt, 2);
const secret = wire.deriveScramSecret(salted, salt, 2);
const storedSecret = ascii(wire.formatScramSecret(secret));

fuzz(
  test,
  "parseScramSecret() reads what formatScramSecret() writes, and nothing like it",
  40_000,
  (dice, note) => {
    const text = wire.latin1Text(dice.input([storedSecret]));
    note(text);
    const parsed = wire.parseScramSecret(text);
    if (parsed === null) return;
    assert.ok(parsed.iterations >= 1 && parsed.iterations <= wire.maxScramIterations);
    assert.equal(wire.parseScramSecret(wire.formatScramSecret(parsed)), parsed);
  },
);

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
  fuzz(test, `MessageReader reads a ${side} stream however it is cut`, 20_000, (dice, note) => {
    const stream = wire.concatBytes(dice.pick(samples), dice.input(samples), dice.pick(samples));
    note(stream);
    const whole = readStream(side, [stream]);
    const chunks: Uint8Array[] = [];
    for (let at = 0; at < stream.length;) {
      const size = 1 + dice.below(dice.below(4) === 0 ? 40 : 6);
      chunks.push(stream.subarray(at, at + size));
      at += size;
    }
    assert.equal(readStream(side, chunks), whole);
  });
}

fuzz(test, "SCRAM: a changed message never logs in, and nothing throws", 90_000, (dice, note) => {
  const server = new wire.ScramServerExchange(secret, { nonce: "server" });
  const client = new wire.ScramClientExchange({ nonce: "client" });
  const target = dice.below(4);
  let changed = false;
  const pass = (step: number, bytes: Uint8Array): Uint8Array => {
    if (step !== target) return bytes;
    const other = dice.input([bytes]);
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
