// How descriptors are shared out: whatever strangers and clients do, there are some for servers and for who comes.

import { Descriptors } from "../../services/pooler/plane/descriptors.ts";
import { assert, suite } from "../support/harness.ts";

const test = suite("descriptors");

const ENTRANCE = 16;

/** As many as may come, one after the other. */
function fill(mayCome: (sofar: number) => boolean): number {
  let count = 0;
  while (mayCome(count)) count++;
  return count;
}

for (
  const [limit, poolSize, clients, servers] of [
    [128, 5, 59, 5],
    [128, 100, 48, 16],
    [1024, 20, 940, 20],
    [65_536, 20, 65_452, 20],
    // Too few for anything: one of each.
    [60, 20, 1, 1],
  ] as const
) {
  test(`of ${limit} descriptors, with ${poolSize} servers in a pool`, () => {
    const descriptors = new Descriptors(limit, poolSize);
    assert.is(descriptors.clientsMax, clients);
    // Nobody else is there.
    assert.is(fill((n) => descriptors.serverRoom(0, n) > 0), clients + servers);
    assert.is(fill((n) => descriptors.mayAccept(n, 0)), clients + ENTRANCE);
    // Clients first, or strangers, and then servers.
    for (const there of [clients, clients + 1, clients + ENTRANCE]) {
      assert.is(fill((n) => descriptors.serverRoom(there, n) > 0), servers, `${there} clients`);
    }
    // Servers first, and then clients.
    assert.is(fill((n) => descriptors.mayAccept(n, servers)), clients + ENTRANCE);
    assert.is(fill((n) => descriptors.mayAccept(n, clients + servers)), ENTRANCE);
  });
}

test("who leaves counts until the kernel has nothing of it", () => {
  const descriptors = new Descriptors(128, 5);
  const streams = Array.from({ length: 10 }, () => ({ closed: false }));
  for (const stream of streams) descriptors.leaves(stream);
  assert.is(descriptors.mayAccept(64, 0), true);
  assert.is(descriptors.mayAccept(65, 0), false);
  assert.is(descriptors.serverRoom(49, 4), 1);
  assert.is(descriptors.serverRoom(40, 4), 10);
  streams[3]!.closed = true;
  assert.is(descriptors.mayAccept(65, 0), true);
  assert.is(descriptors.mayAccept(66, 0), false);
});

test.run();
