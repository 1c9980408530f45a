// Answers of an LDAP server: what is one, when its end has not come, and what is none, whatever bytes come.

import { readAnswer, resultText } from "../../services/pooler/ldap_answers.ts";
import { assert, suite } from "../support/harness.ts";

const test = suite("LDAP answers");

const utf8 = new TextEncoder();
/** An element with a length in its short form, or its long one with so many bytes. */
function element(tag: number, body: readonly number[], digits = 0): number[] {
  const { length } = body;
  if (digits === 0) return [tag, length, ...body];
  const long = Array.from({ length: digits }, (_, i) => (length >> (8 * (digits - 1 - i))) & 0xff);
  return [tag, 0x80 + digits, ...long, ...body];
}
const text = (words: string) => element(0x04, [...utf8.encode(words)]);
const result = (
  code: number,
  words = "",
) => [...element(0x0a, [code]), ...text(""), ...text(words)];
const message = (id: number, tag: number, body: readonly number[], digits = 0) =>
  element(0x30, [...element(0x02, [id]), ...element(tag, body, digits)], digits);

const whole: readonly (readonly [string, number[], string])[] = [
  ["a bind that succeeds", message(1, 0x61, result(0)), '1 61 0 ""'],
  ["a bind that fails", message(2, 0x61, result(49, "data 52e")), '2 61 49 "data 52e"'],
  ["one with more in it", message(3, 0x61, [...result(0), ...element(0x87, [1, 2])]), '3 61 0 ""'],
  ["an entry", message(4, 0x64, [...text("uid=é"), ...element(0x30, [])]), '4 64 0 "uid=é"'],
  ["a reference", message(4, 0x73, text("ldap://h")), '4 73 0 ""'],
  ["the end of a search", message(4, 0x65, result(4), 2), '4 65 4 ""'],
  ["an extended answer", message(5, 0x78, result(0), 4), '5 78 0 ""'],
  ["a notice", message(0, 0x78, result(52)), '0 78 52 ""'],
];
for (const [what, bytes, expected] of whole) {
  test(`readAnswer() reads ${what}, and waits for all of it`, () => {
    const all = Uint8Array.from([...bytes, 0x30, 0x0c]);
    for (let length = 0; length < bytes.length; length++) {
      assert.is(readAnswer(all.subarray(0, length)), null, `${length} bytes`);
    }
    const answer = readAnswer(all);
    if (answer === null || answer === "broken") throw new Error(`it is ${answer}`);
    const { id, tag, code, text, length } = answer;
    assert.is(`${id} ${tag.toString(16)} ${code} ${JSON.stringify(text)}`, expected);
    assert.is(length, bytes.length);
  });
}

const none: readonly (readonly [string, number[]])[] = [
  ["no sequence", [0x31, 0x00]],
  ["a length without an end", [0x30, 0x80]],
  ["a length of five bytes", [0x30, 0x85]],
  ["nothing", element(0x30, [])],
  ["no id", element(0x30, element(0x61, result(0)))],
  ["an id alone", element(0x30, element(0x02, [1]))],
  ["a bind without a result", message(1, 0x61, [])],
  ["a bind with half a result", message(1, 0x61, element(0x0a, [0]))],
  ["a result that is no number", message(1, 0x61, text(""))],
  ["a body that goes on behind the message", element(0x30, [2, 1, 1, 0x61, 9, 0x0a, 1, 0])],
  ["an inner length behind the body", message(1, 0x61, [...element(0x0a, [0]), 4, 0, 4, 5])],
  ["an entry without a name", message(1, 0x64, element(0x30, []))],
];
for (const [what, bytes] of none) {
  test(`readAnswer() refuses ${what}`, () => {
    assert.is(readAnswer(Uint8Array.from(bytes)), "broken");
  });
}

test("a result code that is no number LDAP knows is no success", () => {
  for (const code of [[], [0x80], [0xff], [0, 0, 0, 0, 0]]) {
    const body = [...element(0x0a, code), ...text(""), ...text("")];
    const answer = readAnswer(Uint8Array.from(message(1, 0x61, body)));
    assert.is(answer !== null && answer !== "broken" && answer.code, -1, `${code}`);
  }
});

test("resultText() has the words of the C library, and the server's own", () => {
  const say = (code: number, words: string) =>
    resultText({ id: 1, tag: 0x61, code, text: words, length: 0 });
  assert.is(say(49, ""), "Invalid credentials");
  assert.is(say(53, "no"), "Server is unwilling to perform (no)");
  assert.is(say(99, ""), "result code 99");
});

test("readAnswer() always comes to an end", () => {
  let seed = 20261130;
  const random = (below: number) => {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    return seed % below;
  };
  for (let i = 0; i < 100_000; i++) {
    const bytes = Uint8Array.from(whole[random(whole.length)]![1]);
    for (let n = random(4); n >= 0; n--) bytes[random(bytes.length)] = random(256);
    const answer = readAnswer(bytes.subarray(0, 1 + random(bytes.length)));
    if (answer === null || answer === "broken") continue;
    assert.ok(answer.length > 0 && answer.length <= bytes.length, `${bytes}`);
  }
});

test.run();
