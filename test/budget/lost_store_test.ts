// Coordinators on a nats-server that loses what it had confirmed: all of the store, or its newest writes, with
// the leader or without. A store that is in order is coordinator_conformance.ts's.
// limit: 360 s
// load: waits

import { assert, suite, until } from "../support/harness.ts";
import { needs } from "../support/needs.ts";
import { freeze, signal } from "../support/processes.ts";
import {
  leaderOf,
  leadingFirst,
  onlyLeader,
  type TestCoordinator,
  type TestMesh,
  withMesh,
} from "./mesh.ts";

needs("nats-server");

const poolSize = 20;
const tests = suite("coordinators whose store is lost");

function inMesh(name: string, run: (mesh: TestMesh) => Promise<void>): void {
  tests(name, () => withMesh({ face: "nats", poolSize }, run));
}

/** One that has just been started takes a store that is lost before its first look for a new one. */
async function knowEachOther(mesh: TestMesh, follower: TestCoordinator): Promise<void> {
  await until("the follower", () => follower.log.includes("store opened"));
  let announced = 0;
  const stop = mesh.bus.subscribe(mesh.bus.subjects.budgetLeader, () => {
    announced += 1;
  });
  await until("the leader to say so twice", () => announced >= 2);
  stop();
}

/**
 * The store is lost, and the leader leads again. Its follower stands still meanwhile: a leader that is held up for a
 * second longer than it comes second, and who comes first when both are on time is the election's own test.
 */
async function loseStore(
  mesh: TestMesh,
  leader: TestCoordinator,
  follower: TestCoordinator,
  which: "all" | "newest",
): Promise<void> {
  const epoch = leader.epochs.at(-1)!;
  await freeze(follower.process.pid);
  await mesh.loseStore(which);
  await leaderOf([leader], epoch);
  signal(follower.process.pid, "SIGCONT");
}

// A bucket that was lost took all coordinators with it; made again, it knew of no charge, and whoever
// reported first got what others held.
inMesh("a leader whose store is lost leads again, with all that was charged", async (mesh) => {
  const both = await mesh.startCoordinators(2);
  await knowEachOther(mesh, both[1]!);
  const [cut, worker] = [mesh.addWorker(8), mesh.addWorker(5)];
  await until("what they want", () => cut.lease.held === 8 && worker.lease.held === 5);
  cut.mute();
  cut.freeze();
  const [leader, other] = leadingFirst(both);
  const before = other!.epochs.at(-1) ?? 0;
  await loseStore(mesh, leader!, other!, "all");
  const left = poolSize - await mesh.chargeOf(cut);
  assert.ok(left <= 12, `${left} left`);
  worker.wanted = 20;
  await until("what is left of the cap", () => worker.lease.held === left);
  await onlyLeader(leader!, other!, before);
  // What was saved again is there for the next leader.
  await leader!.process.stop("SIGKILL");
  await leaderOf([other!], leader!.epochs.at(-1)!);
  assert.is(poolSize - await mesh.chargeOf(cut), left);
  await other!.process.stop();
});

inMesh(
  "a leader whose store lost its newest writes leads again, and saves all again",
  async (mesh) => {
    const [first] = await mesh.startCoordinators(1);
    await mesh.keepStore();
    const second = await mesh.startCoordinator();
    await knowEachOther(mesh, second);
    const [cut, worker] = [mesh.addWorker(8), mesh.addWorker(5)];
    await until("what they want", () => cut.lease.held === 8 && worker.lease.held === 5);
    cut.mute();
    cut.freeze();
    const [leader, other] = leadingFirst([first!, second]);
    const before = other!.epochs.at(-1) ?? 0;
    await loseStore(mesh, leader!, other!, "newest");
    const left = poolSize - await mesh.chargeOf(cut);
    assert.ok(left <= 12, `${left} left`);
    worker.wanted = 20;
    await until("what is left of the cap", () => worker.lease.held === left);
    await onlyLeader(leader!, other!, before);
    await Promise.all([leader!.process.stop(), other!.process.stop()]);
  },
);

// What was listed was less than had been seen, and the leader asked again for ever.
inMesh("a leader is followed when the store has lost its newest writes with it", async (mesh) => {
  const [first] = await mesh.startCoordinators(1);
  await mesh.keepStore();
  const worker = mesh.addWorker(8);
  await until("what it wants", () => worker.lease.held === 8);
  const second = await mesh.startCoordinator();
  await knowEachOther(mesh, second);
  const [leader, other] = leadingFirst([first!, second]);
  const epoch = leader!.epochs.at(-1)!;
  await leader!.process.stop("SIGKILL");
  await mesh.loseStore("newest");
  await leaderOf([other!], epoch);
  await until("the loss in its log", () => /has lost what it had confirmed/.test(other!.log));
  worker.wanted = poolSize;
  await until("all slots", () => worker.lease.held === poolSize);
  await other!.process.stop();
});

inMesh(
  "a store that is lost with its leader raises nobody before all are heard",
  async (mesh) => {
    const both = await mesh.startCoordinators(2);
    await knowEachOther(mesh, both[1]!);
    const [full, hungry] = [mesh.addWorker(poolSize), mesh.addWorker(0)];
    await until("all slots", () => full.lease.held === poolSize);
    const present = setInterval(() => full.present(), 200);
    try {
      full.mute();
      const [leader, other] = leadingFirst(both);
      const epoch = leader!.epochs.at(-1)!;
      await leader!.process.stop("SIGKILL");
      await mesh.loseStore();
      hungry.wanted = poolSize;
      await leaderOf([other!], epoch);
      // Asked and answered: it has to wait.
      await until("an answer", () => hungry.grants.some((grant) => grant.epoch > epoch));
      await mesh.unmute(full, other!);
      const fair = poolSize / 2;
      await until(
        "a fair share for both",
        () => hungry.lease.held === fair && full.lease.held === fair,
      );
      await other!.process.stop();
    } finally {
      clearInterval(present);
    }
  },
);

tests.run();
