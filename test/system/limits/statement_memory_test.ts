// What prepared statements cost a worker and its servers when texts never repeat, as where literals are written into
// them: texts that nobody has a name for any more cost nothing, and a server keeps no more than it may.

import { assert, suite } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import { startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { RawClient } from "../../support/raw_client.ts";
import { growthOf } from "./bulk_client.ts";

needs("postgresql");

const KEPT = 100;
const postgres = await startPostgres({ settings: { max_connections: "20" } });
const pooler = await startPgweir({
  ini: {
    databases: { postgres: `host=127.0.0.1 port=${postgres.port} pool_size=2` },
    pgbouncer: { max_prepared_statements: KEPT, max_client_conn: 1000 },
  },
});
const login = { user: "postgres", database: "postgres" };
/** Each text is kept twice where it is kept: ten thousand of them are 42 MiB. */
const padding = "x".repeat(2048);
let texts = 0;

/** Prepares so many texts that were never seen before, a hundred in one write. */
async function prepare(
  client: RawClient,
  count: number,
  kind: "kept" | "closed" | "unnamed",
): Promise<void> {
  for (let done = 0; done < count; done += 100) {
    const parts = Array.from({ length: 100 }, (_, i) => {
      const name = kind === "unnamed" ? "" : `s${done + i}`;
      const parse = f.P(name, `SELECT ${texts++}, '${padding}'`);
      return kind === "closed" ? [parse, f.C("S", name)] : [parse];
    }).flat();
    client.send(...parts, f.S());
    const answers = (kind === "closed" ? "1 3 " : "1 ").repeat(100);
    assert.is(await client.replies(1, { timeoutMs: 30_000 }), `${answers}Z(I)`);
  }
}

/** On each server: what it has prepared, and the memory of the backend in all, in bytes. */
async function onEachServer(): Promise<{ statements: number; bytes: number }[]> {
  const clients = [await RawClient.login(pooler, login), await RawClient.login(pooler, login)];
  const found = [];
  for (const client of clients) {
    await client.query("BEGIN");
    const [row] = await client.query(
      `SELECT (SELECT count(*) FROM pg_prepared_statements),
         (SELECT sum(total_bytes) FROM pg_backend_memory_contexts)`,
    );
    found.push({ statements: Number(row![0]), bytes: Number(row![1]) });
  }
  for (const client of clients) await client.end();
  return found;
}

const tests = suite("memory for statements");

tests.before(async () => {
  const client = await RawClient.login(pooler, login);
  for (const kind of ["unnamed", "closed", "kept"] as const) await prepare(client, 3000, kind);
  await client.end();
});

tests.after(async () => {
  await pooler.stop();
  await postgres.stop("immediate");
});

for (const [kind, most] of [["unnamed", 10], ["closed", 50]] as const) {
  // Every text was remembered, in a table by text that only grew.
  tests(`twenty thousand statements, ${kind}, leave nothing`, async () => {
    const client = await RawClient.login(pooler, login);
    // What the engine takes for itself comes first.
    await prepare(client, 10_000, kind);
    const grown = await growthOf(pooler.pid, () => prepare(client, 20_000, kind));
    assert.ok(grown < most, `grew by ${grown.toFixed(1)} MiB`);
    await client.end();
    for (const { statements } of await onEachServer()) {
      assert.ok(statements <= KEPT, `${statements} statements`);
    }
  });
}

// Where a client never closes what it prepares, its names must be kept; not for longer than it is there, and not on
// the server, whose own memory for each is larger than the pooler's.
tests("statements that are never closed go with their client", async () => {
  const before = await onEachServer();
  const round = async () => {
    const client = await RawClient.login(pooler, login);
    await prepare(client, 10_000, "kept");
    // All of them are there, the oldest too.
    client.send(f.B("", "s0"), f.E(), f.B("", "s9999"), f.E(), f.S());
    assert.is(await client.replies(), '2 D C"SELECT 1" 2 D C"SELECT 1" Z(I)');
    await client.end();
  };
  const once = await growthOf(pooler.pid, round);
  // 42 MiB, and as much garbage as the engine lets lie.
  assert.ok(once < 250, `grew by ${once.toFixed(1)} MiB`);
  for (let i = 0; i < 2; i++) await round();
  const more = await growthOf(pooler.pid, async () => {
    for (let i = 0; i < 3; i++) await round();
  });
  // Were they kept, it would be 126 MiB.
  assert.ok(more < 90, `grew by ${more.toFixed(1)} MiB more`);
  for (const [i, { statements, bytes }] of (await onEachServer()).entries()) {
    assert.ok(statements <= KEPT, `${statements} statements`);
    const grown = (bytes - before[i]!.bytes) / 2 ** 20;
    assert.ok(grown < 8, `a backend grew by ${grown.toFixed(1)} MiB`);
  }
});

// An application of many clients, all of which leave at once.
tests("a hundred clients with a hundred statements each go with all of them", async () => {
  const crowd = async () => {
    const clients = await Promise.all(
      Array.from({ length: 100 }, () => RawClient.login(pooler, login)),
    );
    await Promise.all(clients.map((client) => prepare(client, 100, "kept")));
    for (const client of clients) client.reset();
  };
  for (let i = 0; i < 2; i++) await crowd();
  const grown = await growthOf(pooler.pid, async () => {
    for (let i = 0; i < 3; i++) await crowd();
  });
  assert.ok(grown < 90, `grew by ${grown.toFixed(1)} MiB`);
  for (const { statements } of await onEachServer()) {
    assert.ok(statements <= KEPT, `${statements} statements`);
  }
});

tests.run();
