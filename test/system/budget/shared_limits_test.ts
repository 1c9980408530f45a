// Limits over several pools: of a database over its users, of a user over its databases. A pool that has clients
// waiting gets the slots that others hold idle, the longest idle first; under load each pool gets its share.
// limit: 400 s

import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import type { Pgweir } from "../../support/pgweir.ts";
import { type Login, RawClient } from "../../support/raw_client.ts";
import {
  all,
  assertNeverRefused,
  BackendWatch,
  Load,
  note,
  patienceMs,
  pause,
  startHost,
  startLimitedPostgres,
  Work,
} from "./support.ts";

needs("postgresql");

const limit = 8;
const users = ["ann", "bob", "cid", "dan"];
const postgres = await startLimitedPostgres(Object.fromEntries(users.map((user) => [user, limit])));
const at = `host=127.0.0.1 port=${postgres.port} dbname=postgres`;
const watch = await BackendWatch.start(postgres, 5);

/** What a test that fails leaves at work. */
const hosts: Pgweir[] = [];
const loads: Load[] = [];

async function start(pgbouncer: Record<string, number>): Promise<Pgweir> {
  watch.reset();
  const host = await startHost({ postgres, users, databases: { app: at, shop: at }, pgbouncer });
  hosts.push(host);
  return host;
}

function load(host: Pgweir, count: number, who: Login): Load {
  const started = new Load(host, { clients: count, login: who, sleepMs: 20 });
  loads.push(started);
  return started;
}

const login = (user: string, database = "app"): Login => ({ user, database });
const of = (user: string) => watch.now.filter(({ usename }) => usename === user);

function clients(host: Pgweir, count: number, who: Login): Promise<RawClient[]> {
  return Promise.all(Array.from({ length: count }, () => RawClient.login(host, who)));
}

async function end(list: readonly RawClient[]): Promise<void> {
  await Promise.all(list.map((client) => client.end()));
}

const tests = suite("limits over several pools");

tests.after(async () => {
  // Without a host all that clients wait for is over.
  for (const host of hosts) await host.stop();
  for (const load of loads) await load.stop();
  await watch.stop();
  await postgres.stop("immediate");
});

// Idle servers of one user filled the database, and nobody else got in until they had timed out.
tests("a database's limit: idle servers of one user make room for another", async () => {
  const host = await start({ default_pool_size: limit, max_db_connections: limit });
  const ann = await clients(host, limit, login("ann"));
  // One open transaction each, so that there are as many servers as clients.
  const pids = await all(ann, "BEGIN; SELECT pg_backend_pid()");
  assert.is(new Set(pids).size, limit);
  await ann[3]!.query("COMMIT");
  await until(
    "it to be idle the longest",
    () => of("ann").some((s) => s.restsMs > 1_500 && s.state === "idle"),
    patienceMs,
  );
  for (const client of ann) if (client !== ann[3]) await client.query("COMMIT");
  await until(
    "all to be idle",
    () => watch.count(({ state }) => state === "idle") === limit,
    patienceMs,
  );

  // One server for another user: the one that was idle the longest goes, and no other.
  const [bob] = await clients(host, 1, login("bob"));
  assert.equal(await bob!.query("SELECT 1"), [["1"]]);
  await watch.fresh();
  const left = of("ann").map(({ pid }) => String(pid));
  assert.not.ok(left.includes(pids[3]!), "the longest idle one is still there");
  note(`${left.length} of ${limit} idle servers were left when another user needed one`);

  // And all of them when all are needed.
  const bobs = await clients(host, limit, login("bob"));
  const began = performance.now();
  const bobPids = await all(bobs, "BEGIN; SELECT pg_backend_pid()");
  note(`${limit} servers for another user after ${Math.round(performance.now() - began)} ms`);
  assert.is(new Set(bobPids).size, limit);
  await watch.fresh();
  assert.is(of("ann").length, 0);
  await all(bobs, "COMMIT; SELECT 1");
  assert.ok(watch.most <= limit, `${watch.most} backends, wanted ${limit} at most`);
  await end([...ann, bob!, ...bobs]);
  await host.stop();
});

