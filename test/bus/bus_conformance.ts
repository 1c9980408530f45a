// What the bus promises, whichever broker carries it: typed messages, reconnects, frozen brokers.
// Adds its tests to one suite and runs it.

import { Buffer } from "node:buffer";
import {
  type Bus,
  BusError,
  type BusErrorCode,
  type BusOptions,
  connectBus,
  type Presence,
} from "../../shared/bus/mod.ts";
import { encodePayload } from "../../shared/bus/codec.ts";
import { presencePayload } from "../../shared/bus/subjects.ts";
import { connectNats } from "../../shared/bus/transport.ts";
import { createLogger } from "../../shared/telemetry/mod.ts";
import { assert, suite, until } from "../support/harness.ts";
import type { Broker, StartBroker } from "./brokers.ts";
import { answerOf, patientBus, settled } from "./patience.ts";
import { within } from "./raw_nats.ts";

const logger = createLogger({
  component: "test",
  level: "debug",
  format: "text",
  write: () => {},
});

const presence: Presence = {
  id: 7,
  incarnation: 1,
  host: "host-a",
  boot: "boot-a",
  pid: 4711,
  state: "ready",
  addresses: ["127.0.0.1:6432", "[::1]:6432"],
  clients: 3,
  servers: 2,
  configMark: "abc",
  runtime: "bun 1.4.5",
  supervisor: "up-a",
};

const secret = Uint8Array.from([1, 2, 3, 4]);

async function codeOf(promise: Promise<unknown>): Promise<BusErrorCode> {
  try {
    await promise;
  } catch (error) {
    if (error instanceof BusError) return error.code;
    throw error;
  }
  throw new Error("a BusError: is no error");
}

