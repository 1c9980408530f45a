// The Python drivers: steps of psycopg_client.py and asyncpg_client.py as tests. In each 20 clients have the same
// names for statements of their own, pipeline, read cursors, copy, collide and cancel. Not a test.

import { join } from "node:path";
import { assert, type Test, until } from "../../support/harness.ts";
import { type Ran, run, type Side } from "./support.ts";

export type Driver = "psycopg" | "asyncpg";

/** The steps of psycopg that work in every pool mode. */
export const PSYCOPG_STEPS = [
  ...["prepared", "deallocates", "transactions", "conflicts", "pipelines", "cursors", "copies"],
  ...["cancels", "timeouts", "settings"],
];

/** Those of asyncpg. */
export const ASYNCPG_STEPS = [
  ...["prepared", "evicted", "transactions", "cursors", "batches", "copies", "cancels", "pools"],
  "listens",
];

/** Runs one step to its end. */
export function python(driver: Driver, side: Side, step: string, prefix: string): Promise<Ran> {
  const client = join(import.meta.dirname!, `${driver}_client.py`);
  // Debian's Python: the package is not in another that may come first in PATH.
  const command = ["/usr/bin/python3", client, step, side.host, String(side.port)];
  return run([...command, side.database, prefix], { seconds: 180 });
}

/** Registers steps as the tests of one side. */
export function pythonSteps(
  tests: Test,
  driver: Driver,
  side: Side,
  steps: readonly string[],
): void {
  for (const step of steps) {
    tests(`${step}, ${side.name}`, async () => {
      const ran = await python(driver, side, step, `${side.database} ${side.workers}`);
      const error = ran.stderr.trimEnd().slice(-2_000);
      assert.equal([ran.code, ran.stdout.trim()], [0, "done"], error);
      await until("queries to end", async () => {
        return (await side.postgres.backends()).every((b) => b.state !== "active");
      });
    });
  }
}
