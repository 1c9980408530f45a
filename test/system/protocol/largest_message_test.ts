// The largest message there may be: what PostgreSQL would refuse by its length costs no server connection.

import { assert, suite } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { badFrame } from "../../support/notation.ts";
import type { Pgweir } from "../../support/pgweir.ts";
import type { Postgres } from "../../support/postgres.ts";
import { closeAll, open, startPair } from "./support.ts";

needs("postgresql");

const test = suite("the largest message");
let postgres: Postgres;
let pooler: Pgweir;

test.before(async () => {
  ({ postgres, pooler } = await startPair());
});

test.after.each(closeAll);

test.after(async () => {
  await pooler.stop();
  await postgres.stop("immediate");
});

test("a length that PostgreSQL refuses is refused before a server has seen it", async () => {
  // One byte more than PostgreSQL takes was passed on: it closed the connection, and the client heard of a crash.
  const warm = await open(pooler);
  const before = await warm.query("SELECT pg_backend_pid()");
  for (const type of ["Q", "P", "B", "F"]) {
    const direct = await open(postgres);
    direct.send(badFrame(type, 0x3fffffff, new Uint8Array(64)));
    await direct.closed;
    const client = await open(pooler);
    client.send(badFrame(type, 0x3fffffff, new Uint8Array(64)));
    assert.is(await client.repliesUntilClosed(), "E(08P01) closed", type);
  }
  assert.equal(await warm.query("SELECT pg_backend_pid()"), before);
  await warm.end();
});

test.run();
