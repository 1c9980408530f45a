// A reset that is committed holds although an error follows it in the same pipeline, and so does what a client asked
// for at its login; one that is rolled back is none. In all modes; the oracle is a direct connection.

import type { Message } from "../../../shared/wire/mod.ts";
import { assert, suite } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f, notation } from "../../support/notation.ts";
import { type Pgweir, startPgweir } from "../../support/pgweir.ts";
import { type Postgres, startPostgres } from "../../support/postgres.ts";
import { closeAll, connectString, login, nothingHangs, Twin, upTo } from "../protocol/support.ts";

needs("postgresql");

const test = suite("resets and errors");
let postgres: Postgres;
let pooler: Pgweir;

const modes = ["transaction", "statement", "session"] as const;

test.before(async () => {
  postgres = await startPostgres();
  await postgres.query(`CREATE ROLE r1;
    CREATE SCHEMA s_a; CREATE SCHEMA s_b; CREATE TABLE s_a.w AS SELECT 'a' AS t;
    CREATE TABLE s_b.w AS SELECT 'b' AS t; CREATE TABLE public.w AS SELECT 'public' AS t`);
  const server = connectString(postgres, "dbname=postgres pool_size=2");
  pooler = await startPgweir({
    ini: {
      databases: Object.fromEntries(modes.map((mode) => [mode, `${server} pool_mode=${mode}`])),
      pgbouncer: { server_round_robin: 1 },
    },
  });
});

test.after.each(closeAll);

test.after(async () => {
  await pooler.stop();
  await postgres.stop("immediate");
});

const parameters = {
  application_name: "app1",
  client_encoding: "LATIN1",
  lock_timeout: "77",
  options: "-c search_path=s_a -c timezone=Asia/Tokyo",
};

/** Parse, Bind and Execute of each, as pipelines send them. */
const each = (...texts: string[]) => texts.flatMap((sql) => [f.P("", sql), f.B(), f.E()]);
const named = (sql: string) => [f.P("n", sql), f.B("", "n"), f.E(), f.C("S", "n")];

const show = [
  "search_path",
  "TimeZone",
  "application_name",
  "client_encoding",
  "lock_timeout",
  "work_mem",
  "role",
].map((name) => `pg_catalog.current_setting('${name}')`).join(", ");

const settle = [f.Q("SELECT t FROM w"), f.Q(`SELECT ${show}`)];

interface Row {
  readonly before?: string;
  readonly parts: readonly Uint8Array[];
  readonly cycles?: number;
  /** Sent alone behind it. */
  readonly after?: string;
  /** Statement pooling has no blocks. */
  readonly hasBlock?: boolean;
}

