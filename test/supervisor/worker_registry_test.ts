// Identities by a store that several supervisors share: unique whatever the store does, said goodbye to until
// somebody hears it, and found again by the next supervisor when the last one could not say it.

import { assert, suite, until } from "../support/harness.ts";
import { BusError, MemoryStore, type Store, type StoreEntry } from "../../shared/bus/mod.ts";
import { createLogger } from "../../shared/telemetry/mod.ts";
import { type Identity, Incarnations } from "../../services/supervisor/identities.ts";
import {
  decodeRecord,
  encodeRecord,
  type Evidence,
  type Fate,
  fateOf,
  type HostMark,
  workerKey,
} from "../../services/supervisor/worker_record.ts";
import { WorkerRegistry } from "../../services/supervisor/worker_registry.ts";

const mark: HostMark = {
  host: "here",
  boot: "today",
  pidNamespace: "pid:[1]",
  supervisorPid: 100,
  supervisorStart: 5,
};

const dead: Evidence = { supervisorRuns: () => false, workerRuns: () => false };

/** One supervisor's registry, with what it was told to say and what it logged. */
class Rig {
  readonly said: Identity[] = [];
  readonly log: string[] = [];
  readonly registry: WorkerRegistry;
  evidence: Evidence = dead;
  /** Nobody hears a goodbye. */
  deaf = false;
  heard = new Set<number>();
  listeningMs = 1_000_000;

  constructor(store: Store, ownMark: HostMark = mark, random: () => number = () => 0) {
    this.registry = new WorkerRegistry({
      store,
      mark: ownMark,
      evidence: {
        supervisorRuns: (pid, start) =>
          (pid === ownMark.supervisorPid && start === ownMark.supervisorStart) ||
          this.evidence.supervisorRuns(pid, start),
        workerRuns: (identity) => this.evidence.workerRuns(identity),
      },
      reportGone: (identity) => {
        if (this.deaf) return Promise.reject(new BusError("NO_RESPONDERS", "nobody"));
        this.said.push(identity);
        return Promise.resolve();
      },
      seenOnBus: (id) => this.heard.has(id),
      listeningMs: () => this.listeningMs,
      random,
      logger: createLogger({
        component: "supervisor",
        level: "info",
        format: "text",
        write: (line) => this.log.push(line),
      }),
      times: { retryMs: 5, sweepMs: 5, guardMs: 5, silentMs: 5000 },
    });
  }

  async take(): Promise<Identity> {
    return (await this.registry.take(new AbortController().signal))!;
  }
}

async function keys(store: Store): Promise<string[]> {
  return (await store.list("")).map(({ key }) => key);
}

/** A store whose next answers are lost, as those of a bus that goes away; what was asked is done or not. */
class LossyStore extends MemoryStore {
  lost = 0;
  done = true;
  lostLists = 0;

  override async create(key: string, value: Uint8Array): Promise<number | null> {
    if (this.lost === 0) return await super.create(key, value);
    this.lost -= 1;
    if (this.done) await super.create(key, value);
    throw new BusError("TIMEOUT", "no answer");
  }

  override async list(prefix: string): Promise<StoreEntry[]> {
    if (this.lostLists === 0) return await super.list(prefix);
    this.lostLists -= 1;
    throw new BusError("DISCONNECTED", "away");
  }
}

const test = suite("worker_registry");

test("take() gives ids that no other supervisor of the store has", async () => {
  const store = new MemoryStore();
  // The same random start: each id of one is the first choice of the other.
  const rigs = [new Rig(store), new Rig(store, { ...mark, host: "there" })];
  const taken = await Promise.all(
    rigs.flatMap((rig) => Array.from({ length: 20 }, () => rig.take())),
  );
  assert.is(new Set(taken.map(({ id }) => id)).size, 40);
  assert.is((await keys(store)).length, 40);
  const own = await store.get(workerKey(taken[0]!.id));
  assert.equal(decodeRecord(workerKey(taken[0]!.id), own!.value), {
    identity: taken[0],
    record: { ...mark, incarnation: taken[0]!.incarnation },
  });
  for (const rig of rigs) await rig.registry.close(0);
});

test("take() passes over ids that the bus has heard of", async () => {
  const rig = new Rig(new MemoryStore());
  for (const id of [1, 2, 4]) rig.heard.add(id);
  assert.equal([(await rig.take()).id, (await rig.take()).id], [3, 5]);
  await rig.registry.close(0);
});

for (const done of [true, false]) {
  test(`take() finds its own key when an answer was lost (${done ? "" : "not "}done)`, async () => {
    const store = new LossyStore();
    const rig = new Rig(store);
    Object.assign(store, { lost: 2, done });
    assert.is((await rig.take()).id, 1);
    assert.equal(await keys(store), ["worker.1"]);
    assert.match(
      rig.log.join(""),
      /WARNING start a worker: the store of the mesh gives it no id \(TIMEOUT\)/,
    );
    await rig.registry.close(0);
  });
}

