// Ten thousand idle connections: all are accepted, none is disturbed, and an active one among them
// costs what it costs alone (counted in events; the time is printed, not judged).
// The clients live in a process of their own, so that both ends have their own descriptor limit.

import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { assert, suite } from "../support/harness.ts";
import {
  accept,
  EPOLLIN,
  errnoName,
  listenTcp,
  processUsage,
  raiseFileLimit,
  runtimeCommand,
} from "../../shared/sys/mod.ts";
import { encoder, type Peer, type Rig, withRig } from "./fixtures.ts";

const test = suite("sys: idle sockets");

const WANTED = 10_000;
/** Descriptors that the runtime and the test need beside the connections. */
const RESERVE = 100;
const ECHOES = 2000;

/** Echoes on one pair; the far end's events, and the CPU time in ns, per echo. */
async function measureEchoes(rig: Rig, near: Peer, far: Peer) {
  const message = encoder.encode("x".repeat(100));
  let echoes = 0;
  let events = 0;
  far.onRead = () => {
    events++;
    far.stream.send(rig.buffer, 0, far.stream.recv(rig.buffer, 0, 1000));
  };
  near.onRead = () => {
    near.stream.recv(rig.buffer, 0, 1000);
    if (++echoes < ECHOES) near.send(message);
  };
  const before = process.cpuUsage();
  near.send(message);
  await rig.until("the echoes", () => echoes === ECHOES);
  const used = process.cpuUsage(before);
  return { events, nsPerEcho: Math.round((used.user + used.system) * 1000 / ECHOES) };
}

test("Reactor serves an active connection among 10,000 idle ones as it does alone", () =>
  withRig(async (rig) => {
    const { soft } = raiseFileLimit();
    const count = Math.min(WANTED, soft - RESERVE);
    if (count < WANTED) {
      console.log(`  only ${count} connections: the hard limit of open files is ${soft}`);
    }
    const [near, far] = await rig.pair();
    await measureEchoes(rig, near, far);
    const alone = await measureEchoes(rig, near, far);

    const listener = listenTcp({ host: "127.0.0.1", port: 0, backlog: 1024, reusePort: false });
    rig.own(listener.fd);
    const idle: Peer[] = [];
    rig.reactor.add(listener.fd, EPOLLIN, {
      onEvents: () => {
        let fd = accept(listener.fd);
        for (; fd >= 0; fd = accept(listener.fd)) idle.push(rig.peer(fd));
        assert.is(errnoName(-fd), "EAGAIN");
      },
    });
    const script = fileURLToPath(new URL("./idle_sockets_child.ts", import.meta.url).href);
    const argv = [...runtimeCommand(), script, String(listener.port), String(count)];
    const memoryBefore = processUsage(process.pid)!.residentBytes;
    const child = spawn(argv[0]!, argv.slice(1), { stdio: ["pipe", "inherit", "inherit"] });
    const closed = new Promise((resolve) => child.on("close", resolve));
    try {
      await rig.until("the idle connections", () => idle.length === count, 120_000);
      const memory = processUsage(process.pid)!.residentBytes - memoryBefore;
      const crowded = await measureEchoes(rig, near, far);
      assert.is(crowded.events, ECHOES);
      assert.is(crowded.events, alone.events);
      assert.ok(idle.every((peer) => peer.readableCalls === 0 && peer.hangupCalls === 0));
      console.log(
        `  ${count} idle, ${Math.round(memory / count)} B each with the test's own records; ` +
          `an echo takes ${alone.nsPerEcho} ns alone, ${crowded.nsPerEcho} ns among them`,
      );
      const batches = await rig.batchesWithin(50);
      assert.ok(batches < 10, `the loop spins: ${batches} batches`);

      // Killed, the kernel closes all clients at once.
      process.kill(child.pid!, "SIGKILL");
      await rig.until("all ends", () => idle.every((peer) => peer.ended !== null));
    } finally {
      if (child.exitCode === null && child.signalCode === null) {
        process.kill(child.pid!, "SIGKILL");
      }
      await closed;
    }
  }));

test.run();