const rows: Record<string, Row> = {
  "DISCARD ALL, then an error": { parts: [...each("DISCARD ALL", "SELECT 1/0"), f.S()] },
  "DISCARD ALL, then an unknown statement": {
    parts: [...each("DISCARD ALL"), f.B("", "nope"), f.E(), f.S()],
  },
  "DISCARD ALL by a name, then an error": {
    parts: [...named("DISCARD ALL"), ...each("SELECT 1/0"), f.S()],
  },
  "DISCARD ALL where more was set, then an error": {
    before: "SET search_path = s_b; SET work_mem = '2MB'; SET ROLE r1",
    parts: [...each("DISCARD ALL", "SELECT 1/0"), f.S()],
  },
  "RESET ALL, COMMIT, then an error": {
    before: "SET search_path = s_b; SET work_mem = '2MB'",
    parts: [...each("RESET ALL", "COMMIT", "SELECT 1/0"), f.S()],
  },
  "the same in one Query": {
    before: "SET search_path = s_b; SET work_mem = '2MB'",
    parts: [f.Q("RESET ALL; COMMIT; SELECT 1/0")],
  },
  "RESET ALL, then an error": {
    before: "SET search_path = s_b; SET TimeZone = 'Europe/Rome'",
    parts: [...each("RESET ALL", "SELECT 1/0"), f.S()],
  },
  "one that is committed and one that is not": {
    before: "SET search_path = s_b; SET lock_timeout = 99",
    parts: [...each("RESET lock_timeout", "COMMIT", "RESET search_path", "SELECT 1/0"), f.S()],
  },
  "the same in one Query, the other way round": {
    before: "SET search_path = s_b; SET lock_timeout = 99",
    parts: [f.Q("RESET search_path; COMMIT; RESET lock_timeout; SELECT 1/0")],
  },
  "one that is set again and committed": {
    parts: [...each("RESET search_path", "SET search_path = s_b", "COMMIT", "SELECT 1/0"), f.S()],
  },
  "one in a pipeline, behind an error in the one before": {
    before: "SET search_path = s_b",
    parts: [...each("SELECT 1/0", "RESET ALL"), f.S(), ...each("RESET search_path"), f.S()],
    cycles: 2,
  },
  "a block that is rolled back": {
    before: "SET search_path = s_b; SET lock_timeout = 99",
    parts: [f.Q("BEGIN; RESET ALL; ROLLBACK")],
  },
  "a block that is rolled back, then a reset": {
    before: "SET search_path = s_b; SET lock_timeout = 99",
    parts: [...each("BEGIN", "RESET search_path", "ROLLBACK", "RESET lock_timeout"), f.S()],
  },
  "a rollback to a savepoint in front of it": {
    before: "SET search_path = s_b; SET lock_timeout = 99",
    parts: [
      ...each("BEGIN", "SAVEPOINT s", "RESET search_path", "ROLLBACK TO s", "RESET lock_timeout"),
      ...each("COMMIT"),
      f.S(),
    ],
  },
  "a rollback to a savepoint behind it": {
    before: "SET search_path = s_b",
    parts: [...each("BEGIN", "RESET ALL", "SAVEPOINT s", "ROLLBACK TO s", "COMMIT"), f.S()],
  },
  "one that is committed in front of a block that fails": {
    before: "SET search_path = s_b",
    parts: [...each("RESET ALL", "COMMIT", "BEGIN", "SELECT 1/0"), f.S()],
    after: "ROLLBACK",
    hasBlock: true,
  },
  "a role before RESET ALL": { parts: [f.Q("SET ROLE r1; RESET ALL")] },
};

/** What is answered but for parameters, which may be told more often. */
function essence(messages: readonly Message[]): string {
  return messages.map((message) => notation(message, { values: true }))
    .filter((text) => !text.startsWith("S")).join(" ");
}

for (const mode of modes) {
  for (
    const [what, { before, parts, cycles = 1, after, hasBlock = false }] of Object.entries(rows)
  ) {
    if (hasBlock && mode === "statement") continue;
    test(`${mode} pooling: ${what}`, async () => {
      const twin = await Twin.login(
        pooler,
        postgres,
        { ...login, database: mode, parameters },
        { ...login, parameters },
      );
      const told = async (sent: readonly Uint8Array[], count: number) => {
        const clients = [twin.pooled, twin.direct];
        for (const client of clients) client.send(...sent);
        const [pooled, direct] = await Promise.all(
          clients.map(async (client) => essence(await client.messagesUntil("Z", count))),
        );
        assert.is(pooled, direct);
      };
      if (before !== undefined) await told([f.Q(before)], 1);
      await told(parts, cycles);
      if (after !== undefined) await told([f.Q(after)], 1);
      // Both servers, in turn.
      for (const _ of upTo(2)) for (const part of settle) await told([part], 1);
      for (const name of ["TimeZone", "application_name", "client_encoding"]) {
        const { pooled, direct } = twin;
        assert.is(pooled.settings.get(name), direct.settings.get(name), name);
      }
      await twin.end();
      // And nobody else finds any of it.
      const next = await Twin.login(pooler, postgres, { ...login, database: mode }, login);
      for (const _ of upTo(2)) await next.same([f.Q(`SELECT ${show}`)]);
      await next.end();
    });
  }
}

test("the pooler and its servers are well after all this", async () => {
  await nothingHangs(pooler, postgres);
});

test.run();