test("take() ends when it is aborted, and leaves no key behind", async () => {
  const store = new LossyStore();
  const rig = new Rig(store);
  store.lost = Infinity;
  const abort = new AbortController();
  const taken = rig.registry.take(abort.signal);
  await until("an attempt", async () => (await keys(store)).length === 1);
  abort.abort();
  assert.is(await taken, null);
  await until("the key to go", async () => (await keys(store)).length === 0);
  await rig.registry.close(0);
});

test("release() says goodbye until somebody hears it, and only then forgets the key", async () => {
  const store = new MemoryStore();
  const rig = new Rig(store);
  const one = await rig.take();
  rig.deaf = true;
  rig.registry.release(one);
  const two = await rig.take();
  assert.ok(two.id !== one.id && two.incarnation > one.incarnation, "a successor waits for nobody");
  await new Promise((resolve) => setTimeout(resolve, 30));
  assert.equal(await keys(store), ["worker.1", "worker.2"]);
  rig.deaf = false;
  await until("the key to go", async () => (await keys(store)).length === 1);
  assert.equal(rig.said, [one]);
  await rig.registry.close(0);
});

test("release() leaves the key of a namesake alone", async () => {
  const store = new MemoryStore();
  const rig = new Rig(store);
  const one = await rig.take();
  const { revision } = (await store.get(workerKey(one.id)))!;
  const other = encodeRecord({ ...mark, host: "there", incarnation: one.incarnation + 1 });
  await store.update(workerKey(one.id), other, revision);
  rig.registry.release(one);
  await rig.registry.close(10_000);
  assert.equal(rig.said, [one]);
  assert.equal((await store.get(workerKey(one.id)))!.value, other);
});

test("close() waits for goodbyes, but not for ever, and what was not said stays for the next", async () => {
  const store = new MemoryStore();
  const rig = new Rig(store);
  const one = await rig.take();
  rig.registry.release(one);
  await rig.registry.close(10_000);
  assert.equal([rig.said, await keys(store)], [[one], []]);

  const last = new Rig(store);
  const two = await last.take();
  last.deaf = true;
  last.registry.release(two);
  await last.registry.close(20);
  assert.equal([last.said, (await keys(store)).length], [[], 1]);

  const next = new Rig(store, { ...mark, supervisorPid: 101 });
  next.registry.start();
  await until("the goodbye", async () => (await keys(store)).length === 0);
  assert.equal(next.said, [two]);
  assert.match(next.log.join(""), /worker \d+ of an earlier run is gone: its supervisor ended/);
  await next.registry.close(0);
});

test("start() waits for workers that outlived their supervisor", async () => {
  const store = new MemoryStore();
  const one = await new Rig(store).take();
  const next = new Rig(store, { ...mark, supervisorPid: 101 });
  let runs = true;
  let asked = 0;
  next.evidence = {
    supervisorRuns: () => false,
    workerRuns: (identity) => {
      asked++;
      assert.equal(identity, one);
      return runs;
    },
  };
  next.registry.start();
  await until("a second look", () => asked >= 3);
  assert.equal(next.said, []);
  runs = false;
  await until("the goodbye", () => next.said.length === 1);
  await next.registry.close(1000);
  assert.equal([next.said, await keys(store)], [[one], []]);
});

// Hosts that were cloned, and never renamed, each took the other's workers for its own of an earlier boot.
test("start() takes workers of an earlier boot for gone when it has listened and heard nothing", async () => {
  const store = new MemoryStore();
  const earlier = new Rig(store, { ...mark, boot: "yesterday" });
  const [one, two] = [await earlier.take(), await earlier.take()];
  const next = new Rig(store);
  next.listeningMs = 4999;
  next.heard.add(two.id);
  next.registry.start();
  const warning = () =>
    next.log.filter((line) => line.includes('another host calls itself "here"'));
  await until("the warning", () => warning().length > 0);
  await new Promise((resolve) => setTimeout(resolve, 30));
  assert.equal(next.said, [], "it has not listened long enough");
  next.listeningMs = 5000;
  await until("the goodbye", () => next.said.length === 1);
  await next.registry.close(1000);
  assert.equal([next.said, await keys(store)], [[one], [workerKey(two.id)]]);
  assert.is(warning().length, 1);
});

// A nats-server came back without its files: the ids of all workers were free for others.
test("start() writes the keys of workers again that the store has lost", async () => {
  const store = new MemoryStore();
  const rig = new Rig(store);
  rig.registry.start();
  const [one, two] = [await rig.take(), await rig.take()];
  const was = (await store.get(workerKey(one.id)))!.value;
  for (const { id } of [one, two]) await store.remove(workerKey(id));
  await until("the keys", async () => (await keys(store)).length === 2);
  assert.equal((await store.get(workerKey(one.id)))!.value, was);
  assert.match(
    rig.log.join(""),
    /WARNING keep the id of worker 1: the store lost it, it is written/,
  );
  const other = new Rig(store, { ...mark, host: "there" });
  assert.not([one.id, two.id].includes((await other.take()).id));
  for (const identity of [one, two]) rig.registry.release(identity);
  await until("the goodbyes", () => rig.said.length === 2);
  await rig.registry.close(10_000);
  assert.is((await keys(store)).length, 1);
  await other.registry.close(0);
});

