// What coordinators do on any bus: one leads, another takes over, and at no moment do the workers together
// hold or may they hold more than the cap. How soon is the election's own test. Run by the two test files beside it.

import { assert, suite, until } from "../support/harness.ts";
import { freeze, isAlive, signal } from "../support/processes.ts";
import { type Face, leaderOf, leadingFirst, onlyLeader, type TestMesh, withMesh } from "./mesh.ts";

const poolSize = 20;

export function coordinatorConformance(face: Face): void {
  const tests = suite(`coordinator on the ${face} bus`);
  const inMesh = (name: string, run: (mesh: TestMesh) => Promise<void>, leaseS = 10) =>
    tests(name, () => withMesh({ face, poolSize, leaseS }, run));

  inMesh("of two coordinators one leads, and the workers fill the cap", async (mesh) => {
    const [leader, other] = await mesh.startCoordinators(2);
    const workers = [mesh.addWorker(15), mesh.addWorker(15), mesh.addWorker(3)];
    await until("the cap to be used", () => mesh.held === poolSize);
    await until("a fair share", () => workers[0]!.lease.held === 9 && workers[2]!.lease.held === 2);
    // Demand moves, and the slots follow it.
    workers[0]!.wanted = 0;
    await until("the slots to move", () => workers[1]!.lease.held === 15);
    await onlyLeader(leader!, other!);
    const ends = await Promise.all([leader!, other!].map((one) => one.process.stop()));
    assert.equal(ends.map(({ code }) => code), [0, 0]);
  });

  inMesh(
    "a leader that is killed is followed, and nothing is granted twice",
    async (mesh) => {
      const both = await mesh.startCoordinators(2);
      const workers = [mesh.addWorker(15), mesh.addWorker(15)];
      await until("the cap to be used", () => mesh.held === poolSize);
      const [leader, other] = leadingFirst(both);
      const epoch = leader!.epochs.at(-1)!;
      await leader!.process.stop("SIGKILL");
      workers[0]!.wanted = 0;
      await leaderOf([other!], epoch);
      await until("grants of the new leader", () => workers[1]!.lease.held === 15);
      assert.ok(workers[1]!.grants.some((grant) => grant.epoch > epoch));
      await other!.process.stop();
    },
  );

  inMesh(
    "a leader that was frozen over its term finds it lost, and none of its grants counts",
    async (mesh) => {
      const both = await mesh.startCoordinators(2);
      const workers = [mesh.addWorker(15), mesh.addWorker(15)];
      await until("the cap to be used", () => mesh.held === poolSize);
      const [leader, other] = leadingFirst(both);
      const oldEpoch = leader!.epochs.at(-1)!;
      await freeze(leader!.process.pid);
      // Demand changes meanwhile: there is much to grant for whoever wakes up.
      workers[0]!.wanted = 3;
      await leaderOf([other!], oldEpoch);
      await until("grants of the new leader", () => workers[1]!.lease.held === 15);
      const before = workers.map(({ grants }) => grants.length);
      leader!.process.signal("SIGCONT");
      workers[0]!.wanted = 15;
      workers[1]!.wanted = 1;
      await until("the old leader to notice", () => leader!.log.includes("no longer coordinates"));
      await until("the slots to move back", () => workers[0]!.lease.held === 15);
      for (const [at, { grants, table }] of workers.entries()) {
        const late = grants.slice(before[at]).filter(({ epoch }) => epoch === oldEpoch);
        assert.ok(late.every(({ epoch }) => epoch < table.epoch), "a grant that would be applied");
      }
      await onlyLeader(other!, leader!, oldEpoch);
      await Promise.all([leader!.process.stop(), other!.process.stop()]);
    },
  );

  inMesh(
    "a worker that is cut off stays charged under the next leader, until it is reported gone",
    async (mesh) => {
      const both = await mesh.startCoordinators(2);
      const cut = mesh.addWorker(15);
      await until("15 slots", () => cut.lease.held === 15);
      cut.mute();
      cut.freeze();
      const [leader, other] = leadingFirst(both);
      await leader!.process.stop("SIGKILL");
      await leaderOf([other!], leader!.epochs.at(-1)!);
      const left = poolSize - await mesh.chargeOf(cut);
      assert.ok(left <= 5);
      const worker = mesh.addWorker(20);
      await until("what is left of the cap", () => worker.lease.held === left);
      await until("the log to name it", () => other!.log.includes("workers are silent"));
      assert.ok(worker.lease.held <= left);
      cut.die();
      await mesh.reportGone(cut);
      await until("the slots of the dead", () => worker.lease.held === 20);
      assert.match(other!.log, /worker is gone/);
      // Said again, it is answered again.
      await mesh.reportGone(cut);
      await other!.process.stop();
    },
  );

  inMesh("a worker that was noted as gone is known to be by the next leader", async (mesh) => {
    const both = await mesh.startCoordinators(2);
    const dead = mesh.addWorker(20);
    await until("all slots", () => dead.lease.held === 20);
    dead.die();
    await mesh.reportGone(dead);
    const [leader, other] = leadingFirst(both);
    await leader!.process.stop("SIGKILL");
    const worker = mesh.addWorker(20);
    await until("the slots of the dead", () => worker.lease.held === 20);
    await other!.process.stop();
  });

  inMesh(
    "a worker that falls silent and comes back is spoken of, and keeps its slots",
    async (mesh) => {
      const [leader] = await mesh.startCoordinators(1);
      const worker = mesh.addWorker(12);
      await until("12 slots", () => worker.lease.held === 12);
      worker.mute();
      await until("the silence", () => leader!.log.includes("workers are silent"));
      worker.unmute();
      await until("the return", () => leader!.log.includes("workers are back"));
      assert.is(worker.lease.held, 12);
      await leader!.process.stop();
    },
    60,
  );

  inMesh("SIGHUP applies a new cap, and a file with problems changes nothing", async (mesh) => {
    const [leader] = await mesh.startCoordinators(1);
    const worker = mesh.addWorker(100);
    await until("the cap", () => worker.lease.held === poolSize);
    mesh.write({ poolSize: 30 });
    await leader!.reload();
    await until("the new cap", () => worker.lease.held === 30);
    mesh.write({ poolSize: 40, broken: true });
    await leader!.reload();
    await until("the reason", () => /reload:.*pool_mode/.test(leader!.log));
    await until("the refusal", () => /nothing is changed/.test(leader!.log));
    mesh.write({ poolSize: 10 });
    await leader!.reload();
    await until("the lower cap", () => worker.lease.held === 10);
    await leader!.process.stop();
  });

  inMesh("SIGTERM gives the term up, for another to lead at once", async (mesh) => {
    const [leader, other] = leadingFirst(await mesh.startCoordinators(2));
    const epoch = leader!.epochs.at(-1)!;
    // Who sees this in the store waits for no term. It might see it before we do.
    await freeze(other!.process.pid);
    assert.equal(await leader!.process.stop("SIGTERM"), { code: 0, signal: null });
    assert.ok(await mesh.hasResigned() || /could not be renewed/.test(leader!.log));
    signal(other!.process.pid, "SIGCONT");
    await leaderOf([other!], epoch);
    await other!.process.stop();
    assert.not(isAlive(other!.process.pid));
  });

  inMesh(
    "a coordinator that is started again goes on with the charges it had saved",
    async (mesh) => {
      const [leader] = await mesh.startCoordinators(1);
      const cut = mesh.addWorker(8);
      await until("8 slots", () => cut.lease.held === 8);
      cut.mute();
      cut.freeze();
      await leader!.process.stop();
      const [next] = await mesh.startCoordinators(1);
      assert.match(next!.log, /workers=1/);
      const left = poolSize - await mesh.chargeOf(cut);
      assert.ok(left <= 12);
      const worker = mesh.addWorker(20);
      await until("what is left of the cap", () => worker.lease.held === left);
      await next!.process.stop();
    },
  );

  // A nats-server that lost the newest of what it had confirmed: the next leader knew of one worker in six.
  inMesh("a leader that finds nothing saved of a worker waits until it is heard", async (mesh) => {
    const both = await mesh.startCoordinators(2);
    const [full, hungry] = [mesh.addWorker(poolSize), mesh.addWorker(0)];
    await until("all slots", () => full.lease.held === poolSize);
    const present = setInterval(() => full.present(), 200);
    try {
      full.mute();
      const [leader, other] = leadingFirst(both);
      const epoch = leader!.epochs.at(-1)!;
      // It might take over before all is forgotten.
      await freeze(other!.process.pid);
      await leader!.process.stop("SIGKILL");
      await mesh.forgetCharge(full);
      hungry.wanted = poolSize;
      signal(other!.process.pid, "SIGCONT");
      await leaderOf([other!], epoch);
      assert.match(other!.log, /leads.*workers=0/);
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
  });

  tests.run();
}
