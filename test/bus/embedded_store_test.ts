// The store conformance tests against a store that is served on the embedded bus, and who may use it.

import { createLogger } from "../../shared/telemetry/mod.ts";
import {
  type Bus,
  BusError,
  connectBus,
  EmbeddedBus,
  MemoryStore,
  meshSubjects,
  openEmbeddedStore,
  serveStore,
} from "../../shared/bus/mod.ts";
import { assert, suite } from "../support/harness.ts";
import { patientBus, patientStore, settled } from "./patience.ts";
import { storeConformance } from "./store_conformance.ts";

const logger = createLogger({ component: "test", level: "fatal", format: "text" });

const { requestMs } = patientStore;

async function startBroker(): Promise<{ url: string; broker: EmbeddedBus }> {
  const broker = new EmbeddedBus();
  const { url } = await broker.start({ token: "all" });
  const { coordinatorRights, workerRights } = meshSubjects("m");
  for (const name of ["one", "two"]) broker.allow(name, coordinatorRights(name));
  broker.allow("worker", workerRights(7, "worker"));
  return { url, broker };
}

function connect(url: string, name: string, token: string = name): Promise<Bus> {
  return connectBus({ servers: [url], token, mesh: "m", name, logger, ...patientBus });
}

storeConformance("a store on the embedded bus", async () => {
  const { url, broker } = await startBroker();
  const keeper = await connect(url, "keeper", "all");
  serveStore(keeper, new MemoryStore());
  await settled(keeper);
  const clients = [await connect(url, "one"), await connect(url, "two")] as const;
  return {
    one: openEmbeddedStore(clients[0], requestMs),
    two: openEmbeddedStore(clients[1], requestMs),
    async close() {
      for (const bus of [...clients, keeper]) await bus.close();
      await broker.close();
    },
  };
});

const test = suite("serveStore()");

async function codeOf(promise: Promise<unknown>): Promise<string> {
  try {
    await promise;
  } catch (error) {
    if (error instanceof BusError) return error.code;
    throw error;
  }
  return "none";
}

test("serveStore() serves until it is stopped, and what fails there fails here", async () => {
  const { url, broker } = await startBroker();
  const keeper = await connect(url, "keeper", "all");
  const client = await connect(url, "one");
  try {
    const store = openEmbeddedStore(client, requestMs);
    assert.is(await codeOf(store.get("a")), "NO_RESPONDERS");
    const kept = new MemoryStore();
    const stop = serveStore(keeper, kept);
    await settled(keeper);
    await store.create("a", new Uint8Array([1]));
    assert.equal((await kept.get("a"))?.value, new Uint8Array([1]));
    stop();
    await settled(keeper);
    assert.is(await codeOf(store.get("a")), "NO_RESPONDERS");
    class BrokenStore extends MemoryStore {
      override get(): Promise<never> {
        return Promise.reject(new Error("broken"));
      }
    }
    serveStore(keeper, new BrokenStore());
    await settled(keeper);
    assert.is(await codeOf(openEmbeddedStore(client).get("a")), "TIMEOUT");
    assert.is(keeper.counters.handlerErrors, 1);
  } finally {
    await client.close();
    await keeper.close();
    await broker.close();
  }
});

test("a worker has no right to the store", async () => {
  const { url, broker } = await startBroker();
  const keeper = await connect(url, "keeper", "all");
  const worker = await connect(url, "worker");
  try {
    const kept = new MemoryStore();
    serveStore(keeper, kept);
    await settled(keeper);
    const store = openEmbeddedStore(worker, requestMs);
    assert.is(await codeOf(store.create("a", new Uint8Array(0))), "REFUSED");
    assert.equal(await kept.list(""), []);
    assert.ok(worker.connected);
  } finally {
    await worker.close();
    await keeper.close();
    await broker.close();
  }
});

test.run();
