// Tests of the test library's own hosts: that they reach each other, that a cut is one, that nothing is left.
// limit: 300 s

import { writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { hostname, networkInterfaces } from "node:os";
import { join } from "node:path";
import { runtimeCommand } from "../../shared/sys/mod.ts";
import { assert, suite, until } from "./harness.ts";
import { type Endpoint, type Host, HostNetwork, needsHosts } from "./hosts.ts";
import { ManagedProcess } from "./managed_process.ts";
import { needs } from "./needs.ts";
import { tempDir } from "./temp.ts";

needs("iproute2");
needsHosts();

const PORT = 9;
// As long as somebody is expected to answer; a busy machine may need many seconds for that.
const PATIENCE_MS = 40_000;
// Whoever would answer on a quiet machine would do so in a thousandth of that.
const SILENCE_MS = 300;
const TRY = `
import { connect } from "node:net";
const [host, patience] = process.argv.slice(2);
const socket = connect({ host, port: ${PORT} });
const end = (what) => { console.log(what); process.exit(0); };
socket.once("connect", () => end("connected"));
socket.once("error", (error) => end(error.code));
setTimeout(() => end("silence"), Number(patience));
`;
const LISTEN = `
import { createServer } from "node:net";
createServer((socket) => socket.on("error", () => {}).pipe(socket)).listen({ port: ${PORT}, host: "0.0.0.0" }, () => console.log("ready"));
`;

const dir = tempDir("hosts");
const tryFile = join(dir, "try.ts");
const listenFile = join(dir, "listen.ts");
writeFileSync(tryFile, TRY);
writeFileSync(listenFile, LISTEN);

/** What happens to a connection from a host: "connected", "silence" or the error. */
async function reach(from: Host, address: string, patienceMs = PATIENCE_MS): Promise<string> {
  const command = [...runtimeCommand(), tryFile, address, String(patienceMs)];
  const client = await from.launch({ command });
  await client.ended(2 * PATIENCE_MS);
  return client.stdout().trim();
}

function reachFromOutside(address: string, patienceMs = PATIENCE_MS): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect({ host: address, port: PORT });
    const end = (what: string) => {
      clearTimeout(timer);
      socket.destroy();
      resolve(what);
    };
    const timer = setTimeout(() => end("silence"), patienceMs);
    socket.once("connect", () => end("connected"));
    socket.once("error", (error: NodeJS.ErrnoException) => end(error.code ?? ""));
  });
}

const tests = suite("hosts");

tests(
  "a host has a name, addresses, a boot of its own, and reaches the others and the outside",
  async () => {
    const network = await HostNetwork.create(["left", "right"]);
    const [left, right] = network.hosts as [Host, Host];
    assert.is(left.run("hostname").trim(), "left");
    assert.is(left.run("cat", "/proc/sys/kernel/hostname").trim(), "left");
    assert.not.equal(hostname(), "left");
    assert.match(left.bootId(), /^[0-9a-f-]{36}$/);
    assert.is.not(left.bootId(), right.bootId());
    const before = left.bootId();
    left.newBoot();
    assert.is.not(left.bootId(), before);
    const listener = await right.launch({ command: [...runtimeCommand(), listenFile] });
    await listener.ready("the listener", () => listener.stdout() !== "");
    const outside = createServer().listen({ port: 0, host: network.outside.address });
    try {
      for (const address of [right.address, right.clientAddress]) {
        assert.is(await reach(left, address), "connected");
        assert.is(await reachFromOutside(address), "connected");
      }
      assert.is(await reach(right, "127.0.0.1"), "connected");
      // Nobody listens there; that somebody says so is what shows the way.
      for (const address of [left.address, network.outside.address, "127.0.0.1"]) {
        assert.is(await reach(left, address), "ECONNREFUSED");
      }
    } finally {
      outside.close();
      await listener.stop("SIGKILL");
      await network.remove();
    }
  },
);

