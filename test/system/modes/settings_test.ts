// Session parameters in transaction pooling that PostgreSQL does not report: what a client sets is its own on every
// server it gets, as long as PostgreSQL says, and nobody else's. The oracle is a direct connection that is told the
// same. Clients alternate on two servers. Replay a failure with PGWEIR_FUZZ_SEED=<the printed seed>.
// limit: 360 s

import process from "node:process";
import type { Message } from "../../../shared/wire/mod.ts";
import { assert, seededRandom, suite } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f, notation } from "../../support/notation.ts";
import { type Pgweir, startPgweir } from "../../support/pgweir.ts";
import { type Postgres, startPostgres } from "../../support/postgres.ts";
import type { RawClient } from "../../support/raw_client.ts";
import {
  closeAll,
  connectString,
  login,
  nothingHangs,
  open,
  Twin,
  upTo,
} from "../protocol/support.ts";

needs("postgresql");

const test = suite("session parameters");
const seed = Number(process.env["PGWEIR_FUZZ_SEED"] ?? Date.now() % 1e9);
const random = seededRandom(seed);
let postgres: Postgres;
let pooler: Pgweir;

test.before(async () => {
  postgres = await startPostgres();
  const server = connectString(postgres, "dbname=postgres");
  pooler = await startPgweir({
    ini: {
      databases: {
        postgres: `${server} pool_size=2`,
        one: `${server} pool_size=1`,
        session: `${server} pool_size=4 pool_mode=session`,
        single: `${server} pool_size=2 pool_mode=statement`,
        told: `${server} pool_size=1 warn_session_features=notice`,
        refused: `${server} pool_size=1 warn_session_features=refuse`,
      },
      pgbouncer: {
        pool_mode: "transaction",
        server_round_robin: 1,
        ignore_startup_parameters: "geqo",
      },
    },
    userlist: { postgres: "", app: "" },
  });
  await postgres.query(`
    CREATE ROLE app LOGIN; CREATE ROLE r1; CREATE ROLE r2; CREATE ROLE admin SUPERUSER;
    GRANT r1, r2, admin TO app; CREATE SCHEMA s1; CREATE SCHEMA s2;
    CREATE TABLE s1.t AS SELECT 1 AS i; CREATE TABLE s2.t AS SELECT 2 AS i;
    CREATE TABLE public.t AS SELECT 0 AS i`);
});

test.after.each(closeAll);

test.after(async () => {
  await pooler.stop();
  await postgres.stop("immediate");
});

function pick<T>(list: readonly T[]): T {
  return list[Math.floor(random() * list.length)] as T;
}

const shown = [
  "search_path",
  "work_mem",
  "statement_timeout",
  "row_security",
  "extra_float_digits",
  "default_transaction_read_only",
  "app.tenant",
  "role",
  "session_authorization",
  "TimeZone",
  "IntervalStyle",
  "application_name",
];
// A parameter of an application is not there, or empty, once it was: that depends on the server.
const show = `SELECT ${
  shown.map((name) => `coalesce(pg_catalog.current_setting('${name}', true), '')`).join(", ")
}`;

const values: readonly (readonly [name: string, values: readonly string[]])[] = [
  ["search_path", ["s1", "s2", "s2, public", "''", '"$user", public']],
  ["work_mem", ["'1MB'", "'2MB'", "4096", "'64kB'"]],
  ["statement_timeout", ["'1h'", "0", "'50000ms'"]],
  ["row_security", ["off", "on"]],
  ["extra_float_digits", ["0", "1", "3"]],
  ["default_transaction_read_only", ["on", "off"]],
  ["app.tenant", ["'one'", "'it''s \\ 2'", "''"]],
  ["TimeZone", ["'Asia/Tokyo'", "UTC", "'Europe/Rome'"]],
  ["IntervalStyle", ["iso_8601", "postgres"]],
  ["application_name", ["a", "''"]],
];
type Parameters = Readonly<Record<string, string>>;
const logins: readonly Parameters[] = [
  {},
  { TimeZone: "Asia/Tokyo", search_path: "s1" },
  { "app.tenant": "login", WORK_MEM: "3MB", application_name: "mine" },
  { role: "r1", IntervalStyle: "iso_8601" },
];

/** A statement that may do something to a parameter. */
function someSet(): string {
  const [name, all] = pick(values);
  const value = pick(all);
  const quoted = value.startsWith("'") ? value : `'${value}'`;
  const isList = name === "search_path" && value.includes(",");
  return pick([
    () => `SET ${name} = ${value}`,
    () => `SET SESSION ${name} TO ${value}`,
    () => `SET LOCAL ${name} = ${value}`,
    () => `SELECT set_config('${name}', ${quoted}, ${pick(["true", "false", "false"])})`,
    () => `RESET ${name}`,
    () => `SET ${name} TO DEFAULT`,
    () => isList ? "RESET ALL" : pick(["RESET ALL", "RESET ROLE", "SET TIME ZONE LOCAL"]),
    () => pick(["SET ROLE r1", "SET ROLE r2", "SET ROLE NONE", "SET ROLE admin"]),
    () => `SET ${name} = ${value}; SELECT 1/0`,
    () => `SET ${name} = ${value}; SELECT i FROM t`,
    () => `RESET ${name}; SET ${name} = ${value}`,
    () => `DO $$ BEGIN SET ${name} = ${value}; END $$`,
    () => `SELECT set_config(n, ${quoted}, false) FROM (VALUES ('${name}')) v (n)`,
  ])();
}