test("start() leaves an id alone that another host gave away while the store had lost it", async () => {
  const store = new MemoryStore();
  const rig = new Rig(store);
  const one = await rig.take();
  await store.remove(workerKey(one.id));
  const other = new Rig(store, { ...mark, host: "there" });
  // Its incarnation is another millisecond's.
  await until("another time", () => Date.now() > one.incarnation);
  assert.is((await other.take()).id, one.id);
  const { value } = (await store.get(workerKey(one.id)))!;
  rig.registry.start();
  await until("the error", () => rig.log.some((line) => /ERROR .*host "there" gave it/.test(line)));
  assert.equal((await store.get(workerKey(one.id)))!.value, value);
  await rig.registry.close(0);
  await other.registry.close(0);
});

/** A store that makes nothing before its gate opens. */
class SlowStore extends MemoryStore {
  gate: Promise<void> | null = null;
  waiting = 0;

  override async create(key: string, value: Uint8Array): Promise<number | null> {
    const { gate } = this;
    if (gate !== null) {
      this.waiting += 1;
      await gate;
    }
    return await super.create(key, value);
  }
}

test("start() leaves no key behind of a worker that ended while it was written again", async () => {
  const store = new SlowStore();
  const rig = new Rig(store);
  rig.registry.start();
  const one = await rig.take();
  let open = () => {};
  store.gate = new Promise((resolve) => open = resolve);
  await store.remove(workerKey(one.id));
  await until("the key under way", () => store.waiting === 1);
  rig.registry.release(one);
  await until("the goodbye", () => rig.said.length === 1);
  open();
  await until("the key to come", () => rig.log.join("").includes("it is written again"));
  await until("the key to go", async () => (await keys(store)).length === 0);
  await rig.registry.close(1000);
});

test("start() goes on when the store does not answer at first", async () => {
  const store = new LossyStore();
  const one = await new Rig(store).take();
  store.lostLists = 3;
  const next = new Rig(store, { ...mark, supervisorPid: 101 });
  next.registry.start();
  await until("the goodbye", () => next.said.length === 1);
  assert.equal(next.said, [one]);
  await next.registry.close(1000);
});

test.run();

const records = suite("worker_record");

const fates: [string, Partial<HostMark>, Partial<Evidence>, Fate][] = [
  ["another host's", { host: "there", boot: "yesterday" }, {}, "foreign"],
  ["an earlier boot's", { boot: "yesterday", pidNamespace: "pid:[2]" }, {}, "rebooted"],
  ["another container's", { pidNamespace: "pid:[2]" }, {}, "foreign"],
  ["of a supervisor that runs", {}, { supervisorRuns: () => true }, "lives"],
  ["without a supervisor", {}, { workerRuns: () => true }, "orphaned"],
  ["without anything", {}, {}, "gone"],
];

for (const [name, changes, seen, expected] of fates) {
  records(`fateOf() a worker ${name} is "${expected}"`, () => {
    const record = { ...mark, ...changes, incarnation: 9 };
    assert.is(fateOf(record, 3, mark, { ...dead, ...seen }), expected);
  });
}

records(
  "fateOf() asks for the very process: its pid and when it was started, its incarnation",
  () => {
    const asked: unknown[] = [];
    fateOf({ ...mark, incarnation: 9 }, 3, mark, {
      supervisorRuns: (pid, start) => {
        asked.push([pid, start]);
        return false;
      },
      workerRuns: (identity) => {
        asked.push(identity);
        return false;
      },
    });
    assert.equal(asked, [[100, 5], { id: 3, incarnation: 9 }]);
  },
);

records("decodeRecord() takes what encodeRecord() gives, and nothing else", () => {
  const record = { ...mark, incarnation: 9 };
  assert.equal(decodeRecord("worker.3", encodeRecord(record)), {
    identity: { id: 3, incarnation: 9 },
    record,
  });
  const bytes = (text: string) => new TextEncoder().encode(text);
  for (const text of ["", "null", "[]", "{", '"x"', JSON.stringify({ ...record, host: 5 })]) {
    assert.is(decodeRecord("worker.3", bytes(text)), null, text);
  }
  assert.is(decodeRecord("worker.3", bytes(JSON.stringify({ ...record, incarnation: -1 }))), null);
  assert.is(decodeRecord("worker.x", encodeRecord(record)), null);
  assert.is(decodeRecord("worker.99999", encodeRecord(record)), null);
});

records.run();

const incarnations = suite("incarnations");

incarnations("next() rises, also within a millisecond and when the clock is set back", () => {
  const times = [1000, 1000, 900, 2000];
  const some = new Incarnations(() => times.shift()!);
  assert.equal([some.next(), some.next(), some.next(), some.next()], [1000, 1001, 1002, 2000]);
});

incarnations.run();