tests(
  "cut() takes a host from everybody but itself and its clients, heal() gives it back",
  async () => {
    const network = await HostNetwork.create(["left", "right"]);
    const [left, right] = network.hosts as [Host, Host];
    const listener = await right.launch({ command: [...runtimeCommand(), listenFile] });
    await listener.ready("the listener", () => listener.stdout() !== "");
    try {
      const old = connect({ host: right.address, port: PORT });
      let echoed = 0;
      old.on("data", (bytes) => echoed += bytes.length);
      await new Promise((resolve) => old.once("connect", resolve));
      right.cut();
      old.write("through the cut");
      const { address } = right;
      for (const who of [reach(left, address, SILENCE_MS), reachFromOutside(address, SILENCE_MS)]) {
        assert.match(await who, /^(silence|EHOSTUNREACH)$/);
      }
      assert.is(await reach(right, right.address), "connected");
      assert.is(await reachFromOutside(right.clientAddress), "connected");
      assert.is(echoed, 0);
      right.heal();
      await until(
        "the way back",
        async () => await reach(left, right.address) === "connected",
        90_000,
      );
      assert.is(await reachFromOutside(right.address), "connected");
      // A connection outlives a cut, and what was sent meanwhile comes late: TCP tries again after about as long as the
      // cut has lasted.
      await until("what was sent", () => echoed === 15, 120_000);
      old.destroy();
    } finally {
      await listener.stop("SIGKILL");
      await network.remove();
    }
  },
);

tests("cutBetween() parts two, cutOneWay() loses one direction, in silence", async () => {
  const network = await HostNetwork.create(["a", "b", "c"]);
  const { outside } = network;
  const [a, b, c] = network.hosts as [Host, Host, Host];
  const listeners = await Promise.all(
    [a, b, c].map((host) => host.launch({ command: [...runtimeCommand(), listenFile] })),
  );
  for (const listener of listeners) {
    await listener.ready("the listener", () => listener.stdout() !== "");
  }
  const ways: [Host, Endpoint][] = [[a, b], [b, a], [a, c], [c, a], [b, c]];
  const connected = ways.map(() => "connected");
  /** Tries all ways; those that should be silent are given less time to show that they are not. */
  const assertSeen = async (wanted: readonly string[]) => {
    const tries = ways.map(([from, to], at) =>
      reach(from, to.address, wanted[at] === "silence" ? SILENCE_MS : PATIENCE_MS)
    );
    assert.equal(await Promise.all(tries), wanted);
  };
  try {
    network.cutBetween(a, b);
    await assertSeen(["silence", "silence", "connected", "connected", "connected"]);
    network.healBetween(a, b);
    // No answer comes back to `a`, nor does anything of `a` get there.
    network.cutOneWay(a, c);
    await assertSeen(["connected", "connected", "silence", "silence", "connected"]);
    network.cutBetween(outside, a);
    assert.is(await reachFromOutside(a.address, SILENCE_MS), "silence");
    assert.is(await reachFromOutside(a.clientAddress), "connected");
    assert.is(await reachFromOutside(b.address), "connected");
    network.healAll();
    await assertSeen(connected);
    assert.is(await reachFromOutside(a.address), "connected");
  } finally {
    for (const listener of listeners) await listener.stop("SIGKILL");
    await network.remove();
  }
});

tests("remove() leaves no interface, nor does a process that is killed", async () => {
  const isThere = (subnet: string) =>
    Object.values(networkInterfaces()).flatMap((entries) => entries ?? []).some((entry) =>
      entry.address.startsWith(subnet.replace("0/24", ""))
    );
  const child = await ManagedProcess.launch({
    command: [...runtimeCommand(), join(import.meta.dirname!, "hosts_child.ts")],
    // What it leaves in its temp folder is ours to remove.
    environment: { ...process.env as Record<string, string>, TMPDIR: dir },
  });
  const killed = await child.ready("its hosts", () => child.stdout().trim());
  assert.ok(isThere(killed));
  const own = await HostNetwork.create(["a"]);
  assert.ok(isThere(own.subnet));
  assert.is.not(own.subnet, killed);
  await own.remove();
  assert.not.ok(isThere(own.subnet));
  await child.stop("SIGKILL");
  await until("its interfaces to be gone", () => !isThere(killed));
});

tests.run();
