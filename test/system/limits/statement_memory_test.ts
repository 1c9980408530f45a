// What prepared statements cost a worker and its servers when texts never repeat, as where literals are written into
// them: texts that nobody has a name for any more cost nothing, and a server keeps no more than it may.

import { processUsage } from "../../../shared/sys/mod.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import { startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { RawClient } from "../../support/raw_client.ts";
import { growthOf, MIB } from "./bulk_client.ts";

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
/** Ten thousand of them are 35 MiB, with what the pooler needs beside the text. */
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

/** Does something; the pooler is then, or soon, not larger than before by more than so many MiB. */
async function isGivenBack(most: number, work: () => Promise<void>): Promise<void> {
  const size = () => processUsage(pooler.pid)!.residentBytes / MIB;
  const before = size();
  await work();
  const what = `at most ${most} MiB more than ${before.toFixed(0)}`;
  await until(what, () => size() < before + most, 90_000);
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
  // And as much garbage as the engine lets lie.
  assert.ok(once < 150, `grew by ${once.toFixed(1)} MiB`);
  // Were they kept, it would be 210 MiB.
  await isGivenBack(60, async () => {
    for (let i = 0; i < 6; i++) await round();
  });
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
  await crowd();
  await isGivenBack(60, async () => {
    for (let i = 0; i < 5; i++) await crowd();
  });
  for (const { statements } of await onEachServer()) {
    assert.ok(statements <= KEPT, `${statements} statements`);
  }
});

// One client could make a worker as large as the machine by preparing and never closing.
tests("a client has 64 MiB of statements, then an error for each more, and goes on", async () => {
  const large = "x".repeat(4 * MIB);
  const client = await RawClient.login(pooler, login);
  const parse = async (name: string): Promise<string> => {
    client.send(f.P(name, `SELECT '${name}${large}'`), f.B("", name), f.S());
    return await client.replies(1, { timeoutMs: 30_000 });
  };
  for (let i = 0; i < 15; i++) assert.is(await parse(`s${i}`), "1 2 Z(I)");
  assert.is(await parse("s15"), "E(54000) Z(I)");
  await client.query("BEGIN");
  assert.is(await parse("s15"), "E(54000) Z(E)");
  await client.query("ROLLBACK");
  // What it has it keeps, although no server keeps so much.
  client.send(f.B("", "s0"), f.S(), f.D("S", "s14"), f.S(), f.P("", "SELECT 1"), f.B(), f.S());
  assert.is(await client.replies(3), "2 Z(I) t(0) T Z(I) 1 2 Z(I)");
  const [row] = await client.query("SELECT sum(length(statement)) FROM pg_prepared_statements");
  assert.ok(Number(row![0]) < 16 * MIB, `${row![0]} bytes on the server`);

  client.send(f.C("S", "s0"), f.S());
  assert.is(await client.replies(), "3 Z(I)");
  assert.is(await parse("s15"), "1 2 Z(I)");
  assert.is(await parse("s16"), "E(54000) Z(I)");
  await client.query("DEALLOCATE s1");
  assert.is(await parse("s16"), "1 2 Z(I)");
  await client.query("DISCARD ALL");
  for (let i = 0; i < 15; i++) assert.is(await parse(`s${i}`), "1 2 Z(I)");
  await client.end();
  const next = await RawClient.login(pooler, login);
  next.send(f.P("s", "SELECT 1"), f.B("", "s"), f.S());
  assert.is(await next.replies(), "1 2 Z(I)");
  await next.end();
});

tests.run();
