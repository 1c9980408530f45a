// Connecting to the first of several addresses that answers: real sockets on this host's own addresses.

import { Race, type RaceEnd } from "../../services/pooler/plane/race.ts";
import { closeFd, connectTcp, listenTcp, Reactor } from "../../shared/sys/mod.ts";
import { assert, suite } from "../support/harness.ts";
import { BlackHole } from "../support/black_hole.ts";
import { freePort } from "../support/temp.ts";

const test = suite("dialing several addresses");

/** Dials with a reactor of its own until it has ended. */
async function dial(addresses: readonly string[], port: number): Promise<RaceEnd & { ms: number }> {
  const reactor = new Reactor();
  const started = performance.now();
  let dialed: RaceEnd | null = null;
  new Race(reactor, addresses, (address) => connectTcp(address, port), (result) => {
    assert.is(dialed, null, "it ends once");
    dialed = result;
  }).start();
  // What is still to come, if it should not have ended, comes before the end.
  const end = reactor.every(5, () => {
    if (dialed !== null) reactor.stop();
  });
  await reactor.run();
  end.cancel();
  reactor.close();
  const result = dialed!;
  if (result.fd >= 0) closeFd(result.fd);
  return { ...result, ms: performance.now() - started };
}

const port = await freePort();
const living = listenTcp({ host: "127.0.0.2", port, backlog: 10, reusePort: false }).fd;
const other = listenTcp({ host: "127.0.0.3", port, backlog: 10, reusePort: false }).fd;

test.after(() => {
  closeFd(living);
  closeFd(other);
});

test("the first address that answers is taken, and no other is tried", async () => {
  const { fd, address, late } = await dial(["127.0.0.2", "127.0.0.3"], port);
  assert.ok(fd >= 0);
  assert.equal([address, late], ["127.0.0.2", []]);
});

test("after an address that refuses comes the next one, at once", async () => {
  const { fd, address, late } = await dial(["::1", "127.0.0.9", "127.0.0.2"], port);
  assert.ok(fd >= 0);
  assert.equal([address, late], ["127.0.0.2", ["::1", "127.0.0.9"]]);
});

test("the errno of the last address is told when all have refused", async () => {
  const { fd, address, late } = await dial(["127.0.0.8", "127.0.0.9"], port);
  assert.equal([fd, address, late], [-111, "127.0.0.9", ["127.0.0.8", "127.0.0.9"]]);
});

test("an address that is none is passed over", async () => {
  const { address, late } = await dial(["fe80::1%nowhere", "127.0.0.2"], port);
  assert.equal([address, late], ["127.0.0.2", ["fe80::1%nowhere"]]);
});

test("an address that swallows everything costs a quarter of a second", async () => {
  const hole = await BlackHole.dig("127.0.0.4", port);
  try {
    const { address, late, ms } = await dial(["127.0.0.4", "127.0.0.2"], port);
    assert.equal([address, late], ["127.0.0.2", ["127.0.0.4"]]);
    assert.ok(ms >= 249, `${ms} ms`);
    const three = await dial(["127.0.0.4", "127.0.0.9", "127.0.0.3"], port);
    assert.equal([three.address, three.late], ["127.0.0.3", ["127.0.0.9", "127.0.0.4"]]);
  } finally {
    hole.fill();
  }
});

test("cancel() closes what is under way", async () => {
  const hole = await BlackHole.dig("127.0.0.4", port);
  const reactor = new Reactor();
  let ended = false;
  const under = new Race(
    reactor,
    ["127.0.0.4", "127.0.0.2"],
    (address) => connectTcp(address, port),
    () => ended = true,
  );
  under.start();
  under.cancel();
  reactor.after(300, () => reactor.stop());
  await reactor.run();
  reactor.close();
  hole.fill();
  assert.not.ok(ended);
});

test.run();
