// One limit for four workers holds whatever dies, hangs or is lost, as PostgreSQL itself counts: the same course
// of faults, one after another under load, for the embedded bus and for a real nats-server.

import { assert, suite, until } from "../../support/harness.ts";
import type { NatsServer } from "../../support/nats.ts";
import { isAlive, signal } from "../../support/processes.ts";
import {
  assertNeverRefused,
  BackendWatch,
  coordinatorOf,
  inContact,
  Load,
  note,
  patienceMs,
  pause,
  startCoordinator,
  startHost,
  startLimitedPostgres,
  workerIdOf,
} from "./support.ts";

const limit = 8;
const workers = 4;
/** Longer than a leader's term, and than the lease below. */
const frozenMs = 4_500;

export async function runExactness(name: string, nats: NatsServer | null): Promise<void> {
  const postgres = await startLimitedPostgres({ app: limit });
  const host = await startHost({
    postgres,
    nats,
    workers,
    pgbouncer: { default_pool_size: limit, max_db_connections: limit },
    pgweir: { budget_lease: 3 },
  });
  // Several coordinators need a bus that they share.
  const second = nats === null ? null : await startCoordinator(host.iniFile);
  const watch = await BackendWatch.start(postgres);
  const load = new Load(host, { clients: 200, sleepMs: 20 });

  const tests = suite(`one limit for four workers, ${name}`);

  async function allInUse(): Promise<void> {
    const began = performance.now();
    await watch.fresh();
    await until("all slots to be in use", () => watch.active === limit, patienceMs, 10);
    note(`all ${limit} slots in use after ${Math.round(performance.now() - began)} ms`);
  }

  function holds(): void {
    assert.equal(load.errors, []);
    assert.ok(watch.most <= limit, `${watch.most} backends, wanted ${limit} at most`);
    assertNeverRefused(postgres);
  }

  /** The epochs led so far by the coordinators of the host, or by the one beside it. */
  const epochsOf = (log: string) =>
    [...log.matchAll(/LOG budget coordinator leads epoch=(\d+)/g)].map((m) => Number(m[1]));
  const latest = (log: string) => Math.max(0, ...epochsOf(log));
  const beside = () => second?.output() ?? "";

  async function leader(): Promise<number> {
    return latest(beside()) > latest(host.log()) ? second!.pid : await coordinatorOf(host);
  }

  /** Does something to leaders that ends a term, and waits for the next one. */
  async function newLeader(strike: () => Promise<void>): Promise<void> {
    const terms = () => epochsOf(host.log() + beside()).length;
    const before = terms();
    await strike();
    await until("a new leader", () => terms() > before, patienceMs);
  }

  tests.before(allInUse);

  /** What must hold after a fault, and in what follows it. */
  function fault(title: string, strike: () => Promise<void>): void {
    tests(title, async () => {
      watch.reset();
      await strike();
      await allInUse();
      await load.more(200);
      await allInUse();
      holds();
      const { samples, most } = watch;
      note(`${samples} looks, ${most} backends at most, ${load.transactions} transactions so far`);
    });
  }

  tests.after(async () => {
    await load.stop();
    await watch.stop();
    await second?.stop();
    await host.stop();
    await postgres.stop("immediate");
    await nats?.stop();
  });

  // The slots of a worker that crashed were lost for good, or given again while its backends still ran.
  fault("a worker is killed", async () => {
    const pid = host.workerPids()[1]!;
    load.loses(workerIdOf(pid));
    signal(pid, "SIGKILL");
    await until("its end", () => !isAlive(pid), patienceMs);
    await until("a successor", () => host.workerPids().length === workers, patienceMs);
    await until(
      "the successor to serve",
      () => (host.log().match(/worker \d+ is ready/g)?.length ?? 0) > workers,
      patienceMs,
    );
  });

  // One that woke up believed in its old share, which others had by then.
  fault("a worker is frozen for longer than its lease", async () => {
    const pid = host.workerPids()[2]!;
    signal(pid, "SIGSTOP");
    await pause(frozenMs);
    await load.more(50);
    signal(pid, "SIGCONT");
  });

  // The successor knew nothing of what had been granted, and granted it again.
  fault("the coordinator that leads is killed", () =>
    newLeader(async () => {
      const pid = await leader();
      signal(pid, "SIGKILL");
      await until("its end", () => !isAlive(pid), patienceMs);
    }));

  // It slept through the end of its term, and granted on when it woke.
  fault("the coordinator that leads is frozen past its term", () =>
    newLeader(async () => {
      const pid = await leader();
      signal(pid, "SIGSTOP");
      await pause(frozenMs);
      signal(pid, "SIGCONT");
    }));

  // Grants in flight were lost, and slots with them; or workers forgot what they held.
  if (nats !== null) {
    fault("the bus is killed and comes back", async () => {
      await nats.kill();
      await load.more(100);
      await nats.start();
      await inContact(host, workers);
    });
  }

  tests.run();
}
