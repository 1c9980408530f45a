// Who is let in when many clients log in at once.

import { Entrance, type Entrant } from "../../services/pooler/plane/entrance.ts";
import { assert, suite } from "../support/harness.ts";

const test = suite("entrance");

/** A client that has something to say; `events` are those that the kernel would tell. */
class Client implements Entrant {
  closed = false;
  isCalled = false;
  isFresh = true;
  isPaused = false;
  readonly name: string;
  readonly stream = {
    pause: () => this.isPaused = true,
    resume: () => this.isPaused = false,
  } as Entrant["stream"];

  constructor(name: string, isFresh = true) {
    this.name = name;
    this.isFresh = isFresh;
  }
}

/** The steps of one batch, each client being readable. */
function batch(entrance: Entrance, clients: readonly Client[]): string {
  let done = "";
  for (const client of clients) {
    if (client.isPaused || client.closed) continue;
    if (entrance.admits(client)) done += client.name;
  }
  entrance.onBatchEnd();
  return done;
}

const clientsOf = (names: string) => [...names].map((name) => new Client(name));

test("a few are let in at once, the others in their order", () => {
  const entrance = new Entrance(3);
  const all = clientsOf("abcdefgh");
  assert.is(batch(entrance, all), "abc");
  const waiting = all.slice(3);
  // Told by the kernel in whatever order.
  assert.is(batch(entrance, waiting.toReversed()), "fed");
  assert.is(batch(entrance, waiting.slice(3)), "gh");
});

test("who comes later waits behind those who wait", () => {
  const entrance = new Entrance(1);
  const [a, b, c] = clientsOf("abc");
  assert.is(batch(entrance, [a!, b!]), "a");
  assert.is(batch(entrance, [c!, b!]), "b");
  assert.is(batch(entrance, [c!]), "c");
});

test("who has begun goes before those who have not", () => {
  const entrance = new Entrance(2);
  const fresh = clientsOf("abcd");
  assert.is(batch(entrance, fresh), "ab");
  const begun = [new Client("X", false), new Client("Y", false), new Client("Z", false)];
  // The two that were called come first, then those that have begun, then the rest.
  assert.is(batch(entrance, [...begun, ...fresh.slice(2)]), "cd");
  assert.is(batch(entrance, begun), "XY");
  assert.is(batch(entrance, [begun[2]!, new Client("e")]), "Ze");
});

test("who has left is passed over", () => {
  const entrance = new Entrance(1);
  const [a, b, c] = clientsOf("abc");
  assert.is(batch(entrance, [a!, b!, c!]), "a");
  // It was called, and is gone: its turn is lost, no other's.
  b!.closed = true;
  assert.is(batch(entrance, [b!, c!]), "");
  assert.is(batch(entrance, [c!]), "c");
});

test("nobody waits when few come", () => {
  const entrance = new Entrance(2);
  for (let i = 0; i < 10; i++) assert.is(batch(entrance, clientsOf("ab")), "ab");
});

test.run();
