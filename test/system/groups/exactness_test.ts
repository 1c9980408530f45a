// Limits of resource groups over four workers that share them: group a may run 2, group b 6, and both together 6. Clients
// of both hammer all workers; what runs is counted in PostgreSQL, by locks that each transaction takes and holds to its
// end: one that found no lock free would be one too many, however short that lasted, and would fail.
// limit: 300 s

import { setTimeout as delay } from "node:timers/promises";
import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { RawClient } from "../../support/raw_client.ts";
import { takesOneOf } from "./group_load.ts";

needs("postgresql");

const TOTAL = 6;
const MOST_OF_A = 2;
const CLIENTS = 24;
/** after a reload */
const SHRUNK = 3;
const SAMPLE_MS = 20;
const SAMPLES = 100;

const postgres = await startPostgres();
for (const role of ["a", "b"]) await postgres.query(`CREATE ROLE ${role} LOGIN`);
await postgres.query(takesOneOf);
const watcher = await RawClient.login(postgres, { user: "postgres" });

const ini = (total: number) => ({
  databases: {
    shop: `host=127.0.0.1 port=${postgres.port} dbname=postgres pool_size=20`,
  },
  groups: {
    both: `max_concurrent_queries=${total}`,
    a: `parent=both max_concurrent_queries=${MOST_OF_A} queue_timeout=60`,
    b: `parent=both max_concurrent_queries=${total} queue_timeout=60`,
  },
  group_rules: { a: "user=a group=a", b: "user=b group=b" },
});
const pooler = await startPgweir({
  workers: 4,
  userlist: { postgres: "", admin: "", a: "", b: "" },
  ini: ini(TOTAL),
});

/** Clients of one group, each of which asks for one transaction after the other. */
class Load {
  readonly group: string;
  readonly errors: string[] = [];
  done = 0;
  readonly #query: string;
  #clients: RawClient[] = [];
  #loops: Promise<void>[] = [];
  #ends = false;

  constructor(group: string, query: string) {
    this.group = group;
    this.#query = query;
  }

  async start(): Promise<void> {
    const login = { user: this.group, database: "shop" };
    this.#clients = await Promise.all(
      Array.from({ length: CLIENTS }, () => RawClient.login(pooler, login)),
    );
    this.#loops = this.#clients.map((client) => this.#loop(client));
  }

  async #loop(client: RawClient): Promise<void> {
    while (!this.#ends) {
      try {
        await client.query(this.#query, 120_000);
        this.done++;
      } catch (error) {
        this.errors.push(String(error));
        return;
      }
    }
  }

  async stop(): Promise<void> {
    this.#ends = true;
    await Promise.all(this.#loops);
    for (const client of this.#clients) client.close();
  }
}

const takes = (kind: number, most: number) => `take(1, ${TOTAL}), take(${kind}, ${most})`;
const a = new Load("a", `SELECT ${takes(2, MOST_OF_A)}, pg_sleep(random() * 0.01)`);
const b = new Load("b", `SELECT ${takes(3, TOTAL)}, pg_sleep(random() * 0.01)`);

interface Sample {
  readonly total: number;
  readonly a: number;
  readonly b: number;
}

/** What runs in PostgreSQL at one moment; it looks at all its locks at once. */
async function sample(): Promise<Sample> {
  const kinds = ["1", "2", "3"].map((kind) => `count(*) FILTER (WHERE classid = ${kind})`);
  const [row] = await watcher.query(
    `SELECT ${kinds.join()} FROM pg_locks WHERE locktype = 'advisory'`,
  );
  const [total, ofA, ofB] = row!.map(Number) as [number, number, number];
  return { total, a: ofA, b: ofB };
}

/** Looks so many times, and on until `isEnough`: on a busy machine seldom all run at the moment of a look. */
async function samples(
  count = SAMPLES,
  isEnough: (all: readonly Sample[]) => boolean = () => true,
): Promise<Sample[]> {
  const all: Sample[] = [];
  const deadline = performance.now() + 40_000;
  while (all.length < count || (!isEnough(all) && performance.now() < deadline)) {
    all.push(await sample());
    await delay(SAMPLE_MS);
  }
  return all;
}

const most = (all: readonly Sample[], key: keyof Sample) => Math.max(...all.map((at) => at[key]));

const tests = suite("groups over four workers");

tests.after(async () => {
  await Promise.all([a.stop(), b.stop()]);
  watcher.close();
  await pooler.stop();
  await postgres.stop("immediate");
});

tests(
  "no more run than the groups may, of each and of both together, and that many do",
  async () => {
    await Promise.all([a.start(), b.start()]);
    const isDone = () => a.done > 50 && b.done > 50;
    const all = await samples(SAMPLES, (all) => {
      return isDone() && most(all, "total") >= TOTAL && most(all, "a") >= MOST_OF_A;
    });
    assert.is(most(all, "total"), TOTAL);
    assert.is(most(all, "a"), MOST_OF_A);
    assert.equal([...a.errors, ...b.errors], []);
    assert.ok(isDone(), `${a.done} of a, ${b.done} of b`);
  },
);

tests("with one group idle the other uses all that both may", async () => {
  await a.stop();
  await until("b to run all", async () => (await sample()).b === TOTAL);
  const all = await samples(SAMPLES, (all) => most(all, "b") >= TOTAL);
  assert.is(most(all, "b"), TOTAL);
  assert.is(most(all, "total"), TOTAL);
  assert.equal([...a.errors, ...b.errors], []);
});

tests("a reload that shrinks the groups lets end what runs, and holds from then on", async () => {
  pooler.rewrite(ini(SHRUNK));
  await pooler.console("RELOAD");
  await until("no more to run", async () => most(await samples(10), "total") <= SHRUNK);
  const all = await samples(SAMPLES, (all) => most(all, "total") >= SHRUNK);
  assert.is(most(all, "total"), SHRUNK);
  pooler.rewrite(ini(TOTAL));
  await pooler.console("RELOAD");
  await until("all to run again", async () => (await sample()).total === TOTAL);
  assert.equal([...a.errors, ...b.errors], []);
});

tests.run();
