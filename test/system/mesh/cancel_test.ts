// Hosts that are one mesh, over a cluster of nats-servers: they know of each other's workers, a cancel finds its
// query on any host, and a host that is cut off from the others goes on without them.
// limit: 600 s

import { cancelKeyWorker } from "../../../shared/wire/mod.ts";
import { assert, seededRandom, suite, until } from "../../support/harness.ts";
import { needsHosts } from "../../support/hosts.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import { RawClient, sendCancel } from "../../support/raw_client.ts";
import { login, makeMesh, type MeshHost, PresenceWatch } from "./mesh.ts";

needs("postgresql", "nats-server", "iproute2");
needsHosts();

const CANCELLED = "T E(57014) Z(I)";
const seed = Date.now();
const random = seededRandom(seed);
const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)]!;
const ownerOf = (client: RawClient) => cancelKeyWorker(client.key!.processId, client.key!.secret);

const mesh = await makeMesh({
  names: ["north", "south", "west"],
  database: "pool_size=100",
  own: { budget_mode: "leased" },
});
const { hosts, network, postgres } = mesh;
const [north, south, west] = hosts as [MeshHost, MeshHost, MeshHost];
const bus = await mesh.bus();
const presence = new PresenceWatch(bus);
const watcher = await RawClient.login(postgres, login);

/** Waits until so many queries sleep in PostgreSQL. */
const sleeping = (count: number) =>
  until(`${count} queries to run`, async () => {
    const [row] = await watcher.query(
      "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'",
    );
    return Number(row![0]) === count;
  }, 60_000);

const sleep = (client: RawClient) => client.send(f.Q("SELECT pg_sleep(300)"));

const cancelAt = (host: MeshHost, client: RawClient) =>
  sendCancel(host.clients, client.key!.processId, client.key!.secret);

/**
 * Sends cancels to a host until one has ended the query of a client. Others may be under way then, and would be
 * right to end what the client runs next; `settled` waits for them.
 */
async function cancelled(
  host: MeshHost,
  client: RawClient,
): Promise<{ settled(): Promise<unknown> }> {
  const closings: Promise<string>[] = [];
  await until(
    `a cancel at ${host.name}`,
    () => {
      if (client.unread === 0) closings.push(cancelAt(host, client));
      return client.unread > 0;
    },
    60_000,
    250,
  );
  assert.is(await client.replies(), CANCELLED);
  const all = Promise.all(closings);
  all.catch(() => {});
  return { settled: () => all };
}

/** Clients of a host, so many of each of its workers. */
async function clientsOf(host: MeshHost, each: number): Promise<RawClient[]> {
  const found = new Map<number, RawClient[]>();
  await until(
    `clients of all workers of ${host.name}`,
    async () => {
      const client = await host.login();
      const list = found.get(ownerOf(client)) ?? [];
      found.set(ownerOf(client), list);
      if (list.length < each) list.push(client);
      else await client.end();
      return found.size === 2 && [...found.values()].every((some) => some.length === each);
    },
    120_000,
    0,
  );
  return [...found.values()].flat();
}

/** Runs short queries on a client until told to end; an error is thrown then. */
class Asking {
  count = 0;
  readonly #done: Promise<void>;
  #over = false;

  constructor(client: RawClient) {
    this.#done = this.#run(client);
    this.#done.catch(() => {});
  }

  async #run(client: RawClient): Promise<void> {
    while (!this.#over) {
      client.send(f.Q("SELECT 1"));
      assert.is(await client.replies(), 'T D C"SELECT 1" Z(I)');
      this.count++;
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  }

  end(): Promise<void> {
    this.#over = true;
    return this.#done;
  }
}

/** Waits until each has been answered several times more. */
async function allGoOn(asking: readonly Asking[]): Promise<void> {
  const goals = asking.map(({ count }) => count + 5);
  await until("all to be served", () => asking.every(({ count }, at) => count >= goals[at]!));
}

const tests = suite(`a mesh of hosts (seed ${seed})`);

tests.after(async () => {
  presence.end();
  watcher.close();
  await bus.close();
  await mesh.stop();
});

// Hosts choose ids for their workers without asking each other: two workers with one id got each other's cancels.
tests("hosts that start at the same instant have workers with ids of their own", async () => {
  for (let round = 0; round < 3; round++) {
    presence.workers.clear();
    await mesh.start();
    const ready = await until("all workers", () => {
      const workers = presence.ready();
      return workers.length === 6 ? workers : null;
    }, 60_000);
    assert.is(new Set(ready.map((worker) => worker.id)).size, 6);
    assert.equal(
      ready.map((worker) => worker.host).sort(),
      hosts.flatMap((host) => [host.name, host.name]).sort(),
    );
    const pids = hosts.flatMap((host) => host.servicePids("pooler"));
    assert.equal(ready.map((worker) => worker.pid).sort(), pids.sort());
    if (round === 2) break;
    for (const end of await Promise.all(hosts.map((host) => host.stop()))) {
      assert.equal(end, { code: 0, signal: null });
    }
    await until("all to say goodbye", () => presence.ready().length === 0);
  }
});

