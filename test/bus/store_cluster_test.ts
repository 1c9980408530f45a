// The store on a cluster of three nats-servers: what was confirmed survives the loss of any one, and
// nobody wins twice while members come and go.
// limit: 600 s
// load: waits

import { Buffer } from "node:buffer";
import {
  type Bus,
  BusError,
  connectBus,
  meshSubjects,
  openStore,
  type Store,
} from "../../shared/bus/mod.ts";
import { connectNats } from "../../shared/bus/transport.ts";
import { createLogger } from "../../shared/telemetry/mod.ts";
import { assert, suite, until } from "../support/harness.ts";
import { type NatsCluster, startNatsCluster } from "../support/nats.ts";
import { needs } from "../support/needs.ts";
import { patientBus } from "./patience.ts";
import { text } from "./store_conformance.ts";

needs("nats-server");

const logger = createLogger({ component: "test", level: "fatal", format: "text" });
const test = suite("the store on a cluster");
const opened: { close(): Promise<void> }[] = [];
let cluster: NatsCluster;

/** A bus that prefers the member with this number and falls back on the others. */
async function bus(at: number, mesh = "m"): Promise<Bus> {
  const one = await connectBus({
    servers: [...cluster.urls.slice(at), ...cluster.urls.slice(0, at)],
    token: cluster.token,
    mesh,
    name: `client-${at}`,
    logger,
    ...patientBus,
  });
  opened.push(one);
  return one;
}

/** The store, once the cluster has elected who leads it. Answers are waited for no longer than by default: members die here. */
function openedStore(bus: Bus): Promise<Store> {
  return openStore(bus, { waitMs: 60_000 });
}

/** The answer of JetStream's API, over a connection of its own; a BusError when there is none that helps. */
async function api<T>(call: string, request?: object): Promise<T> {
  try {
    const raw = await connectNats({ servers: cluster.urls, token: cluster.token });
    try {
      const answer = await raw.request(`$JS.API.${call}`, JSON.stringify(request ?? {}), {
        timeout: 5000,
      });
      const { error, ...rest } = answer.json<T & { error?: { description: string } }>();
      if (error !== undefined) throw new Error(error.description);
      return rest as T;
    } finally {
      await raw.close();
    }
  } catch (cause) {
    throw new BusError("UNAVAILABLE", `${call}: ${(cause as Error).message}`, { cause });
  }
}

interface StreamInfo {
  readonly config: Record<string, unknown> & { readonly num_replicas: number };
  readonly cluster: {
    readonly leader?: string;
    readonly replicas?: readonly { readonly current: boolean }[];
  };
}

function infoOf(mesh: string): Promise<StreamInfo> {
  return api<StreamInfo>(`STREAM.INFO.KV_${meshSubjects(mesh).bucket}`);
}

async function replicasOf(mesh: string): Promise<number> {
  return (await persistently("its replicas", () => infoOf(mesh))).config.num_replicas;
}

/** Repeats what may be repeated until the cluster can do it. */
async function persistently<T>(what: string, operation: () => Promise<T>): Promise<T> {
  let last = "";
  const attempt = async () => {
    try {
      return { value: await operation() };
    } catch (error) {
      if (!(error instanceof BusError)) throw error;
      last = error.message;
      return null;
    }
  };
  try {
    return (await until(what, attempt, 60_000, 50)).value;
  } catch (error) {
    if (last !== "") (error as Error).message += `; last: ${last}`;
    throw error;
  }
}

/** The revision of a key that is made here and nowhere else. */
async function created(store: Store, key: string, value: Uint8Array): Promise<number> {
  const revision = await persistently(`"${key}"`, () => store.create(key, value));
  // Made by an attempt whose answer was lost.
  return revision ?? (await persistently("a read", () => store.get(key)))!.revision;
}

/** All make one key at the same time. One whose answer was lost finds its own, and does not count as a winner. */
async function race(stores: readonly Store[]): Promise<{ winners: number[]; isSure: boolean }> {
  let isSure = true;
  const create = async (store: Store) => {
    try {
      return await store.create("who", new Uint8Array(1));
    } catch (error) {
      isSure = false;
      throw error;
    }
  };
  const made = await Promise.all(
    stores.map((store) => persistently("to win", () => create(store))),
  );
  return { winners: made.filter((revision) => revision !== null), isSure };
}

