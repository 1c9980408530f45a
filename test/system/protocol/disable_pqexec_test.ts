// disable_pqexec: the simple query protocol is refused, in every state a client can be in, and costs nobody a server.

import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import { RawClient } from "../../support/raw_client.ts";
import { closeAll, open, startPair } from "./support.ts";

needs("postgresql");

const test = suite("disable_pqexec");
const { postgres, pooler } = await startPair({ settings: { disable_pqexec: 1 } });

test.after.each(closeAll);

test.after(async () => {
  await pooler.stop();
  await postgres.stop("immediate");
});

const extended = [f.P("", "SELECT 1"), f.B(), f.E(), f.S()];

test("a Query ends the connection, idle, in a pipeline and in a transaction; nothing of it runs", async () => {
  const before = [[], extended, [f.P("", "BEGIN"), f.B(), f.E(), f.S()]];
  for (const messages of before) {
    const client = await open(pooler);
    client.send(...messages, f.Q("CREATE TABLE pqexec ()"));
    const replies = await client.repliesUntilClosed();
    assert.match(replies, /(^| )E\(0A000\) closed$/);
  }
  const found = await postgres.query(
    "SELECT count(*)::int AS n FROM pg_class WHERE relname = 'pqexec'",
  );
  assert.is(found[0]!["n"], 0);
  await until("the log", () => / pooler error: PQexec disallowed\n/.test(pooler.log()));
});

test("the extended protocol works, on the same server, and so does the console", async () => {
  const client = await open(pooler);
  client.send(...extended);
  assert.is(await client.replies(1), '1 2 D C"SELECT 1" Z(I)');
  const admin = await RawClient.login(pooler, { user: "admin", database: "pgbouncer" });
  assert.is((await admin.table("SHOW VERSION")).length, 1);
  await admin.end();
});

test.run();