// A balancer sends a cancel's connection to any host: it was dropped there, and the query went on.
tests("a cancel ends its query from whichever host it comes, and no other query", async () => {
  const runners = (await Promise.all([
    clientsOf(north, 2),
    clientsOf(south, 1),
    clientsOf(west, 1),
  ])).flat();
  const homes = [north, north, north, north, south, south, west, west];
  const bystanders = await Promise.all(hosts.map((host) => host.login()));
  const asking = bystanders.map((client) => new Asking(client));
  for (const runner of runners) sleep(runner);
  for (let round = 0; round < 200; round++) {
    await sleeping(runners.length);
    const at = Math.floor(random() * runners.length);
    const victim = runners[at]!;
    const other = pick(hosts.filter((host) => host !== homes[at]));
    // A key that is right but for one bit ends nothing, wherever it goes.
    const { processId, secret } = pick(runners).key!;
    const wrong = Uint8Array.from(secret);
    wrong[Math.floor(random() * wrong.length)]! ^= 1 << Math.floor(random() * 8);
    assert.is(await sendCancel(pick(hosts).clients, processId, wrong), "");
    assert.is(victim.unread, 0);
    const began = performance.now();
    const closing = cancelAt(other, victim);
    assert.is(await closing, "");
    // Its owner has 5 s for it: a machine that stands still for that long has it given up.
    const sent = performance.now() - began > 4_500 ? await cancelled(other, victim) : null;
    if (sent === null) {
      assert.is(await victim.replies(1, { timeoutMs: 30_000 }), CANCELLED, `round ${round}`);
    } else await sent.settled();
    for (const runner of runners) {
      assert.is(runner.unread, 0);
      assert.is(runner.closeReason, null);
    }
    sleep(victim);
  }
  await allGoOn(asking);
  for (const each of asking) await each.end();
  await sleeping(runners.length);
  // All at once, each from another host than its own.
  const closings = runners.map((runner, at) =>
    cancelAt(pick(hosts.filter((host) => host !== homes[at])), runner)
  );
  for (const runner of runners) {
    assert.is(await runner.replies(1, { timeoutMs: 30_000 }), CANCELLED);
  }
  assert.equal([...new Set(await Promise.all(closings))], [""]);
  for (const client of [...runners, ...bystanders]) await client.end();
});

// A host that lost the others stood still with them, or its own workers lost each other. And cancels for it were kept
// on the way, and ended other queries of the same clients when the way was open again.
tests(
  "a host that is cut off goes on alone, and what was given up meanwhile stays so",
  async () => {
    const here = await clientsOf(north, 2);
    const there = await clientsOf(south, 1);
    const asking = await Promise.all(hosts.map((host) => host.login()));
    const askers = asking.map((client) => new Asking(client));
    for (const client of [...here, ...there]) sleep(client);
    await sleeping(here.length + there.length);
    const logs = new Map(hosts.map((host) => [host, host.log()]));
    network.cutBetween(north.host, south.host);
    network.cutBetween(north.host, west.host);
    const [lost, kept] = [here.slice(0, 2), here.slice(2)];
    // Several from each of the others, so that all their workers try.
    const closings = [south, west, south, west, south, west].flatMap((host) =>
      lost.map((client) => cancelAt(host, client))
    );
    assert.equal([...new Set(await Promise.all(closings))], [""]);
    for (const client of here) assert.is(client.unread, 0);
    const gaveUp =
      /WARNING (route cancel to worker|cancel request with the key of an unknown worker)/;
    for (const host of [south, west]) {
      await until(`the log of ${host.name} to say so`, () => gaveUp.test(host.log()));
    }
    // Within the host, and among the others, cancels find their way, once the broken ways are known.
    const sent = await Promise.all([
      ...lost.map((client) => cancelled(north, client)),
      cancelled(west, there[0]!),
    ]);
    await Promise.all(sent.map((each) => each.settled()));
    for (const client of lost) sleep(client);
    await sleeping(here.length + there.length - 1);
    await allGoOn(askers);
    network.healAll();
    // What was kept on the way comes before what is sent now.
    await Promise.all([
      ...kept.map((client, at) => cancelled([south, west][at]!, client)),
      cancelled(north, there[1]!),
    ]);
    for (const client of lost) await client.readNothingFor(500);
    await Promise.all(lost.map((client, at) => cancelled([west, south][at]!, client)));
    await allGoOn(askers);
    for (const each of askers) await each.end();
    for (const [host, before] of logs) {
      assert.equal(host.log().slice(before.length).match(/^.* (ERROR|FATAL) .*$/gm) ?? [], []);
    }
    for (const client of [...here, ...there, ...asking]) {
      assert.is(client.unread, 0);
      await client.end();
    }
  },
);

tests.run();
