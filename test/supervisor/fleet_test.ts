// The fleet with stand-ins for workers: what happens when they crash, are late, deaf or killed.
// limit: 240 s
// load: waits

import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { assert, suite, until } from "../support/harness.ts";
import { isAlive, signal } from "../support/processes.ts";
import { tempDir } from "../support/temp.ts";
import { createLogger } from "../../shared/telemetry/mod.ts";
import { StartFailure } from "../../services/supervisor/failure.ts";
import { Fleet, type FleetOptions } from "../../services/supervisor/fleet.ts";
import { type Identity, LocalIdentities } from "../../services/supervisor/identities.ts";
import { fakeWorker } from "./stand_in.ts";

const test = suite("fleet");

interface FakeWorker {
  readonly index: number;
  readonly workerId: number;
  readonly incarnation: number;
  readonly pid: number;
  readonly ready: boolean;
}

class Rig {
  readonly folder = tempDir("fleet");
  readonly log: string[] = [];
  readonly passedOn: string[] = [];
  readonly fleet: Fleet;
  busConnected = true;
  gaveUp: string | null = null;
  /** Whose words the bus passes on, once they are ready: those of all, unless a test says otherwise. */
  speaks: (worker: FakeWorker) => boolean = () => true;
  #poll: NodeJS.Timeout;
  #told = new Set<number>();

  constructor(modes: Record<string, string>, changes: Partial<FleetOptions> = {}) {
    for (const [name, mode] of Object.entries(modes)) this.setMode(name, mode);
    this.fleet = new Fleet({
      count: 2,
      command: fakeWorker(this.folder),
      identities: new LocalIdentities(() => 0, () => false),
      seat: (index, { id: workerId, incarnation }) =>
        JSON.stringify({ index, workerId, incarnation, supervisorPid: process.pid, secret: "s" }),
      times: { readyMs: 60_000, drainMs: 60_000, quitMs: 30_000, silentMs: 60_000 },
      input: () => "at the start\n",
      logger: createLogger({
        component: "supervisor",
        level: "info",
        format: "text",
        write: (line) => this.log.push(line),
      }),
      passOn: (line) => this.passedOn.push(line),
      random: () => 0,
      busConnected: () => this.busConnected,
      ...changes,
    });
    this.fleet.onGiveUp = (reason) => this.gaveUp = reason;
    // Stands for the bus: passes on who says that it is ready, and that it still is.
    this.#poll = setInterval(() => {
      for (const worker of this.workers()) {
        const { workerId, pid } = worker;
        if (!worker.ready) continue;
        if (this.#told.has(workerId)) {
          if (this.speaks(worker)) this.fleet.heard(workerId, pid);
          continue;
        }
        this.#told.add(workerId);
        this.fleet.onReady(workerId, pid);
      }
    }, 5);
  }

  setMode(name: string, mode: string): void {
    writeFileSync(join(this.folder, name), mode);
  }

  /** Every worker that ever came up, in the order of their ids. */
  workers(): FakeWorker[] {
    return readdirSync(this.folder).filter((name) => /^worker\.\d+$/.test(name))
      .map((name) => JSON.parse(readFileSync(join(this.folder, name), "utf8")))
      .sort((a, b) => a.workerId - b.workerId);
  }

  alive(): FakeWorker[] {
    return this.workers().filter((worker) => isAlive(worker.pid));
  }

  async close(): Promise<void> {
    await this.fleet.quit();
    clearInterval(this.#poll);
    assert.equal(this.alive(), [], "quit() leaves no worker");
  }
}

async function withRig(rig: Rig, body: (rig: Rig) => Promise<void>): Promise<void> {
  try {
    await body(rig);
  } finally {
    await rig.close();
  }
}

async function startFails(rig: Rig): Promise<string> {
  try {
    await rig.fleet.start();
  } catch (error) {
    assert.instance(error, StartFailure);
    return (error as Error).message;
  }
  throw new Error("start() resolved");
}

test("start() resolves when all workers are ready, drain() when all have ended", () =>
  withRig(new Rig({}), async (rig) => {
    await rig.fleet.start();
    assert.equal(rig.workers().map((w) => [w.index, w.workerId]), [[0, 1], [1, 2]]);
    assert.is(rig.alive().length, 2);
    await rig.fleet.drain("SIGTERM");
    assert.equal(rig.alive(), []);
    assert.match(rig.log.join(""), /worker 1 is ready/);
  }));

