// Steps of psycopg_client.py as tests: 20 clients in threads prepare every statement under the same names, pipeline
// with errors, read cursors, copy, collide and cancel. Not a test.

import { join } from "node:path";
import { assert, type Test, until } from "../../support/harness.ts";
import { type Ran, run, type Side } from "./support.ts";

/** The steps that work in every pool mode. */
export const STEPS = [
  ...["prepared", "deallocates", "transactions", "conflicts", "pipelines", "cursors", "copies"],
  ...["cancels", "timeouts", "settings"],
];

const client = join(import.meta.dirname!, "psycopg_client.py");

/** Runs one step to its end. */
export function psycopg(side: Side, step: string, prefix: string, seconds = 90): Promise<Ran> {
  // Debian's Python: the package is not in another that may come first in PATH.
  const command = ["/usr/bin/python3", client, step, side.host, String(side.port)];
  return run([...command, side.database, prefix], { seconds });
}

/** Registers steps as the tests of one side. */
export function psycopgSteps(tests: Test, side: Side, steps: readonly string[]): void {
  for (const step of steps) {
    tests(`${step}, ${side.name}`, async () => {
      const ran = await psycopg(side, step, String(side.workers));
      const error = ran.stderr.trimEnd().slice(-2_000);
      assert.equal([ran.code, ran.stdout.trim()], [0, "done"], error);
      await until("queries to end", async () => {
        return (await side.postgres.backends()).every((b) => b.state !== "active");
      });
    });
  }
}
