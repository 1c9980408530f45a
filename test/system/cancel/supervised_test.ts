// Cancels on a supervised host, `pgweir up`, whose workers die and are replaced.
// limit: 240 s

import { cancelKeyWorker } from "../../../shared/wire/mod.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import { startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { signal } from "../../support/processes.ts";
import { RawClient } from "../../support/raw_client.ts";

needs("postgresql");

const postgres = await startPostgres();
const host = await startPgweir({
  ini: { databases: { postgres: `host=127.0.0.1 port=${postgres.port} pool_size=40` } },
  workers: 4,
  readyTimeoutMs: 60_000,
});
const login = { user: "postgres", database: "postgres" };
const CANCELLED = "T E(57014) Z(I)";
const ownerOf = (client: RawClient) => cancelKeyWorker(client.key!.processId, client.key!.secret);

async function clientsOf(workers: number, each: number): Promise<RawClient[]> {
  const found = new Map<number, RawClient[]>();
  await until(
    `clients on ${workers} workers`,
    async () => {
      const client = await RawClient.login(host, login).catch(() => null);
      if (client === null) return false;
      const list = found.get(ownerOf(client)) ?? [];
      found.set(ownerOf(client), list);
      if (list.length < each) list.push(client);
      else client.close();
      return found.size === workers && [...found.values()].every((some) => some.length === each);
    },
    60_000,
    0,
  );
  return [...found.values()].flat();
}

const tests = suite("cancels on a supervised host");

tests.after(async () => {
  await host.stop();
  await postgres.stop("immediate");
});

// A worker died: cancels for the others went to it for a while, and those of its successor to nobody.
tests(
  "a worker's death takes its own queries only, and its successor is cancelled like any",
  async () => {
    const asleep = async () =>
      (await postgres.backends()).filter((b) => b.wait_event === "PgSleep").length;
    const clients = await clientsOf(4, 2);
    for (const client of clients) client.send(f.Q("SELECT pg_sleep(300)"));
    await until("all to run", async () => await asleep() === clients.length, 30_000);
    const workers = host.workerPids();
    signal(workers[1]!, "SIGKILL");
    const gone = await until("its clients to lose it", () => {
      const lost = clients.filter((client) => client.closeReason !== null);
      return lost.length === 2 ? lost : null;
    }, 30_000);
    const left = clients.filter((client) => !gone.includes(client));
    for (const client of left) {
      assert.is(await client.cancel(), "");
      assert.is(await client.replies(1, { timeoutMs: 30_000 }), CANCELLED);
    }
    await until(
      "a successor",
      () => host.workerPids().length === 4 && !host.workerPids().includes(workers[1]!),
      60_000,
    );
    const fresh = await clientsOf(4, 1);
    for (const client of fresh) {
      client.send(f.Q("SELECT pg_sleep(301)"));
    }
    await until(
      "all to run",
      async () => (await postgres.backends()).filter((b) => b.query.includes("301")).length === 4,
      30_000,
    );
    // Nobody's any more: each is closed, whoever has the id now.
    for (const client of gone) assert.is(await client.cancel(), "");
    for (const client of fresh) await client.readNothingFor(10);
    for (const client of fresh) {
      assert.is(await client.cancel(), "");
      assert.is(await client.replies(1, { timeoutMs: 30_000 }), CANCELLED);
    }
    for (const client of [...left, ...fresh]) await client.end();
  },
);

tests.run();