// A worker that hangs keeps its share of the port's connections waiting; nothing noticed it, since its
// process was alive.
test("heard() keeps a worker; one that is silent for long is ended and another takes its seat", () =>
  withRig(
    new Rig({}, { times: { readyMs: 60_000, drainMs: 60_000, quitMs: 200, silentMs: 1500 } }),
    async (rig) => {
      await rig.fleet.start();
      const [hung, lively] = rig.workers() as [FakeWorker, FakeWorker];
      process.kill(hung.pid, "SIGSTOP");
      rig.speaks = ({ pid }) => pid !== hung.pid;
      await until(
        "another worker in the seat",
        () => rig.alive().find((worker) => worker.index === hung.index && worker.pid !== hung.pid),
      );
      assert.ok(isAlive(lively.pid), "the one that speaks is left alone");
      assert.not.ok(isAlive(hung.pid));
      assert.match(rig.log.join(""), /worker 1 has been silent for 1.5 s, ending it/);
    },
  ));

// A host that was asked to stop while it ended a hung worker waited for that one as long as others may drain.
test("drain() gives no more time to a worker that is being ended", () =>
  withRig(
    new Rig({}, { times: { readyMs: 60_000, drainMs: 60_000, quitMs: 1000, silentMs: 1500 } }),
    async (rig) => {
      await rig.fleet.start();
      const workers = rig.workers();
      for (const { pid } of workers) process.kill(pid, "SIGSTOP");
      rig.speaks = () => false;
      await until("both to be ended", () => rig.log.join("").match(/ending it/g)?.length === 2);
      let drained = false;
      void rig.fleet.drain("SIGTERM").then(() => drained = true);
      await until("the end", () => drained);
      assert.match(rig.log.join(""), /worker 1 does not end, killing it/);
    },
  ));

// A supervisor that was stopped for longer than that, or blocked by a log nobody read, took every worker for
// hung when it went on: it had heard none of them meanwhile.
test("silence counts only while the supervisor itself runs", () =>
  withRig(
    new Rig({}, { times: { readyMs: 60_000, drainMs: 60_000, quitMs: 200, silentMs: 2000 } }),
    async (rig) => {
      await rig.fleet.start();
      const [one, two] = rig.workers() as [FakeWorker, FakeWorker];
      rig.speaks = () => false;
      // As bytes of a socket do, what they said meanwhile comes after the timers that are due.
      const speak = () => {
        for (const { workerId, pid } of [one, two]) rig.fleet.heard(workerId, pid);
      };
      const speaks = setInterval(() => setImmediate(speak), 50);
      for (let stalls = 0; stalls < 2; stalls++) {
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2600);
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
      clearInterval(speaks);
      assert.equal(rig.alive().map(({ pid }) => pid), [one.pid, two.pid]);
      assert.not.match(rig.log.join(""), /silent/);
      await until("silence to count again", () => rig.log.join("").includes("has been silent"));
    },
  ));

test("what is not heard while the bus is away is no silence", () =>
  withRig(
    new Rig({}, { times: { readyMs: 60_000, drainMs: 60_000, quitMs: 200, silentMs: 300 } }),
    async (rig) => {
      rig.speaks = () => false;
      rig.busConnected = false;
      await rig.fleet.start();
      await new Promise((resolve) => setTimeout(resolve, 900));
      assert.not.match(rig.log.join(""), /silent/);
      rig.busConnected = true;
      await until("silence to count", () => rig.log.join("").includes("has been silent for 0.3 s"));
    },
  ));

test("start() fails with the last line of a worker that ends, and the others can be ended", () =>
  withRig(new Rig({ "mode.1": "crash no such file: x.ini" }), async (rig) => {
    assert.is(
      await startFails(rig),
      "start worker 2: it ended with code 3: no such file: x.ini",
    );
  }));

test("start() fails when a worker is not ready in time", () =>
  withRig(
    new Rig({ "mode.0": "silent" }, {
      times: { readyMs: 1500, drainMs: 1, quitMs: 5000, silentMs: 60_000 },
    }),
    async (rig) => {
      assert.is(await startFails(rig), "start worker 1: it is not ready after 1.5 s");
    },
  ));

test("start() fails with one line when the program can't be run", () =>
  withRig(new Rig({}, { command: ["/nonexistent/bun"] }), async (rig) => {
    assert.is(await startFails(rig), 'run "/nonexistent/bun": ENOENT');
  }));

