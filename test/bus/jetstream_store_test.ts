// The store conformance tests against JetStream, and what only a server can do to a store: be killed,
// have no JetStream, refuse.
// limit: 360 s
// load: waits

import { Buffer } from "node:buffer";
import { cpSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import {
  type Bus,
  BusError,
  type BusOptions,
  connectBus,
  meshSubjects,
  openStore,
  type Store,
} from "../../shared/bus/mod.ts";
import type { NatsConnection } from "nats";
import { connectNats } from "../../shared/bus/transport.ts";
import { createLogger } from "../../shared/telemetry/mod.ts";
import { assert, suite, until } from "../support/harness.ts";
import { type NatsServer, startNats } from "../support/nats.ts";
import { needs } from "../support/needs.ts";
import { tempDir } from "../support/temp.ts";
import { patientBus, patientStore, settled } from "./patience.ts";
import { storeConformance, text } from "./store_conformance.ts";

needs("nats-server");

const lines: string[] = [];
const logger = createLogger({
  component: "test",
  level: "debug",
  format: "text",
  write: (line) => lines.push(line),
});

function connect(server: NatsServer, more: Partial<BusOptions> = {}): Promise<Bus> {
  const { url, token } = server;
  return connectBus({
    servers: [url],
    token,
    mesh: "m",
    name: "one",
    logger,
    ...patientBus,
    ...more,
  });
}

async function errorOf(promise: Promise<unknown>): Promise<BusError> {
  try {
    await promise;
  } catch (error) {
    if (error instanceof BusError) return error;
    throw error;
  }
  throw new Error("a BusError: is no error");
}

storeConformance("a store on JetStream", async () => {
  const server = await startNats({ jetstream: true });
  const buses = [await connect(server), await connect(server, { name: "two" })] as const;
  // Both make the bucket at the same time.
  const [one, two] = await Promise.all(buses.map((bus) => openStore(bus, patientStore)));
  return {
    one: one!,
    two: two!,
    async close() {
      for (const bus of buses) await bus.close();
      await server.stop();
    },
  };
});

const test = suite("openStore()");
const opened: { close(): Promise<void> }[] = [];
let server: NatsServer;

async function bus(more: Partial<BusOptions> = {}, to: NatsServer = server): Promise<Bus> {
  const one = await connect(to, more);
  opened.push(one);
  return one;
}

test.before(async () => {
  server = await startNats({ jetstream: true });
});
test.after.each(async () => {
  for (const one of opened.splice(0)) await one.close();
});
test.after(async () => {
  await server.stop();
});

test("openStore() keeps what was confirmed when the server is killed and started again", async () => {
  const one = await bus();
  const store = await openStore(one, patientStore);
  const revisions: number[] = [];
  for (let at = 0; at < 50; at += 1) {
    revisions.push((await store.create(`kept.${at}`, Buffer.from(`${at}`)))!);
  }
  await server.kill();
  await until("the loss", () => !one.connected);
  assert.is((await errorOf(store.get("kept.0"))).code, "DISCONNECTED");
  await server.start();
  await until("the bus to be back", () => one.connected);
  const entries = await store.list("kept.");
  assert.is(entries.length, 50);
  for (const { key, value, revision } of entries) {
    const at = Number(key.slice("kept.".length));
    assert.is(text(value), `${at}`);
    assert.is(revision, revisions[at]);
  }
  assert.ok(await store.update("kept.0", Buffer.from("new"), revisions[0]!));
  assert.is(await store.create("kept.1", Buffer.from("new")), null);
});

test("a removed key leaves nothing behind", async () => {
  // The markers that a bucket keeps of removed keys would pile up with every worker that ever was.
  const one = await bus({ mesh: "clean" });
  const store = await openStore(one, patientStore);
  for (let at = 0; at < 20; at += 1) {
    await store.create(`worker.${at}`, new Uint8Array(1));
    await store.remove(`worker.${at}`);
  }
  type Info = { state: { messages: number } };
  assert.is((await api<Info>(server, "STREAM.INFO.KV_pgweir_clean")).state.messages, 0);
});

test("stores of different meshes do not meet", async () => {
  const [one, two] = [
    await openStore(await bus(), patientStore),
    await openStore(await bus({ mesh: "other" }), patientStore),
  ];
  await one.create("mine", new Uint8Array(1));
  assert.equal(await two.list(""), []);
  assert.ok(await two.create("mine", new Uint8Array(2)));
});

test("openStore() says that a server has no JetStream, and how it gets one", async () => {
  const plain = await startNats();
  try {
    const one = await bus({}, plain);
    const error = await errorOf(openStore(one));
    assert.is(error.code, "NO_JETSTREAM");
    assert.match(error.message, /^open store: nats-server has no JetStream, wanted .*--jetstream/);
    await one.close();
    assert.is((await errorOf(openStore(one))).code, "CLOSED");
  } finally {
    await plain.stop();
  }
});

test("openStore() waits for a server that is not there, as long as it may", async () => {
  const late = await startNats({ jetstream: true });
  try {
    await late.kill();
    const one = await bus({ background: true }, late);
    assert.is((await errorOf(openStore(one, { waitMs: 300 }))).code, "DISCONNECTED");
    const opening = openStore(one, patientStore);
    await late.start();
    assert.ok(await (await opening).create("a", new Uint8Array(1)));
  } finally {
    await late.stop();
  }
});

/** The answer of JetStream's API, over a connection of its own. */
async function api<T>(to: NatsServer, call: string, request?: object): Promise<T> {
  const raw = await connectNats({ servers: to.url, token: to.token });
  try {
    const answer = await raw.request(`$JS.API.${call}`, JSON.stringify(request ?? {}), {
      timeout: 30_000,
    });
    return answer.json<T>();
  } finally {
    await raw.close();
  }
}

interface StreamInfo {
  readonly config: { readonly num_replicas: number; readonly subjects: readonly string[] };
}

// The second process to open the store asked for three replicas. A nats-server 2.9 without a cluster says
// yes to that, and at its next start finds that it has none to give: it left the whole bucket out.
test("openStore() by a second process costs nothing when a single server is killed and started again", async () => {
  const [one, two] = [await bus({ mesh: "twice" }), await bus({ mesh: "twice", name: "two" })];
  const revision = (await (await openStore(one, patientStore)).create("kept", Buffer.from("1")))!;
  const store = await openStore(two, patientStore);
  assert.is((await store.get("kept"))?.revision, revision);
  const stream = "STREAM.INFO.KV_pgweir_twice";
  assert.is((await api<StreamInfo>(server, stream)).config.num_replicas, 1);
  await server.kill();
  await server.start();
  await until("the bus to be back", () => two.connected);
  assert.equal(await store.get("kept"), { value: new Uint8Array(Buffer.from("1")), revision });
});

test("openStore() saves a bucket of a single server that was given three replicas", async () => {
  const one = await bus({ mesh: "three" });
  const revision = (await (await openStore(one, patientStore)).create("kept", Buffer.from("1")))!;
  const { config } = await api<StreamInfo>(server, "STREAM.INFO.KV_pgweir_three");
  await api(server, "STREAM.UPDATE.KV_pgweir_three", { ...config, num_replicas: 3 });
  const stored = await api<StreamInfo>(server, "STREAM.INFO.KV_pgweir_three");
  // A server that refuses it has nothing to be saved from.
  assert.ok([1, 3].includes(stored.config.num_replicas));
  const store = await openStore(one, patientStore);
  await server.restart();
  await until("the bus to be back", () => one.connected);
  assert.is((await store.get("kept"))?.revision, revision);
});

// It found the files of the old one, and their settings: each further start lost the new one as well.
test("a bucket that the server could not restore is made again for good", async () => {
  const one = await bus({ mesh: "unfit" });
  const store = await openStore(one, patientStore);
  const old = (await store.create("old", new Uint8Array(1)))!;
  const { config } = await api<StreamInfo>(server, "STREAM.INFO.KV_pgweir_unfit");
  await api(server, "STREAM.UPDATE.KV_pgweir_unfit", { ...config, num_replicas: 3 });
  const restart = async (): Promise<void> => {
    await server.restart();
    await until("the bus to be back", () => one.connected);
  };
  await restart();
  const { error } = await api<{ error?: unknown }>(server, "STREAM.INFO.KV_pgweir_unfit");
  // A server that refused the replicas has lost nothing.
  if (error === undefined) return;
  assert.equal(await store.list(""), []);
  assert.is(await store.update("old", new Uint8Array(2), old), null);
  const revision = await store.create("new", new Uint8Array(1));
  await restart();
  assert.is((await store.get("new"))?.revision, revision);
});

test("openStore() leaves a bucket alone that somebody else made", async () => {
  const config = { name: "KV_pgweir_taken", subjects: ["$KV.pgweir_taken.>"], num_replicas: 1 };
  await api(server, "STREAM.CREATE.KV_pgweir_taken", { ...config, storage: "file" });
  const error = await errorOf(openStore(await bus({ mesh: "taken" }), { waitMs: 0 }));
  assert.is(error.code, "UNAVAILABLE");
  assert.match(
    error.message,
    /^open store: bucket "pgweir_taken" has subjects .*, wanted one that/,
  );
});

const warning = "the store of the mesh is empty";

// A bucket that was lost was missed for ever: no coordinator was elected again, no worker got an id.
test("a store whose bucket is gone goes on with an empty one, and says so", async () => {
  const operations: [string, unknown, (store: Store, old: number) => Promise<unknown>][] = [
    ["get", null, (store) => store.get("old")],
    ["update", null, (store, old) => store.update("old", new Uint8Array(2), old)],
    ["remove", false, (store) => store.remove("old")],
    ["remove of a revision", false, (store, old) => store.remove("old", old)],
    ["list", [], (store) => store.list("")],
    ["create", true, async (store) => (await store.create("old", new Uint8Array(2)))! > 0],
  ];
  const store = await openStore(await bus({ mesh: "gone" }), patientStore);
  const revisions: number[] = [];
  for (const [name, expected, operation] of operations) {
    const old = (await store.create("old", new Uint8Array(1)))!;
    revisions.push(old);
    await api(server, "STREAM.DELETE.KV_pgweir_gone");
    lines.length = 0;
    assert.equal(await operation(store, old), expected, name);
    assert.is(lines.filter((line) => line.includes(warning)).length, 1, name);
    assert.is(await store.update("old", new Uint8Array(3), old), null, name);
    await store.remove("old");
    assert.equal(await store.list(""), [], name);
  }
  assert.equal(revisions, [...new Set(revisions)].sort((a, b) => a - b));
});

test("a store goes on when the server comes back without its files", async () => {
  const folder = join(tempDir("nats"), "store");
  const arguments_ = ["--jetstream", "--store_dir", folder];
  const lost = await startNats({ extraArguments: arguments_ });
  try {
    const [one, two] = [await bus({}, lost), await bus({ name: "two" }, lost)];
    const stores = [
      await openStore(one, patientStore),
      await openStore(two, patientStore),
    ] as const;
    const old = (await stores[0].create("a", new Uint8Array(1)))!;
    await lost.kill();
    rmSync(folder, { recursive: true });
    await lost.start();
    await until("the buses to be back", () => one.connected && two.connected);
    const made = (await stores[1].create("a", new Uint8Array(2)))!;
    assert.ok(made > old);
    assert.equal(await stores[0].get("a"), { value: new Uint8Array(2), revision: made });
    assert.is(await stores[0].update("a", new Uint8Array(3), old), null);
    assert.ok(await stores[0].update("a", new Uint8Array(3), made));
  } finally {
    await lost.stop();
  }
});

/** A server that can lose what was written after `keep()`; nats-server 2.9 can when members of its cluster are killed. */
async function losingServer() {
  const folder = join(tempDir("nats"), "store");
  const copy = join(tempDir("nats"), "copy");
  const lossy = await startNats({ extraArguments: ["--jetstream", "--store_dir", folder] });
  const between = async (work: () => void, buses: readonly Bus[]) => {
    await lossy.kill();
    work();
    await lossy.start();
    await until("the buses to be back", () => buses.every(({ connected }) => connected));
  };
  return {
    server: lossy,
    keep: (...buses: readonly Bus[]) =>
      between(() => cpSync(folder, copy, { recursive: true }), buses),
    lose: (...buses: readonly Bus[]) =>
      between(() => {
        rmSync(folder, { recursive: true });
        cpSync(copy, folder, { recursive: true });
      }, buses),
  };
}

const lossWarning = "has lost what it had confirmed";

function warnings(): number {
  return lines.filter((line) => line.includes(lossWarning)).length;
}

test("a store that has lost its newest writes is known by the next one, and goes on with what is left", async () => {
  const lossy = await losingServer();
  try {
    const [one, two] = [await bus({}, lossy.server), await bus({ name: "two" }, lossy.server)];
    // The loss is to be known by what is written: nothing that is only read is believed here.
    const options = { ...patientStore, lossMs: 600_000 };
    const stores = [await openStore(one, options), await openStore(two, options)] as const;
    const kept = (await stores[0].create("kept", new Uint8Array(1)))!;
    await lossy.keep(one, two);
    let last = kept;
    for (let at = 2; at < 10; at += 1) {
      last = (await stores[0].update("kept", new Uint8Array(at), last))!;
    }
    await stores[0].create("lost", new Uint8Array(1));
    await stores[1].get("lost");
    await lossy.lose(one, two);
    lines.length = 0;
    const error = await errorOf(stores[0].list(""));
    assert.equal([error.code, error.message], ["UNAVAILABLE", 'list "": servers do not agree']);
    assert.is(warnings(), 0);
    assert.is(await stores[0].update("kept", new Uint8Array(20), last), null);
    // Many at once, whose answers may come in any order.
    const made = await Promise.all(
      [1, 2, 3].map((at) => stores[0].create(`new.${at}`, new Uint8Array(at))),
    );
    assert.ok(made.every((revision) => revision !== null));
    assert.is(warnings(), 1);
    assert.ok(await stores[0].update("kept", new Uint8Array(20), kept));
    assert.equal((await stores[0].list("")).map(({ key }) => key), [
      "kept",
      "new.1",
      "new.2",
      "new.3",
    ]);
    assert.is(warnings(), 1);
    // The other has yet to find out, and does by itself.
    assert.ok(await stores[1].create("other", new Uint8Array(1)));
    assert.is((await stores[1].list("")).length, 5);
    assert.is(warnings(), 2);
  } finally {
    await lossy.server.stop();
  }
});

test("a store that only reads believes in the end that its newest writes are lost", async () => {
  const lossy = await losingServer();
  try {
    const one = await bus({}, lossy.server);
    const store = await openStore(one, { ...patientStore, lossMs: 3000 });
    await store.create("kept", new Uint8Array(1));
    await lossy.keep(one);
    await store.create("lost", new Uint8Array(1));
    await lossy.lose(one);
    lines.length = 0;
    const found = await until(
      "a list",
      () =>
        store.list("").catch((error: BusError) => {
          assert.match(error.message, /servers do not agree/);
          return null;
        }),
      60_000,
    );
    assert.equal(found!.map(({ key }) => key), ["kept"]);
    assert.is(warnings(), 1);
    assert.is((await store.list("")).length, 1);
  } finally {
    await lossy.server.stop();
  }
});

const brokenError = "does not give back what it has confirmed";

// After its members were killed among cut lines, a cluster confirmed every message and had none of them: three
// coordinators led at the same time, each for a second, for ever.
test("a bucket that confirms what it then does not have is made again", async () => {
  const [one, two] = [await bus({ mesh: "void" }), await bus({ mesh: "void", name: "two" })];
  const store = await openStore(one, { ...patientStore, lossMs: 2000 });
  const other = await openStore(two, patientStore);
  await store.create("a", new Uint8Array(1));
  await other.create("b", new Uint8Array(1));
  // One that another takes away for good is no sign of it.
  await other.remove("a");
  assert.is(await store.get("a"), null);
  const { config } = await api<StreamInfo>(server, "STREAM.INFO.KV_pgweir_void");
  const shortest = { ...config, max_age: 100_000_000, duplicate_window: 100_000_000 };
  await api(server, "STREAM.UPDATE.KV_pgweir_void", shortest);
  lines.length = 0;
  const said = () => lines.filter((line) => line.includes(brokenError)).length;
  type Info = { state: { messages: number } };
  let written = 0;
  await until("the end of the bucket", async () => {
    if (await store.create("leader", new Uint8Array(1)) !== null) written += 1;
    await until("it to be gone", async () => {
      const info = await api<Info>(server, "STREAM.INFO.KV_pgweir_void");
      return info.state.messages === 0;
    });
    assert.is(await store.get("leader"), null);
    return said() > 0;
  }, 60_000);
  assert.ok(written >= 2);
  assert.is(said(), 1);
  const made = (await store.create("a", new Uint8Array(2)))!;
  assert.equal((await other.list("")).map(({ key, revision }) => [key, revision]), [["a", made]]);
});

/** JetStream as far as a store needs it, of a stream that lists a key which it does not have. */
function lossyJetStream(raw: NatsConnection, stream: string, active: () => number) {
  const calls: string[] = [];
  const calledAt = new Map<string, number>();
  let config: { subjects: string[] } | null = null;
  const notFound = { error: { code: 404, err_code: 10059, description: "stream not found" } };
  const answers: Record<string, (request: string) => object> = {
    CREATE: (request) => {
      config = JSON.parse(request);
      return answers["INFO"]!("");
    },
    DELETE: () => {
      config = null;
      return { success: true };
    },
    INFO: () => {
      if (config === null) return notFound;
      const life = calls.filter((call) => call === "CREATE").length;
      const subjects = { [`${config.subjects[0]!.slice(0, -1)}a`]: 1 };
      const state = { messages: 1, last_seq: 5, ...(life === 1 ? { subjects } : {}) };
      const replicas = ["b", "c"].map((name) => ({ name, current: true, active: active() }));
      return { config, state, cluster: { name: "x", leader: "a", replicas } };
    },
    UPDATE: () => answers["INFO"]!(""),
    "MSG.GET": () => ({ error: { code: 404, err_code: 10037, description: "no message found" } }),
  };
  raw.subscribe("$JS.API.STREAM.>", {
    callback: (_, message) => {
      const call = message.subject.slice("$JS.API.STREAM.".length, -stream.length - 1);
      calls.push(call);
      calledAt.set(call, performance.now());
      message.respond(JSON.stringify(answers[call]!(message.string())));
    },
  });
  return { calls, calledAt };
}

test("a bucket that lists what it does not have is made again, when most servers follow the one that says so", async () => {
  const plain = await startNats({});
  const raw = await connectNats({ servers: plain.url, token: plain.token });
  try {
    let activeMs = 60_000;
    const { calls, calledAt } = lossyJetStream(raw, "KV_pgweir_m", () => activeMs * 1_000_000);
    await raw.flush();
    const lossMs = 3000;
    const store = await openStore(await bus({}, plain), { ...patientStore, lossMs });
    const begin = performance.now();
    while (performance.now() - begin < lossMs) {
      assert.match((await errorOf(store.list(""))).message, /do not agree/);
    }
    assert.not(calls.includes("DELETE"));
    activeMs = 1000;
    const heardAt = performance.now();
    await until("a list", () => store.list("").catch(() => null), 60_000);
    assert.is(calls.filter((call) => call === "DELETE").length, 1);
    assert.ok(calledAt.get("DELETE")! - heardAt >= lossMs);
    assert.is(calls.filter((call) => call === "CREATE").length, 2);
  } finally {
    await raw.close();
    await plain.stop();
  }
});

test("a store that did not see the bucket go neither writes into the new one nor reads past it", async () => {
  const [one, two] = [
    await openStore(await bus({ mesh: "late" }), patientStore),
    await openStore(await bus({ mesh: "late", name: "two" }), patientStore),
  ];
  const operations: [string, (store: Store, made: number, old: number) => Promise<unknown>][] = [
    ["get", async (store, made) => (await store.get("a"))?.revision === made],
    ["list", async (store, made) => (await store.list("a"))[0]?.revision === made],
    ["create", async (store) => await store.create("a", new Uint8Array(3)) === null],
    ["update", async (store, _, old) => await store.update("a", new Uint8Array(3), old) === null],
    ["its update", async (store, made) => await store.update("a", new Uint8Array(3), made)],
    ["remove", (store) => store.remove("a")],
    ["its remove", (store, made) => store.remove("a", made)],
  ];
  for (const [name, operation] of operations) {
    await two.remove("a");
    const old = (await two.create("a", new Uint8Array(1)))!;
    await api(server, "STREAM.DELETE.KV_pgweir_late");
    // The same number in its stream as the old one: told apart only by the bucket.
    const made = (await one.create("a", new Uint8Array(2)))!;
    assert.ok(made > old, name);
    assert.ok(await operation(two, made, old), name);
  }
});

test("a bucket that many find gone at the same time is made once", async () => {
  const buses = await Promise.all([1, 2, 3, 4].map((at) => bus({ mesh: "many", name: `b${at}` })));
  const stores = await Promise.all(buses.map((each) => openStore(each, patientStore)));
  for (let round = 0; round < 20; round += 1) {
    await api(server, "STREAM.DELETE.KV_pgweir_many");
    const made = await Promise.all(stores.map((store) => store.create("who", new Uint8Array(1))));
    const winners = made.filter((revision) => revision !== null);
    assert.is(winners.length, 1);
    for (const store of stores) assert.is((await store.get("who"))?.revision, winners[0]);
  }
});

// One of many who found a bucket gone came a moment after it was made again: the server knew of it, and did not
// take what was written yet.
test("a bucket that is there waits for a moment until it takes what is written", async () => {
  const plain = await startNats({});
  const raw = await connectNats({ servers: plain.url, token: plain.token });
  try {
    const stream = "KV_pgweir_m";
    const subject = `$KV.pgweir_m.${Date.now()}-00000000.>`;
    let asked = 0;
    raw.subscribe(`$JS.API.STREAM.INFO.${stream}`, {
      callback: (_, message) => {
        asked += 1;
        if (asked === 4) {
          raw.subscribe(subject, {
            callback: (_, written) => void written.respond(JSON.stringify({ stream, seq: 7 })),
          });
        }
        const config = { subjects: [subject], num_replicas: 1 };
        message.respond(JSON.stringify({ config, state: { messages: 0, last_seq: 0 } }));
      },
    });
    await raw.flush();
    const store = await openStore(await bus({}, plain), patientStore);
    assert.ok(await store.create("a", new Uint8Array(1)));
    assert.ok(asked >= 4);
  } finally {
    await raw.close();
    await plain.stop();
  }
});

test("a store of a server that hangs rejects in time", async () => {
  const store: Store = await openStore(await bus());
  await server.pause();
  try {
    // It takes the server's threads a moment to stop; what they still answer is no failure.
    const writeUntilItHangs = async (): Promise<void> => {
      for (let at = 0;; at += 1) await store.create(`hung.${at}`, new Uint8Array(1));
    };
    const error = await errorOf(writeUntilItHangs());
    assert.is(error.code, "TIMEOUT");
    assert.match(error.message, /^write "hung\.\d+": no answer in 2000 ms$/);
  } finally {
    server.resume();
  }
});

test("a store goes on over a connection that the bus made anew", async () => {
  const one = await bus({ mesh: "anew" });
  const store = await openStore(one, patientStore);
  const revision = (await store.create("a", new Uint8Array(1)))!;
  for (const each of [1, 2]) {
    await server.restart();
    await until(`the bus to be back after restart ${each}`, () => one.connected);
  }
  assert.ok(await store.update("a", new Uint8Array(2), revision));
});

test("the rights of workers, coordinators and the store are enough on a nats-server, and no more", async () => {
  const subjects = meshSubjects("m");
  const store = subjects.storeRights;
  const rights = {
    worker: subjects.workerRights(7, "worker"),
    coordinator: subjects.coordinatorRights("coordinator"),
    keeper: {
      publish: [...subjects.coordinatorRights("keeper").publish, ...store.publish],
      subscribe: subjects.coordinatorRights("keeper").subscribe,
    },
  };
  const users = Object.entries(rights).map(([user, { publish, subscribe }]) => ({
    user,
    password: user,
    permissions: { publish, subscribe },
  }));
  const config = join(tempDir("nats"), "nats.conf");
  // Its configuration is a superset of JSON.
  writeFileSync(config, JSON.stringify({ authorization: { users } }));
  const strict = await startNats({
    token: "",
    jetstream: true,
    extraArguments: ["--config", config],
  });
  const as = async (user: string): Promise<Bus> => {
    const login = {
      servers: [strict.url],
      user,
      password: user,
      mesh: "m",
      name: user,
      logger,
      ...patientBus,
    };
    const made = await connectBus(login);
    opened.push(made);
    return made;
  };
  try {
    const [worker, coordinator, keeper] = [
      await as("worker"),
      await as("coordinator"),
      await as("keeper"),
    ];
    const kept = await openStore(keeper, patientStore);
    assert.ok(await kept.create("a", new Uint8Array(1)));
    assert.is((await kept.list("")).length, 1);
    assert.is(await kept.remove("a"), true);
    assert.is((await errorOf(openStore(coordinator, patientStore))).code, "REFUSED");
    const got: string[] = [];
    coordinator.subscribe(coordinator.subjects.allBudgetReports, (_, { subject }) => {
      got.push(subject);
    });
    coordinator.subscribe(coordinator.subjects.budgetGone, () => ({}));
    worker.subscribe(worker.subjects.budgetGrant(7), (_, { subject }) => {
      got.push(subject);
    });
    worker.subscribe(worker.subjects.budgetLeader, (_, { subject }) => {
      got.push(subject);
    });
    await settled(worker, coordinator);
    const report = { worker: 7, incarnation: 1, epoch: 0, seq: 1, leaves: [] };
    worker.publish(worker.subjects.budgetReport(7), report);
    worker.publish(worker.subjects.budgetReport(8), { ...report, worker: 8 });
    coordinator.publish(coordinator.subjects.budgetGrant(7), { ...report, report: 1 });
    coordinator.publish(coordinator.subjects.budgetLeader, { epoch: 1, name: "c" });
    await until("what is allowed", () => got.length === 3);
    assert.equal(got.sort(), [
      "pgweir.m.budget.grant.7",
      "pgweir.m.budget.leader",
      "pgweir.m.budget.report.7",
    ]);
    const gone = { worker: 8, incarnation: 1 };
    assert.is(
      (await errorOf(worker.request(worker.subjects.budgetGone, gone, 30_000))).code,
      "REFUSED",
    );
    await until(
      "the refusals to be counted",
      () => worker.counters.brokerErrors >= 1 && coordinator.counters.brokerErrors > 0,
    );
  } finally {
    await strict.stop();
  }
});

test.run();
