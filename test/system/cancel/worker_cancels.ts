// Cancels between the workers of a host, as one suite for both brokers: a cancel's connection lands on any worker,
// and must end the query it names, once, whichever worker runs that.

import { connectBus } from "../../../shared/bus/mod.ts";
import { createLogger } from "../../../shared/telemetry/mod.ts";
import { cancelRequest } from "../../../shared/wire/mod.ts";
import type { StartBroker } from "../../bus/brokers.ts";
import { RawNats } from "../../bus/raw_nats.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { f } from "../../support/notation.ts";
import { startPostgres } from "../../support/postgres.ts";
import { freeze } from "../../support/processes.ts";
import { RawClient, sendCancel } from "../../support/raw_client.ts";
import { ownerOf, startFleet } from "./fleet.ts";

const login = { user: "postgres", database: "postgres" };
const IDS = [3, 700, 20_000, 32_767] as const;
const CANCELLED = "T E(57014) Z(I)";

export async function runWorkerCancels(name: string, startBroker: StartBroker): Promise<void> {
  const postgres = await startPostgres({ settings: { max_connections: "200" } });
  const fleet = await startFleet(startBroker, IDS, {
    databases: { postgres: `host=127.0.0.1 port=${postgres.port} pool_size=100` },
  });
  const tests = suite(`cancels between workers, ${name}`);

  const asleep = () =>
    postgres.query("SELECT count(*)::int AS n FROM pg_stat_activity WHERE wait_event = 'PgSleep'")
      .then((rows) => Number(rows[0]!["n"]));
  const sleeping = (count: number) =>
    until(`${count} queries to run`, async () => await asleep() === count, 30_000);

  tests.after(async () => {
    await fleet.stop();
    await postgres.stop("immediate");
  });

  // The cancel's connection usually reaches a process that has never heard of the key. It was dropped there,
  // and the query and its server went on.
  tests("every cancel ends its query, whichever worker it reaches", async () => {
    const clients = await fleet.clients(5, login);
    const bystanders = await fleet.clients(1, login);
    let over = false;
    const loops = bystanders.map(async (bystander) => {
      while (!over) {
        bystander.send(f.Q("SELECT count(*) FROM generate_series(1, 1000)"));
        assert.is(await bystander.replies(1, { timeoutMs: 30_000 }), 'T D C"SELECT 1" Z(I)');
      }
    });
    try {
      for (let round = 0; round < 5; round++) {
        for (const client of clients) client.send(f.Q("SELECT pg_sleep(300)"));
        await sleeping(clients.length);
        const closings = clients.map((client) => client.cancel());
        for (const client of clients) {
          assert.is(await client.replies(1, { timeoutMs: 30_000 }), CANCELLED);
        }
        assert.equal([...new Set(await Promise.all(closings))], [""]);
      }
    } finally {
      over = true;
      await Promise.all(loops);
    }
    for (const client of [...clients, ...bystanders]) {
      assert.is(client.unread, 0);
      assert.equal(await client.query("SELECT 7"), [["7"]]);
      await client.end();
    }
  });

  // Two workers drew the same numbers, and a cancel that reached the wrong one of them ended a stranger's query.
  tests("the keys of all workers are different", async () => {
    const clients: RawClient[] = [];
    for (let i = 0; i < 80; i++) clients.push(await RawClient.login(fleet, login));
    const keys = clients.map(({ key }) => `${key!.processId} ${key!.secret}`);
    assert.is(new Set(keys).size, clients.length);
    assert.is(new Set(clients.map(({ key }) => key!.processId)).size, clients.length);
    assert.is(new Set(clients.map(({ key }) => `${key!.secret}`)).size, clients.length);
    assert.equal([...new Set(clients.map(ownerOf))].sort((a, b) => a - b), [...IDS]);
    for (const client of clients) await client.end();
  });

  // A forged key made workers ask each other in turn, or held its connection for ever.
  tests("a key that nobody owns is closed without an answer, and asked for once", async () => {
    const [client] = await fleet.clients(1, login);
    const { processId, secret } = client!.key!;
    const log = createLogger({ component: "test", level: "error", format: "text" });
    const bus = await connectBus({
      servers: [fleet.broker.url],
      token: fleet.broker.token,
      name: "test",
      mesh: "default",
      logger: log,
    });
    // One that only listens: a second owner would answer in place of the first.
    const listener = await RawNats.login(fleet.broker.port, fleet.broker.token, { headers: true });
    for (const id of IDS) await listener.write(`SUB ${bus.subjects.cancel(id).subject} ${id}\r\n`);
    await listener.write("PING\r\n");
    await listener.expect(/PONG\r\n/);
    // What asks for a ticket has no headers.
    const asked = () => listener.text.match(/^HMSG /gm)?.length ?? 0;
    client!.send(f.Q("SELECT pg_sleep(300)"));
    await sleeping(1);
    const flipped = Uint8Array.from(secret);
    flipped[3]! ^= 1;
    const random = crypto.getRandomValues(new Uint8Array(4));
    const forged: [number, Uint8Array][] = [
      [processId, flipped],
      [(12_345 << 16) | 7, secret],
      [0, secret],
      [-processId, secret],
      [processId ^ 1, secret],
      [processId, random],
      [(700 << 16) | (processId & 0xffff), flipped],
    ];
    for (const [id, key] of forged) {
      for (let i = 0; i < 4; i++) assert.is(await sendCancel(fleet, id, key), "");
    }
    // Of those that name a worker of the fleet, each is asked of that worker at most once.
    assert.ok(asked() <= 4 * forged.length, `asked ${asked()} times`);
    // A broker sends in order: what was asked before has come now.
    const pongs = () => listener.text.match(/^PONG/gm)?.length ?? 0;
    await listener.write("PING\r\n");
    await until("the broker's answer", () => pongs() > 1);
    const before = asked();
    // A worker that is asked for a key of another one says so and asks nobody.
    const { outcome } = await bus.request(
      bus.subjects.cancel(IDS[1]),
      { processId: IDS[2] << 16 | 5, secret: random, source: IDS[0] },
      10_000,
    );
    assert.is(outcome, "unknown");
    await until("the listener to have heard it", () => asked() > before);
    assert.is(asked(), before + 1);
    await client!.readNothingFor(100);
    listener.close();
    await bus.close();
    assert.is(await client!.cancel(), "");
    assert.is(await client!.replies(), CANCELLED);
    await client!.end();
  });

  // One worker hung: cancels for clients of the others got stuck behind it.
  tests("a stopped worker holds up no cancel that did not reach it", async () => {
    const clients = await fleet.clients(2, login);
    const stopped = IDS[1];
    const others = clients.filter((client) => ownerOf(client) !== stopped);
    for (const client of others) client.send(f.Q("SELECT pg_sleep(300)"));
    await sleeping(others.length);
    await freeze(fleet.worker(stopped).pid);
    const closings: Promise<string>[] = [];
    try {
      for (const client of others) {
        // The kernel may give a connection to the stopped worker: one in 4^8 clients is out of luck.
        for (let i = 0; i < 8; i++) closings.push(client.cancel().catch(() => "late"));
        assert.is(await client.replies(1, { timeoutMs: 30_000 }), CANCELLED);
      }
    } finally {
      fleet.worker(stopped).signal("SIGCONT");
    }
    await Promise.all(closings);
    // What the stopped worker passes on late finds idle clients, and leaves nothing on their connections.
    for (const client of clients) {
      await client.readNothingFor(20);
      await client.end();
    }
  });

  // The owner itself hung: cancels for its clients kept their connections for ever, on every worker.
  tests(
    "cancels for a stopped owner are given up, and those that reached itself still work",
    async () => {
      const clients = await fleet.clients(1, login);
      const client = clients.find((each) => ownerOf(each) === IDS[2])!;
      client.send(f.Q("SELECT pg_sleep(300)"));
      await sleeping(1);
      await freeze(fleet.worker(IDS[2]).pid);
      const connections: RawClient[] = [];
      try {
        // The kernel gives some of them to the owner; one in 10^5 runs has none such.
        for (let i = 0; i < 40; i++) {
          const connection = await RawClient.connect(fleet);
          connection.send(cancelRequest(client.key!.processId, client.key!.secret));
          connections.push(connection);
        }
        await until(
          "a cancel to be given up",
          () => connections.some((connection) => connection.closeReason === ""),
          30_000,
        );
      } finally {
        fleet.worker(IDS[2]).signal("SIGCONT");
      }
      assert.is(await client.replies(1, { timeoutMs: 30_000 }), CANCELLED);
      for (const connection of connections) {
        assert.is(await connection.closed, "");
        assert.is(connection.unread, 0);
      }
      for (const each of clients) await each.end();
    },
  );

  // The broker was away: workers stood still, or never found back to it.
  tests("without the bus traffic goes on, and cancels work again when it is back", async () => {
    const clients = await fleet.clients(2, login);
    await fleet.broker.kill();
    for (const client of clients) assert.equal(await client.query("SELECT 1"), [["1"]]);
    for (const client of clients) client.send(f.Q("SELECT pg_sleep(300)"));
    await sleeping(clients.length);
    // Those that reach the owner by chance work; the others are closed, and no one is answered.
    const closings = await Promise.all(clients.map((client) => client.cancel()));
    assert.equal([...new Set(closings)], [""]);
    await fleet.broker.start();
    await until(
      "every query to be cancelled",
      async () => {
        const running = clients.filter((client) => client.unread === 0);
        await Promise.all(running.map((client) => client.cancel()));
        return running.length === 0;
      },
      60_000,
      50,
    );
    for (const client of clients) {
      assert.is(await client.replies(), CANCELLED);
      await client.end();
    }
  });

  // A worker died and its successor got the same id: keys of the dead one cancelled what the new one ran.
  tests("keys of a dead worker cancel nothing of its successor with the same id", async () => {
    const dead = IDS[3];
    const old = (await fleet.clients(3, login)).filter((client) => ownerOf(client) === dead);
    await fleet.worker(dead).kill();
    for (const client of old) await client.closed;
    for (const client of old) assert.is(await client.cancel(), "", "while nobody has the id");
    await fleet.startWorker(dead);
    const clients = await fleet.clients(2, login);
    for (const client of clients) client.send(f.Q("SELECT pg_sleep(300)"));
    await sleeping(clients.length);
    const closings = await Promise.all(
      old.flatMap((client) => Array.from({ length: 10 }, () => client.cancel())),
    );
    assert.equal([...new Set(closings)], [""]);
    for (const client of clients) await client.readNothingFor(20);
    assert.is(await asleep(), clients.length);
    for (const client of clients) {
      assert.is(await client.cancel(), "");
      assert.is(await client.replies(1, { timeoutMs: 30_000 }), CANCELLED);
      await client.end();
    }
  });

  tests.run();
}
