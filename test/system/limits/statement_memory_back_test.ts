// What statements have cost is given back to the system when their clients have left, also by a worker that has
// nothing to do from then on: the engine of a thread that waits for events does not tidy up by itself.

import { processUsage } from "../../../shared/sys/mod.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import { startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { RawClient } from "../../support/raw_client.ts";
import { MIB } from "./bulk_client.ts";

needs("postgresql");

const postgres = await startPostgres();
const pooler = await startPgweir({
  ini: { databases: { postgres: `host=127.0.0.1 port=${postgres.port} pool_size=2` } },
});
const login = { user: "postgres", database: "postgres" };
const padding = "x".repeat(2048);
let texts = 0;

async function prepare(client: RawClient, count: number): Promise<void> {
  for (let done = 0; done < count; done += 100) {
    const parts = Array.from(
      { length: 100 },
      (_, i) => f.P(`s${done + i}`, `SELECT ${texts++}, '${padding}'`),
    );
    client.send(...parts, f.S());
    assert.is(await client.replies(1, { timeoutMs: 30_000 }), `${"1 ".repeat(100)}Z(I)`);
  }
}

const tests = suite("memory that is given back");

tests.after(async () => {
  await pooler.stop();
  await postgres.stop("immediate");
});

// A crowd of clients prepared and left; the worker stayed as large as they had made it until it was restarted.
tests("what statements have cost is given back when their clients have left", async () => {
  const size = () => processUsage(pooler.pid)!.residentBytes / MIB;
  const crowd = async (count: number, each: number) => {
    const clients = await Promise.all(
      Array.from({ length: count }, () => RawClient.login(pooler, login)),
    );
    await Promise.all(clients.map((client) => prepare(client, each)));
    const largest = size();
    for (const client of clients) await client.end();
    return largest;
  };
  await crowd(5, 200);
  const before = size();
  const largest = await crowd(50, 600);
  // The texts alone are 58 MiB.
  assert.ok(largest > before + 50, `${before.toFixed(0)} MiB, then ${largest.toFixed(0)} MiB`);
  await until(`less than half of what came to ${before.toFixed(0)} MiB`, () => {
    return size() < before + (largest - before) / 2;
  }, 90_000);
});

tests.run();
