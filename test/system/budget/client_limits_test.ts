// Limits on clients are those of the whole host, whatever workers the kernel gives the clients to: the last one
// gets in, the next does not, and one that leaves makes room for one. In static mode each worker has its part.
// limit: 400 s

import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import type { Pgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { type Login, RawClient, ServerError } from "../../support/raw_client.ts";
import { note, ownerOf, patienceMs, startHost } from "./support.ts";

needs("postgresql");

const postgres = await startPostgres({ settings: { max_connections: "60" } });
await postgres.query("CREATE ROLE app LOGIN");
await postgres.query("CREATE ROLE bea LOGIN");
const at = `host=127.0.0.1 port=${postgres.port} dbname=postgres pool_size=4`;
const databases = { app: at, shop: at };
const users = ["app", "bea"];

const full = "FATAL 53300 no more connections allowed (max_client_conn)";
const databaseFull = "FATAL 53300 client connections exceeded (max_db_client_connections)";
const userFull = "FATAL 53300 client connections exceeded (max_user_client_connections)";

/** A client that got in, or the words in which it was refused. */
async function tryLogin(host: Pgweir, login: Login): Promise<RawClient | string> {
  try {
    return await RawClient.login(host, login);
  } catch (error) {
    if (!(error instanceof ServerError)) throw error;
    const { severity, code, message } = error.fields;
    return `${severity} ${code} ${message}`;
  }
}

/** So many logins at once: who got in, and the words for the others, each once. */
async function logins(
  host: Pgweir,
  count: number,
  login: Login,
): Promise<{ clients: RawClient[]; refusals: string[] }> {
  const results = await Promise.all(Array.from({ length: count }, () => tryLogin(host, login)));
  const clients = results.filter((result) => typeof result !== "string");
  return { clients, refusals: [...new Set(results.filter((r) => typeof r === "string"))] };
}

/** The same, each login after the one before is decided. */
async function oneByOne(host: Pgweir, count: number, login: Login): ReturnType<typeof logins> {
  const clients: RawClient[] = [];
  const refusals = new Set<string>();
  for (let i = 0; i < count; i++) {
    const result = await tryLogin(host, login);
    if (typeof result === "string") refusals.add(result);
    else clients.push(result);
  }
  return { clients, refusals: [...refusals] };
}

function perWorker(clients: readonly RawClient[]): number[] {
  const counts = new Map<number, number>();
  for (const client of clients) counts.set(ownerOf(client), (counts.get(ownerOf(client)) ?? 0) + 1);
  return [...counts.values()];
}

/** Waits until one more gets in, and checks that it was the only place. */
async function exactlyOneMore(host: Pgweir, login: Login, refusal: string): Promise<RawClient> {
  const client = await until("one more to get in", async () => {
    const result = await tryLogin(host, login);
    if (typeof result !== "string") return result;
    assert.is(result, refusal);
    return null;
  }, patienceMs);
  assert.equal(await logins(host, 8, login), { clients: [], refusals: [refusal] });
  return client;
}

const tests = suite("limits on clients of several workers");

tests.after(() => postgres.stop("immediate"));

// Each worker had a quarter of the limit: clients were refused with most places free, or four times as many let in.
tests("max_client_conn is the limit of all workers together", async () => {
  const host = await startHost({ postgres, databases, users, pgbouncer: { max_client_conn: 100 } });
  const login = { user: "app", database: "app" };
  // All at once: slots that were kept for clients who had been refused were lacking elsewhere.
  const { clients, refusals } = await logins(host, 130, login);
  assert.equal(refusals, [full]);
  // On a machine that stands still a slot may come when its client was refused: the next one has it.
  assert.ok(clients.length > 90, `only ${clients.length} got in`);
  await until("the limit to be reached", async () => {
    clients.push(...(await logins(host, 100 - clients.length, login)).clients);
    return clients.length === 100;
  }, patienceMs);
  note(`100 clients of 130 got in: ${perWorker(clients).join(" + ")}`);
  assert.equal(await logins(host, 8, login), { clients: [], refusals: [full] });
  // Who operates it still gets in.
  assert.is((await host.console("SHOW VERSION")).length, 1);
  for (let i = 0; i < 6; i++) {
    await clients.shift()!.end();
    clients.push(await exactlyOneMore(host, login, full));
  }
  // All who are in are served, and all places come back.
  for (const client of clients) assert.equal(await client.query("SELECT 1"), [["1"]]);
  for (const client of clients) client.close();
  let again: RawClient[] = [];
  await until("all places to be free again", async () => {
    again = again.concat((await logins(host, 100 - again.length, login)).clients);
    return again.length === 100;
  }, patienceMs);
  for (const client of again) client.close();
  await host.stop();
});

tests("limits per database and per user are limits of all workers together", async () => {
  const host = await startHost({
    postgres,
    databases,
    users,
    pgbouncer: { max_db_client_connections: 10, max_user_client_connections: 13 },
  });
  // One after the other: of logins at once that both limits are too small for, either may be named.
  const app = await oneByOne(host, 14, { user: "app", database: "app" });
  assert.is(app.clients.length, 10);
  assert.equal(app.refusals, [databaseFull]);
  const shop = await oneByOne(host, 8, { user: "app", database: "shop" });
  assert.is(shop.clients.length, 3);
  assert.equal(shop.refusals, [userFull]);
  // Who was refused for one of the limits took nothing of the others.
  const bea = await oneByOne(host, 14, { user: "bea", database: "shop" });
  assert.is(bea.clients.length, 7);
  assert.equal(bea.refusals, [databaseFull]);
  await app.clients.shift()!.end();
  app.clients.push(await exactlyOneMore(host, { user: "app", database: "app" }, databaseFull));
  await bea.clients.shift()!.end();
  bea.clients.push(await exactlyOneMore(host, { user: "bea", database: "shop" }, databaseFull));
  for (const client of [app, shop, bea].flatMap(({ clients }) => clients)) client.close();
  await host.stop();
});

/** Logs in until so many are in, though workers that have their part refuse. */
async function fill(host: Pgweir, count: number, login: Login, refusal: string) {
  const clients: RawClient[] = [];
  await until(`${count} clients`, async () => {
    const more = await oneByOne(host, 8, login);
    clients.push(...more.clients);
    assert.ok(more.refusals.every((words) => words === refusal), more.refusals.join());
    return clients.length >= count;
  }, patienceMs);
  return clients;
}

tests("in static mode each worker has its part of every limit", async () => {
  const host = await startHost({
    postgres,
    databases,
    users,
    pgbouncer: {
      max_client_conn: 40,
      max_db_client_connections: 24,
      max_user_client_connections: 32,
    },
    pgweir: { budget_mode: "static" },
  });
  const app = await fill(host, 24, { user: "app", database: "app" }, databaseFull);
  assert.equal(perWorker(app), [6, 6, 6, 6]);
  const shop = await fill(host, 8, { user: "app", database: "shop" }, userFull);
  assert.equal(perWorker(shop), [2, 2, 2, 2]);
  const bea = await fill(host, 8, { user: "bea", database: "shop" }, full);
  assert.equal(perWorker(bea), [2, 2, 2, 2]);
  const more = await logins(host, 16, { user: "bea", database: "shop" });
  assert.equal(more, { clients: [], refusals: [full] });
  for (const client of [...app, ...shop, ...bea]) client.close();
  await host.stop();
});

tests.run();