tests("a user's limit: databases share it, and it moves between them", async () => {
  const host = await start({ default_pool_size: limit, max_user_connections: 6 });
  const app = await clients(host, 12, login("ann", "app"));
  const shop = await clients(host, 12, login("ann", "shop"));
  const other = await clients(host, 2, login("bob", "shop"));
  for (const list of [app, shop, app]) {
    const work = new Work(list);
    await until(
      "all six to be in use",
      () => {
        return of("ann").filter(({ state }) => state === "active").length === 6;
      },
      patienceMs,
      1,
    );
    // Another user is not held up by it.
    assert.equal(await all(other, "SELECT 5"), ["5", "5"]);
    await work.stop();
  }
  const loads = ["app", "shop"].map((database) => load(host, 20, login("ann", database)));
  for (const load of loads) await load.more(100);
  for (const load of loads) await load.stop();
  assert.equal(loads.flatMap(({ errors }) => errors), []);
  note(
    `with both at work: ${
      loads.map(({ transactions }) => transactions).join(" and ")
    } transactions`,
  );
  await end([...app, ...shop, ...other]);
  await host.stop();
});

tests("four users of a database share its limit while all have more to do than fits", async () => {
  const host = await start({ default_pool_size: limit, max_db_connections: limit });
  const loads = users.map((user) => load(host, 30, login(user)));
  await until(
    "each to have a server",
    () => users.every((user) => of(user).length > 0),
    patienceMs,
  ).catch((error) => {
    const seen = users.map((user, i) => {
      const { transactions, errors } = loads[i]!;
      return `${user} ${
        of(user).length
      } servers, ${transactions} transactions, ${errors.length} errors`;
    });
    const problems = loads.flatMap(({ errors }) => errors).slice(0, 3).join("; ");
    throw new Error(`${(error as Error).message}; ${seen.join("; ")}; ${problems}\n${host.log()}`);
  });
  for (const load of loads) await load.more(20);
  let looks = 0;
  let fair = 0;
  const busy = new Map(users.map((user) => [user, 0]));
  watch.onSample = () => {
    looks++;
    const counts = users.map((user) => of(user).length);
    if (counts.every((count) => count >= 1 && count <= 3)) fair++;
    users.forEach((user, i) => busy.set(user, busy.get(user)! + counts[i]!));
  };
  // Slots that cannot be split take turns, so a moment may be uneven where a while is not, and a worker that stands
  // still keeps what it has: the longer the while, the less that counts.
  const means = () => users.map((user) => busy.get(user)! / looks);
  const words = () => means().map((mean) => mean.toFixed(2)).join(", ");
  const isFair = () => means().every((mean) => mean >= 1 && mean <= 3);
  await pause(3_000);
  await until("all to have a share", isFair, patienceMs).catch((error) => {
    throw new Error(`${(error as Error).message}; servers of each on average: ${words()}`);
  });
  watch.onSample = null;
  for (const load of loads) await load.stop();
  assert.equal(loads.flatMap(({ errors }) => errors), []);
  note(
    `servers of each user on average: ${words()}; ${fair} of ${looks} looks with 1 to 3 for each`,
  );
  assert.ok(watch.most <= limit, `${watch.most} backends, wanted ${limit} at most`);
  assertNeverRefused(postgres);
  await host.stop();
});

// A slot went to the next worker before its server had logged in, and that one closed it as one too many: some pools
// had no transaction for minutes, and few had any.
tests("each worker gets on in each pool when logins take longer than a turn", async () => {
  const slots = 5;
  const host = await start({ default_pool_size: limit, max_db_connections: slots });
  // A developer's option of PostgreSQL: seconds that each new backend sleeps.
  await postgres.query("ALTER SYSTEM SET pre_auth_delay = 1");
  await postgres.query("SELECT pg_reload_conf()");
  // So many that each worker has several of each: alone, a client has one transaction in a turn.
  const loads = users.map((user) => load(host, 60, login(user)));
  const least = () => loads.map(({ byWorker }) => Math.min(...byWorker.values()));
  const began = performance.now();
  await until(
    "each worker to have done 5 transactions of each user",
    () => loads.every(({ byWorker }) => byWorker.size === 4) && Math.min(...least()) >= 5,
    patienceMs,
  ).catch((error) => {
    const seen = loads.map(({ byWorker }) => [...byWorker.values()].join(" ")).join("; ");
    throw new Error(`${(error as Error).message}; transactions of each user by worker: ${seen}`);
  });
  note(
    `5 transactions of each user on each worker after ${Math.round(performance.now() - began)} ms`,
  );
  await postgres.query("ALTER SYSTEM RESET pre_auth_delay");
  await postgres.query("SELECT pg_reload_conf()");
  for (const load of loads) await load.stop();
  assert.equal(loads.flatMap(({ errors }) => errors), []);
  assert.ok(watch.most <= slots, `${watch.most} backends, wanted ${slots} at most`);
  assertNeverRefused(postgres);
  await host.stop();
});

tests.run();