function someStatement(isOpen: boolean): string {
  const roll = random();
  if (!isOpen) return roll < 0.35 ? "BEGIN" : roll < 0.4 ? "DISCARD ALL" : someSet();
  if (roll < 0.15) return "COMMIT";
  if (roll < 0.25) return "ROLLBACK";
  if (roll < 0.4) return "SAVEPOINT s";
  if (roll < 0.55) return "ROLLBACK TO s";
  if (roll < 0.6) return "SELECT 1/0";
  return someSet();
}

/** What is answered but for parameters, which may be told more often, and for a value that may be told either way. */
function essence(messages: readonly Message[]): string {
  return messages.map((message) => notation(message, { values: true }))
    .filter((text) => !text.startsWith("S")).join(" ");
}

class Pair {
  readonly pooled: RawClient;
  readonly direct: RawClient;
  isOpen = false;

  constructor({ pooled, direct }: Twin) {
    this.pooled = pooled;
    this.direct = direct;
  }

  /** The same on both; returns what both have answered. */
  async told(parts: readonly Uint8Array[], count = 1): Promise<string> {
    const answers = [this.pooled, this.direct].map(async (client) => {
      client.send(...parts);
      return essence(await client.messagesUntil("Z", count, 30_000));
    });
    const [pooled = "", direct = ""] = await Promise.all(answers);
    assert.is(pooled, direct);
    return pooled;
  }
}

async function pairOf(database: string, parameters: Parameters = {}, user = "app"): Promise<Pair> {
  const as = { user, parameters };
  return new Pair(await Twin.login(pooler, postgres, { ...as, database }, { ...login, ...as }));
}

/** A name that the text has not is not known, if it has a dot. */
function isFollowed(sql: string): boolean {
  return !(sql.includes("set_config(n") && sql.includes("app.tenant"));
}

for (const database of ["postgres", "one", "session", "single"]) {
  test(`random programs on several clients are as on connections of their own: ${database}`, async () => {
    const isSingle = database === "single";
    for (let round = 0; round < 12; round++) {
      const pairs = await Promise.all(logins.map((parameters) => pairOf(database, parameters)));
      const history: string[] = [];
      try {
        for (let step = 0; step < 60; step++) {
          const open = pairs.filter((pair) => pair.isOpen);
          const most = database === "one" ? 1 : 2;
          const pair = open.length >= most && database !== "session" ? pick(open) : pick(pairs);
          let sql = someStatement(pair.isOpen);
          while (!isFollowed(sql) || (isSingle && sql === "BEGIN")) {
            sql = someStatement(pair.isOpen);
          }
          history.push(`${pairs.indexOf(pair)} ${sql}`);
          const parts = sql.includes(";") || random() < 0.5
            ? [f.Q(sql)]
            : random() < 0.5
            ? [f.P("", sql), f.B(), f.E(), f.S()]
            : [f.C("S", "n"), f.P("n", sql), f.B("", "n"), f.E(), f.S()];
          const told = await pair.told(parts);
          pair.isOpen = !told.endsWith("Z(I)");
          if (!told.endsWith("Z(E)")) await pair.told([f.Q(show)]);
        }
        for (const pair of pairs) if (pair.isOpen) await pair.told([f.Q("COMMIT")]);
        for (const pair of pairs) {
          for (const _ of upTo(3)) await pair.told([f.Q(show)]);
          for (const name of ["TimeZone", "IntervalStyle", "application_name"]) {
            assert.is(pair.pooled.settings.get(name), pair.direct.settings.get(name), name);
          }
        }
        closeAll();
      } catch (error) {
        console.log(`seed ${seed}, round ${round}\n${history.slice(-25).join("\n")}`);
        throw error;
      }
    }
  });
}

// What follows a client is kept in the worker's memory for as long as the client is there.
test("100 parameters of 8 KiB follow a client, 16 KiB in all: beyond that it is told, and keeps what it had", async () => {
  let client = await open(pooler, login);
  const set = (name: string, value: string) => `SET my.${name} = '${value}'`;
  const value = async (name: string) => {
    const sql = `SELECT coalesce(current_setting('my.${name}', true), '')`;
    // The two servers take turns.
    const [one, other] = [await client.query(sql), await client.query(sql)];
    assert.equal(one, other);
    return one[0]![0];
  };
  const hundred = upTo(100).map((i) => set(`p${i}`, "v"));
  client.send(f.Q(hundred.join(";")));
  assert.is(await client.replies(), `${'C"SET" '.repeat(100)}Z(I)`);
  assert.is(await value("p100"), "v");
  client.send(f.Q(set("p101", "v")));
  assert.is(await client.replies(), 'C"SET" E(54000) Z(I)');
  assert.equal([await value("p1"), await value("p100"), await value("p101")], ["v", "v", ""]);
  client = await open(pooler, login);
  const most = "x".repeat(8192);
  client.send(f.Q(set("big", most)));
  assert.is(await client.replies(), 'C"SET" Z(I)');
  assert.is(await value("big"), most);
  for (const [name, more] of [["more", most], ["big", `${most}x`]] as const) {
    client.send(f.Q(set(name, more)));
    assert.is(await client.replies(), 'C"SET" E(54000) Z(I)', name);
  }
  assert.equal([await value("big"), await value("more")], [most, ""]);
});

test("the pooler and its servers are well after all this", async () => {
  await nothingHangs(pooler, postgres);
});

test.run();
