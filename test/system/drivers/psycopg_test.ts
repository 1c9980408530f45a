// psycopg through the pooler, one worker and four: 20 clients on a few servers prepare every statement under the same
// names, pipeline with errors, read cursors, copy and cancel. The steps are in psycopg_client.py.
// limit: 300 s

import { join } from "node:path";
import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { run, startSides } from "./support.ts";

needs("python3-psycopg");

const STEPS = ["prepared", "transactions", "pipelines", "cursors", "copies", "cancels"];

const sides = await startSides({
  setup: `CREATE TABLE mine (tag text, n int, PRIMARY KEY (tag, n));
    CREATE TABLE copied (tag text, n int, body text);`,
});
const tests = suite("psycopg");
const client = join(import.meta.dirname!, "psycopg_client.py");

for (const side of sides.all) {
  for (const step of STEPS) {
    tests(`${step}, ${side.name}`, async () => {
      // Debian's Python: the package is not in another that may come first in PATH.
      const command = ["/usr/bin/python3", client, step, side.host, String(side.port)];
      const ran = await run([...command, String(side.workers)], { seconds: 90 });
      const error = ran.stderr.trimEnd().slice(-2_000);
      assert.equal([ran.code, ran.stdout.trim()], [0, "done"], error);
      await until("queries to end", async () => {
        return (await side.postgres.backends()).every((b) => b.state !== "active");
      });
    });
  }
}

sides.check(tests);
tests.run();
