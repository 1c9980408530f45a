// What a client is to be told and was not yet: order, bounds, and what is counted.

import {
  Inbox,
  inboxMaxBytes,
  inboxMaxCount,
  type Sender,
} from "../../services/pooler/plane/inbox.ts";
import { Backend, parseErrorFields } from "../../shared/wire/mod.ts";
import { assert, suite } from "../support/harness.ts";

const test = suite("inbox");

function channel(): Sender {
  return { counts: { received: 0, delivered: 0, dropped: 0 } };
}

const letter = (n: number) => Uint8Array.of(n);

/** What the letters taken out say. */
function taken(inbox: Inbox<Sender>): number[] {
  return [...inbox.take()].map((bytes) => bytes[0]!);
}

test("take() gives all there is, in order, once", () => {
  const [a, b] = [channel(), channel()];
  const inbox = new Inbox<Sender>();
  assert.equal(taken(inbox), []);
  for (let n = 0; n < 5; n++) assert.is(inbox.put(n % 2 === 0 ? a : b, letter(n), 0), true);
  assert.is(inbox.count, 5);
  assert.equal(taken(inbox), [0, 1, 2, 3, 4]);
  assert.equal(taken(inbox), []);
  assert.equal([a.counts.delivered, b.counts.delivered], [3, 2]);
});

test("drop() takes back what came from one channel", () => {
  const [a, b] = [channel(), channel()];
  const inbox = new Inbox<Sender>();
  for (let n = 0; n < 4; n++) inbox.put(n % 2 === 0 ? a : b, letter(n), 0);
  inbox.drop(channel());
  assert.is(inbox.count, 4);
  inbox.drop(a);
  assert.equal(taken(inbox), [1, 3]);
  assert.equal([a.counts.delivered, a.counts.dropped], [0, 0]);
});

test("put() refuses what is too many", () => {
  const a = channel();
  const inbox = new Inbox<Sender>();
  for (let n = 0; n < inboxMaxCount; n++) assert.is(inbox.put(a, letter(0), 0), true);
  assert.is(inbox.put(a, letter(0), 0), false);
  assert.is(inbox.full, true);
  assert.equal(taken(inbox), []);
  assert.is(inbox.put(a, letter(0), 0), false);
  assert.is(a.counts.dropped, inboxMaxCount + 2);
  assert.is(a.counts.delivered, 0);
});

test("put() refuses what is too large, together with what the socket has not taken", () => {
  const a = channel();
  const large = new Uint8Array(inboxMaxBytes / 4);
  const inbox = new Inbox<Sender>();
  for (let n = 0; n < 3; n++) assert.is(inbox.put(a, large, large.length), true);
  assert.is(inbox.put(a, letter(0), large.length), false);
  const other = new Inbox<Sender>();
  for (let n = 0; n < 4; n++) assert.is(other.put(a, large, 0), true);
  other.drop(a);
  assert.is(other.put(a, large, 3 * large.length), true);
});

test("putLoss() says it once until it is taken", () => {
  const a = channel();
  const inbox = new Inbox<Sender>();
  inbox.put(a, letter(1), 0);
  inbox.putLoss();
  inbox.putLoss();
  inbox.drop(a);
  assert.is(inbox.count, 1);
  const [notice] = [...inbox.take()];
  assert.is(notice![0], Backend.noticeResponse);
  const { severity, code, message } = parseErrorFields(notice!.subarray(5));
  assert.equal([severity, code, message], ["WARNING", "01000", "notifications may have been lost"]);
  inbox.putLoss();
  assert.is(inbox.count, 1);
});

test.run();