export function busConformance(name: string, startBroker: StartBroker): void {
  const test = suite(name);
  let broker: Broker;
  const opened: { close(): Promise<void> | void }[] = [];

  function closeLater<T extends { close(): Promise<void> | void }>(client: T): T {
    opened.push(client);
    return client;
  }

  function busOptions(clientName: string, options: Partial<BusOptions> = {}): BusOptions {
    return {
      servers: [broker.url],
      token: broker.token,
      mesh: "test",
      name: clientName,
      logger,
      ...patientBus,
      ...options,
    };
  }

  async function bus(clientName: string, options: Partial<BusOptions> = {}): Promise<Bus> {
    return closeLater(await connectBus(busOptions(clientName, options)));
  }

  test.before(async () => {
    broker = await startBroker({});
  });
  test.after.each(async () => {
    for (const one of opened.splice(0)) await one.close();
  });
  test.after(async () => {
    await broker.stop();
  });

  test("presence reaches all, a cancel its owner, and the answer comes back", async () => {
    const [one, two] = [await bus("one"), await bus("two")];
    const got: [number, Presence, string][] = [];
    for (const each of [one, two]) {
      each.subscribe(each.subjects.allPresence, (message, { subject }) => {
        got.push([each === one ? 1 : 2, message, subject]);
      });
    }
    const asked: unknown[] = [];
    const stop = two.subscribe(two.subjects.cancel(2), (request) => {
      asked.push(request);
      return { outcome: "sent" as const };
    });
    await settled(one, two);
    one.publish(one.subjects.presence(7), presence);
    await until("presence on both", () => got.length === 2);
    assert.equal(got.sort((a, b) => a[0] - b[0]), [
      [1, presence, "pgweir.test.presence.7"],
      [2, presence, "pgweir.test.presence.7"],
    ]);
    const request = { processId: 0x7fff_ffff, secret, source: 1 };
    assert.equal(await answerOf(one, two, one.subjects.cancel(2), request), { outcome: "sent" });
    assert.equal(asked, [request]);
    assert.is(
      await codeOf(one.request(one.subjects.cancel(3), request, 30_000)),
      "NO_RESPONDERS",
    );
    stop();
    await settled(two);
    assert.is(
      await codeOf(one.request(one.subjects.cancel(2), request, 30_000)),
      "NO_RESPONDERS",
    );
    two.subscribe(two.subjects.cancel(4), () => new Promise(() => {}));
    await settled(two);
    assert.is(await codeOf(one.request(one.subjects.cancel(4), request, 50)), "TIMEOUT");
  });

  test("a presence under another worker's subject is dropped and counted", async () => {
    const one = await bus("one");
    const forger = closeLater(await connectNats({ servers: broker.url, token: broker.token }));
    let got = 0;
    one.subscribe(one.subjects.allPresence, () => {
      got += 1;
    });
    await settled(one);
    forger.publish("pgweir.test.presence.8", encodePayload(presencePayload, presence));
    forger.publish("pgweir.test.presence.7", Buffer.from("garbage"));
    forger.publish("pgweir.test.presence.7", Buffer.alloc(70_000));
    forger.publish("pgweir.test.presence.7", encodePayload(presencePayload, presence));
    await until("the good one", () => got === 1);
    assert.is(one.counters.malformed, 2);
    assert.is(one.counters.tooLarge, 1);
  });

  test("handlers that throw or reject are counted and harm nobody", async () => {
    const [one, two] = [await bus("one"), await bus("two")];
    let got = 0;
    one.subscribe(one.subjects.allPresence, () => {
      throw new Error("handler");
    });
    one.subscribe(one.subjects.allPresence, () => Promise.reject(new Error("handler")));
    one.subscribe(one.subjects.allPresence, () => {
      got += 1;
    });
    let asked = 0;
    one.subscribe(one.subjects.cancel(1), () => {
      asked += 1;
      return { outcome: "nonsense" } as never;
    });
    await settled(one);
    for (let i = 0; i < 3; i += 1) two.publish(two.subjects.presence(7), presence);
    await until("all", () => got === 3 && one.counters.handlerErrors === 6);
    const request = { processId: 1, secret, source: 2 };
    // The time may be over before it was even asked.
    await until("a question", async () => {
      assert.is(await codeOf(two.request(two.subjects.cancel(1), request, 200)), "TIMEOUT");
      return asked > 0;
    });
    await until("all errors", () => one.counters.handlerErrors === 6 + asked);
    assert.ok(one.connected);
  });

  test("close() lets a running handler answer, then refuses everything", async () => {
    const [one, two] = [await bus("one"), await bus("two")];
    let release = (): void => {};
    let asked = false;
    two.subscribe(two.subjects.cancel(2), async () => {
      asked = true;
      await new Promise<void>((resolve) => release = resolve);
      return { outcome: "idle" as const };
    });
    await settled(two);
    const request = { processId: 1, secret, source: 1 };
    const answer = answerOf(one, two, one.subjects.cancel(2), request);
    await until("the handler to run", () => asked);
    const closing = two.close();
    assert.is(two.close(), closing);
    release();
    assert.equal(await answer, { outcome: "idle" });
    await closing;
    assert.is(two.connected, false);
    assert.is(two.publish(two.subjects.presence(7), presence), false);
    assert.is(await codeOf(two.request(two.subjects.cancel(1), request, 100)), "CLOSED");
    assert.is(await codeOf(two.roundTripMs()), "CLOSED");
    assert.throws(() => two.subscribe(two.subjects.allPresence, () => {}), /bus is closed/);
  });

  test("a broker that is killed and restarted gets the subscriptions back", async () => {
    const [one, two] = [await bus("one"), await bus("two")];
    const got: Presence[] = [];
    let reconnects = 0;
    one.subscribe(one.subjects.allPresence, (message) => {
      got.push(message);
    });
    const stop = one.onReconnect(() => {
      reconnects += 1;
      one.publish(one.subjects.presence(7), { ...presence, clients: 99 });
    });
    one.onReconnect(() => {
      throw new Error("callback");
    });
    await settled(one);
    await broker.kill();
    await until("both to notice", () => !one.connected && !two.connected);
    assert.is(two.publish(two.subjects.presence(7), presence), false);
    assert.is(two.counters.droppedDisconnected, 1);
    const request = { processId: 1, secret, source: 1 };
    assert.is(await codeOf(two.request(two.subjects.cancel(1), request, 100)), "DISCONNECTED");
    assert.is(await codeOf(two.roundTripMs()), "DISCONNECTED");
    // Subscriptions made while disconnected count too.
    two.subscribe(two.subjects.cancel(2), () => ({ outcome: "idle" as const }));
    await broker.start();
    await until("both to be back", () => one.connected && two.connected && reconnects === 1);
    await until("its own state, sent again", () => got.some(({ clients }) => clients === 99));
    await until("the other's", () => {
      two.publish(two.subjects.presence(7), presence);
      return got.some(({ clients }) => clients === presence.clients);
    });
    assert.equal(await answerOf(one, two, one.subjects.cancel(2), request), { outcome: "idle" });
    assert.is(one.counters.disconnects, 1);
    assert.is(one.counters.reconnects, 1);
    stop();
  });

  test("request() gets no answer from a handler that returns null, and that is no error there", async () => {
    const [one, two] = [await bus("silent"), await bus("asking")];
    let asked = 0;
    one.subscribe(one.subjects.budgetGone, () => {
      asked += 1;
      return null;
    });
    await settled(one);
    const gone = { worker: 7, incarnation: 1 };
    assert.is(await codeOf(two.request(two.subjects.budgetGone, gone, 200)), "TIMEOUT");
    await until("the question", () => asked === 1);
    assert.is(one.counters.handlerErrors, 0);
  });

  test("connectBus() with a wrong token is refused at once", async () => {
    const wrong = busOptions("wrong", { token: "wrong", waitOnFirstConnectMs: 60_000 });
    assert.is(await codeOf(connectBus(wrong)), "REFUSED");
  });

  test("one in the background starts without a broker and connects when there is one", async () => {
    await broker.kill();
    const late = await bus("late", { background: true });
    let reconnects = 0;
    let got = 0;
    late.onReconnect(() => {
      reconnects += 1;
    });
    late.subscribe(late.subjects.allPresence, () => {
      got += 1;
    });
    assert.is(late.connected, false);
    assert.is(late.publish(late.subjects.presence(7), presence), false);
    const failing = codeOf(connectBus(busOptions("strict", { waitOnFirstConnectMs: 300 })));
    assert.is(await within("the connect to fail", failing), "UNREACHABLE");
    const patient = connectBus(busOptions("patient", { waitOnFirstConnectMs: 60_000 }));
    const closedEarly = await bus("early", { background: true });
    await closedEarly.close();
    await broker.start();
    closeLater(await patient);
    await until("the late one", () => late.connected && reconnects === 1);
    await until("a message", () => late.publish(late.subjects.presence(7), presence) && got > 0);
  });

  test("a frozen broker is noticed in seconds, even with a full socket", async () => {
    const [quiet, busy] = [await bus("quiet"), await bus("busy")];
    let reconnects = 0;
    quiet.onReconnect(() => {
      reconnects += 1;
    });
    busy.onReconnect(() => {
      reconnects += 1;
    });
    await broker.pause();
    try {
      // The client used to wait for the full socket to drain before it gave the connection up.
      const bulky = { ...presence, addresses: Array.from({ length: 64 }, () => "x".repeat(300)) };
      await until("the output bound", () => {
        for (let i = 0; i < 50; i += 1) busy.publish(busy.subjects.presence(7), bulky);
        return busy.counters.droppedBacklog > 0;
      });
      assert.ok(busy.counters.published < 5000, `${busy.counters.published}`);
      assert.ok(busy.connected);
      await until("both to notice", () => !quiet.connected && !busy.connected);
      // A broker that takes connections and says nothing must not hold a bus that closes.
      const stuck = await bus("stuck", { background: true });
      await within("close()", stuck.close());
    } finally {
      broker.resume();
    }
    await until("both to be back", () => quiet.connected && busy.connected);
    assert.is(reconnects, 2);
    assert.ok(await busy.roundTripMs() >= 0);
  });

  test("close() ends in bounded time while the broker is frozen", async () => {
    const [one, other] = [await bus("one"), await bus("other")];
    one.subscribe(one.subjects.allPresence, () => {});
    await broker.pause();
    try {
      await within("close()", one.close());
      // Not only by the loss of the connection, as which the other one sees it in some seconds.
      assert.ok(other.connected);
    } finally {
      broker.resume();
    }
  });

  test.run();
}