test("start() goes by the processes alone while the bus can't be reached", async () => {
  // A host that is restarted while NATS is down served nobody: its workers ran, but nobody could say so.
  const rig = new Rig({ mode: "silent" }, {
    times: { readyMs: 500, drainMs: 1, quitMs: 5000, silentMs: 60_000 },
  });
  rig.busConnected = false;
  await withRig(rig, async () => {
    await rig.fleet.start();
    await until("two workers", () => rig.alive().length === 2);
    assert.match(rig.log.join(""), /WARNING the bus can't be reached/);
  });
});

test("start() ends early when it is asked to stop", () =>
  withRig(new Rig({ mode: "silent" }), async (rig) => {
    const failure = startFails(rig);
    await until("two workers", () => rig.alive().length === 2);
    await rig.fleet.drain("SIGTERM");
    assert.is(await failure, "start the workers: asked to stop");
  }));

test("a worker that is killed comes back in its seat under a new id", () =>
  withRig(new Rig({}), async (rig) => {
    await rig.fleet.start();
    signal(rig.workers()[0]!.pid, "SIGKILL");
    const worker = await until("a replacement", () => rig.workers()[2]);
    assert.equal([worker.index, worker.workerId], [0, 3]);
    assert.match(
      rig.log.join(""),
      /ERROR worker 1 ended with SIGKILL, starting another one in 50 ms/,
    );
    assert.is(rig.alive().length, 2);
  }));

test("every worker is named once and released once, and incarnations rise", async () => {
  const local = new LocalIdentities(() => 0, () => false);
  const taken: Identity[] = [];
  const released: Identity[] = [];
  const identities = {
    take: async (signal: AbortSignal) => {
      const identity = await local.take(signal);
      if (identity !== null) taken.push(identity);
      return identity;
    },
    release: (identity: Identity) => {
      released.push(identity);
      local.release(identity);
    },
  };
  await withRig(new Rig({}, { identities }), async (rig) => {
    await rig.fleet.start();
    signal(rig.workers()[0]!.pid, "SIGKILL");
    const { workerId, incarnation } = await until("a replacement", () => rig.workers()[2]);
    assert.equal({ id: workerId, incarnation }, taken[2]);
    assert.equal(released, [taken[0]], "it is released before another one is started");
    assert.ok(taken[0]!.incarnation < taken[1]!.incarnation);
    assert.ok(taken[1]!.incarnation < taken[2]!.incarnation);
    await rig.fleet.drain("SIGTERM");
  });
  const ids = (list: Identity[]) => list.map(({ id }) => id).sort();
  assert.equal(ids(released), ids(taken));
});

// The store of the mesh may be away when a worker dies: the seat waits for an identity, the stop does not.
test("drain() ends a start that waits for an identity", async () => {
  const local = new LocalIdentities(() => 0, () => false);
  let away = false;
  let waiting = false;
  const identities = {
    take: (signal: AbortSignal) => {
      if (!away) return local.take(signal);
      waiting = true;
      return new Promise<null>((resolve) => signal.addEventListener("abort", () => resolve(null)));
    },
    release: (identity: Identity) => local.release(identity),
  };
  await withRig(new Rig({}, { identities }), async (rig) => {
    await rig.fleet.start();
    away = true;
    signal(rig.workers()[0]!.pid, "SIGKILL");
    await until("the start of another one", () => waiting);
    assert.is(rig.alive().length, 1);
    await rig.fleet.drain("SIGTERM");
    assert.is(rig.workers().length, 2);
  });
});

test("a worker that ends by itself comes back, whatever its exit code", () =>
  withRig(new Rig({}), async (rig) => {
    await rig.fleet.start();
    signal(rig.workers()[1]!.pid, "SIGTERM");
    const worker = await until("a replacement", () => rig.workers()[2]);
    assert.is(worker.index, 1);
    assert.match(rig.log.join(""), /worker 2 ended with code 0, starting another one/);
  }));

test("a crash loop makes the fleet give up and say why", () =>
  withRig(new Rig({}, { count: 1 }), async (rig) => {
    await rig.fleet.start();
    rig.setMode("mode", "crash out of luck");
    signal(rig.workers()[0]!.pid, "SIGKILL");
    const reason = await until("the end", () => rig.gaveUp);
    // Not the first five, if the machine stood still for ten seconds: those were none within ten seconds.
    const [, last, seconds] =
      /^worker (\d+) ended with code 3; that was death 5 in (\d+\.\d) s, giving up$/.exec(reason) ??
        [];
    assert.ok(Number(last) >= 5 && Number(seconds) <= 10, reason);
    const restarts = rig.log.filter((line) => line.includes("starting another one"));
    assert.is(restarts.length, Number(last) - 1);
  }));

test("a replacement that does not get ready is ended and counts as a death", () => {
  const times = { readyMs: 60_000, drainMs: 1000, quitMs: 5000, silentMs: 60_000 };
  return withRig(new Rig({}, { count: 1, times }), async (rig) => {
    await rig.fleet.start();
    rig.setMode("mode", "silent");
    // Little patience with this one alone: any other may need many seconds to start.
    times.readyMs = 1500;
    signal(rig.workers()[0]!.pid, "SIGKILL");
    await until("a late worker", () => rig.log.some((line) => line.includes("is not ready after")));
    times.readyMs = 60_000;
    rig.setMode("mode", "ready");
    await until("a good worker", () => rig.alive().some((worker) => worker.workerId > 2));
    assert.match(rig.log.join(""), /worker 2 is not ready after 1.5 s, ending it/);
  });
});

test("drain() ends a worker that does not hear SIGTERM", () => {
  const times = { readyMs: 60_000, drainMs: 200, quitMs: 30_000, silentMs: 60_000 };
  return withRig(new Rig({ mode: "deaf" }, { count: 1, times }), async (rig) => {
    await rig.fleet.start();
    await rig.fleet.drain("SIGTERM");
    assert.equal(rig.alive(), []);
    assert.match(rig.passedOn.join("\n"), /worker 1: heard nothing\nworker 1: quit$/);
    assert.not.match(rig.log.join(""), /does not end/);
  });
});

test("drain() kills a worker that hears nothing, beside one that hears SIGQUIT", () => {
  const times = { readyMs: 60_000, drainMs: 200, quitMs: 500, silentMs: 60_000 };
  const modes = { "mode.0": "deaf", "mode.1": "stone" };
  return withRig(new Rig(modes, { times }), async (rig) => {
    await rig.fleet.start();
    await rig.fleet.drain("SIGTERM");
    assert.equal(rig.alive(), []);
    assert.match(rig.log.join(""), /worker 2 does not end, killing it/);
  });
});

test("drain() asks once, and quit() cuts it short", () =>
  withRig(new Rig({ mode: "deaf" }), async (rig) => {
    // A worker that gets a second SIGTERM ends at once, whatever its clients do.
    await rig.fleet.start();
    const drained = rig.fleet.drain("SIGTERM");
    const heard = () => rig.passedOn.filter((line) => line.includes("heard nothing"));
    await until("both to hear it", () => heard().length === 2);
    void rig.fleet.drain("SIGTERM");
    assert.is(rig.alive().length, 2);
    await rig.fleet.quit();
    await drained;
    assert.equal(rig.alive(), []);
    assert.is(heard().length, 2);
  }));

test("drain() while a restart is due starts nothing any more", () =>
  withRig(new Rig({}, { count: 1 }), async (rig) => {
    await rig.fleet.start();
    signal(rig.workers()[0]!.pid, "SIGKILL");
    await until("the death", () => rig.log.some((line) => line.includes("starting another one")));
    await rig.fleet.drain("SIGTERM");
    assert.equal(rig.alive(), []);
    assert.is(rig.workers().length, 1);
  }));

test("hand() reaches every worker, also one that is still starting", async () => {
  const rig = new Rig({ "mode.1": "silent" }, {
    times: { readyMs: 500, drainMs: 1, quitMs: 5000, silentMs: 60_000 },
  });
  rig.busConnected = false;
  await withRig(rig, async () => {
    await rig.fleet.start();
    await until("two workers", () => rig.alive().length === 2);
    await until("worker 1 to be ready", () => rig.log.join("").includes("worker 1 is ready"));
    assert.equal(rig.fleet.readyIds, [1]);
    rig.fleet.hand("more\n");
    for (const worker of [1, 2]) {
      await until("what was handed", () => rig.passedOn.includes(`worker ${worker}: reload`));
    }
  });
});

test("what a worker says is passed on, in whole lines", () =>
  withRig(new Rig({ mode: "chatty" }, { count: 1 }), async (rig) => {
    await rig.fleet.start();
    await rig.fleet.drain("SIGTERM");
    assert.is(rig.passedOn.slice(0, -1).join(""), "x".repeat(50_000));
    assert.is(rig.passedOn.at(-1), "worker 1: drained");
  }));

test.run();