function upToDate({ cluster: { leader, replicas = [] } }: StreamInfo): void {
  if (leader !== undefined && replicas.length === 2 && replicas.every((one) => one.current)) return;
  throw new BusError("UNAVAILABLE", "not all members are up to date");
}

/**
 * Waits until the cluster is whole: somebody leads it, and it has a place for a stream on each member. What a
 * stream that is there already can do says nothing of that: it has a leader of its own.
 */
async function wholeCluster(): Promise<void> {
  await persistently("the cluster to be whole", async () => {
    const probe = { name: "probe", subjects: ["probe"], storage: "memory", num_replicas: 3 };
    await api("STREAM.CREATE.probe", probe);
    upToDate(await api<StreamInfo>("STREAM.INFO.probe"));
    await api("STREAM.DELETE.probe");
  });
}

test.before(async () => {
  cluster = await startNatsCluster(3);
});
// Those whose members were killed before may take many seconds to elect who leads them.
test.before.each(wholeCluster);
test.after.each(async () => {
  for (const one of opened.splice(0)) await one.close();
});
test.after(async () => {
  await cluster.stop();
});

test("openStore() by many at once makes one bucket with three replicas", async () => {
  const buses = await Promise.all([bus(0), bus(1), bus(2)]);
  const stores = await Promise.all(buses.map(openedStore));
  assert.is(await replicasOf("m"), 3);
  const { winners, isSure } = await race(stores);
  assert.ok(winners.length === 1 || (winners.length === 0 && !isSure));
});

test("what was confirmed is there when the member that leads the bucket is killed", async () => {
  const store = await openedStore(await bus(0));
  const revisions = new Map<string, number>();
  for (let at = 0; at < 40; at += 1) {
    revisions.set(`kept.${at}`, await created(store, `kept.${at}`, Buffer.from(`${at}`)));
  }
  const leader = await persistently("its leader", async () => {
    const name = (await infoOf("m")).cluster.leader;
    if (name === undefined) throw new BusError("UNAVAILABLE", "nobody leads it");
    return Number(name.slice("member-".length));
  });
  await cluster.members[leader]!.kill();
  try {
    const entries = await persistently("the list", () => store.list("kept."));
    assert.equal(
      new Map(entries.map(({ key, revision }) => [key, revision])),
      new Map([...revisions].sort(([a], [b]) => a < b ? -1 : 1)),
    );
    for (const { key, value } of entries) assert.is(`kept.${text(value)}`, key);
  } finally {
    await cluster.members[leader]!.start();
  }
});

