// Coordinators on a nats-server that loses what it had confirmed: all of the store, or its newest writes, with
// the leader or without. A store that is in order is coordinator_conformance.ts's.
// limit: 240 s
// load: waits

import { assert, suite, until } from "../support/harness.ts";
import { needs } from "../support/needs.ts";
import { leaderOf, type TestCoordinator, type TestMesh, withMesh } from "./mesh.ts";

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

// A bucket that was lost took all coordinators with it; made again, it knew of no charge, and whoever
// reported first got what others held.
inMesh("a leader whose store is lost leads again, with all that was charged", async (mesh) => {
  const [leader, other] = await mesh.startCoordinators(2);
  await knowEachOther(mesh, other!);
  const [cut, worker] = [mesh.addWorker(8), mesh.addWorker(5)];
  await until("what they want", () => cut.lease.held === 8 && worker.lease.held === 5);
  cut.mute();
  cut.freeze();
  const epoch = leader!.epochs[0]!;
  await mesh.loseStore();
  await leaderOf([leader!], epoch);
  const left = poolSize - await mesh.chargeOf(cut);
  assert.ok(left <= 12, `${left} left`);
  worker.wanted = 20;
  await until("what is left of the cap", () => worker.lease.held === left, 15_000);
  assert.equal(other!.epochs, []);
  // What was saved again is there for the next leader.
  await leader!.process.stop("SIGKILL");
  await leaderOf([other!], leader!.epochs.at(-1)!);
  assert.is(poolSize - await mesh.chargeOf(cut), left);
  await other!.process.stop();
});

inMesh(
  "a leader whose store lost its newest writes leads again, and saves all again",
  async (mesh) => {
    const [leader] = await mesh.startCoordinators(1);
    await mesh.keepStore();
    const other = await mesh.startCoordinator();
    await knowEachOther(mesh, other);
    const [cut, worker] = [mesh.addWorker(8), mesh.addWorker(5)];
    await until("what they want", () => cut.lease.held === 8 && worker.lease.held === 5, 15_000);
    cut.mute();
    cut.freeze();
    const epoch = leader!.epochs.at(-1)!;
    await mesh.loseStore("newest");
    await leaderOf([leader!], epoch);
    const left = poolSize - await mesh.chargeOf(cut);
    assert.ok(left <= 12, `${left} left`);
    worker.wanted = 20;
    await until("what is left of the cap", () => worker.lease.held === left, 15_000);
    assert.equal(other.epochs, []);
    await Promise.all([leader!.process.stop(), other.process.stop()]);
  },
);

// What was listed was less than had been seen, and the leader asked again for ever.
inMesh("a leader is followed when the store has lost its newest writes with it", async (mesh) => {
  const [leader] = await mesh.startCoordinators(1);
  await mesh.keepStore();
  const worker = mesh.addWorker(8);
  await until("what it wants", () => worker.lease.held === 8, 15_000);
  const other = await mesh.startCoordinator();
  await knowEachOther(mesh, other);
  const epoch = leader!.epochs.at(-1)!;
  await leader!.process.stop("SIGKILL");
  await mesh.loseStore("newest");
  await leaderOf([other], epoch);
  assert.match(other.log, /has lost what it had confirmed/);
  worker.wanted = poolSize;
  await until("all slots", () => worker.lease.held === poolSize, 15_000);
  await other.process.stop();
});

inMesh(
  "a store that is lost with its leader raises nobody before all are heard",
  async (mesh) => {
    const [leader, other] = await mesh.startCoordinators(2);
    await knowEachOther(mesh, other!);
    const [full, hungry] = [mesh.addWorker(poolSize), mesh.addWorker(0)];
    await until("all slots", () => full.lease.held === poolSize);
    const present = setInterval(() => full.present(), 200);
    try {
      full.mute();
      await leader!.process.stop("SIGKILL");
      await mesh.loseStore();
      hungry.wanted = poolSize;
      await leaderOf([other!], leader!.epochs[0]!);
      // Asked and answered: it has to wait.
      await until(
        "an answer",
        () => hungry.grants.some(({ epoch }) => epoch === other!.epochs[0]),
      );
      full.unmute();
      const fair = poolSize / 2;
      await until(
        "a fair share for both",
        () => hungry.lease.held === fair && full.lease.held === fair,
        15_000,
      );
    } finally {
      clearInterval(present);
    }
    await other!.process.stop();
  },
);

tests.run();