test("two who write by compare-and-set never both win, while members are killed in turn", async () => {
  // Each writes who it is and counts up; a revision that was confirmed to one is never another's.
  const stores = [await openedStore(await bus(0)), await openedStore(await bus(1))];
  await persistently("the key", () => stores[0]!.create("race", Buffer.from("0")));
  const confirmed = new Map<number, string>();
  let done = false;
  const race = async (store: Store, name: string): Promise<void> => {
    for (let turn = 0; !done; turn += 1) {
      try {
        const found = await store.get("race");
        const value = `${name}.${turn}`;
        const revision = await store.update("race", Buffer.from(value), found!.revision);
        if (revision === null) continue;
        assert.is(confirmed.get(revision), undefined);
        assert.ok(revision > found!.revision);
        confirmed.set(revision, value);
      } catch (error) {
        if (!(error instanceof BusError)) throw error;
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
    }
  };
  const racers = [race(stores[0]!, "a"), race(stores[1]!, "b")];
  try {
    for (const member of cluster.members) {
      const before = confirmed.size;
      await member.kill();
      try {
        await until("writes without it", () => confirmed.size > before + 20, 60_000);
      } finally {
        await member.start();
      }
      await persistently("all members to be up to date", async () => upToDate(await infoOf("m")));
    }
  } finally {
    done = true;
    await Promise.all(racers);
  }
  const last = await persistently("the last value", () => stores[0]!.get("race"));
  const newest = Math.max(...confirmed.keys());
  // One that nobody was told of may have come after it.
  assert.ok(last!.revision >= newest);
  if (last!.revision === newest) assert.is(text(last!.value), confirmed.get(newest));
});

test("a cluster without a majority confirms nothing, and goes on when it has one", async () => {
  const store = await openedStore(await bus(2));
  const revision = await created(store, "few", Buffer.from("1"));
  await Promise.all([cluster.members[0]!.kill(), cluster.members[1]!.kill()]);
  let code = "none";
  try {
    await store.update("few", Buffer.from("2"), revision);
  } catch (error) {
    code = (error as BusError).code;
  } finally {
    await Promise.all([cluster.members[0]!.start(), cluster.members[1]!.start()]);
  }
  assert.ok(["TIMEOUT", "UNAVAILABLE", "DISCONNECTED"].includes(code), code);
  // The write that got no answer may have been done after all.
  const found = await persistently("a read", () => store.get("few"));
  assert.ok(["1", "2"].includes(text(found?.value)));
  await persistently("a write", async () => {
    const { revision: now } = (await store.get("few"))!;
    if (await store.update("few", Buffer.from("3"), now) === null) {
      throw new BusError("UNAVAILABLE", "not yet");
    }
  });
  assert.is(text((await persistently("a read", () => store.get("few")))?.value), "3");
});

test("openStore() gives a bucket that was made with one replica the others", async () => {
  const one = await bus(0, "grown");
  await created(await openedStore(one), "a", new Uint8Array(1));
  const { config } = await persistently("its settings", () => infoOf("grown"));
  const shrunk = { ...config, num_replicas: 1 };
  await persistently("one replica", () => api("STREAM.UPDATE.KV_pgweir_grown", shrunk));
  assert.is(await replicasOf("grown"), 1);
  // A cluster that takes some of its members for lost has no place for them at the moment.
  const store = await persistently("the others", async () => {
    const again = await openedStore(one);
    if (await replicasOf("grown") !== 3) throw new BusError("UNAVAILABLE", "not yet");
    return again;
  });
  assert.is((await persistently("the list", () => store.list(""))).length, 1);
});

test("a bucket that is deleted is made again by many at once, with three replicas, and won by one", async () => {
  const buses = await Promise.all([bus(0, "gone"), bus(1, "gone"), bus(2, "gone")]);
  const stores = await Promise.all(buses.map(openedStore));
  let last = 0;
  for (let round = 0; round < 3; round += 1) {
    await persistently("its end", async () => {
      await api("STREAM.DELETE.KV_pgweir_gone").catch((error: BusError) => {
        if (!/stream not found/.test(error.message)) throw error;
      });
    });
    const { winners } = await race(stores);
    const found = await persistently("a read", () => stores[0]!.get("who"));
    assert.ok(winners.length <= 1);
    assert.ok(winners.length === 0 || winners[0] === found!.revision);
    assert.ok(found!.revision > last);
    last = found!.revision;
    assert.is(await replicasOf("gone"), 3);
    for (const store of stores) {
      assert.is((await persistently("a read", () => store.get("who")))?.revision, last);
    }
  }
});

// Members that have just started may not know of a bucket yet: to make it again then would empty it.
test("a cluster that is started again as a whole keeps its bucket, though it is asked all the time", async () => {
  const store = await openedStore(await bus(0, "whole"));
  const revision = await created(store, "kept", new Uint8Array(1));
  const { config } = await persistently("its settings", () => infoOf("whole"));
  let done = false;
  const ask = async (operation: () => Promise<unknown>): Promise<void> => {
    while (!done) {
      await operation().catch((error) => {
        if (!(error instanceof BusError)) throw error;
        return new Promise((resolve) => setTimeout(resolve, 20));
      });
    }
  };
  const asking = [
    ask(() => store.list("")),
    ask(() => store.get("none")),
    ask(() => store.create("kept", new Uint8Array(2))),
    ask(async () => void await openStore(await bus(1, "whole"), { waitMs: 0 })),
  ];
  try {
    await Promise.all(cluster.members.map((member) => member.kill()));
    await Promise.all(cluster.members.map((member) => member.start()));
    await persistently("a write", () => store.create(`new.${Date.now()}`, new Uint8Array(1)));
  } finally {
    done = true;
    await Promise.all(asking);
  }
  assert.is((await persistently("a read", () => store.get("kept")))?.revision, revision);
  const now = await persistently("its subjects", () => infoOf("whole"));
  assert.equal(now.config["subjects"], config["subjects"]);
});

test.run();
