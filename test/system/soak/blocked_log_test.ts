// Nobody reads the log: a full pipe stops the thread that writes it, and lines for it piled up in memory for as long
// as clients came and went. Clients must be served on, memory must stay bounded, and the log must tell what it lost.
// limit: 600 s

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { runtimeCommand } from "../../../shared/sys/mod.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { iniText, userlistText } from "../../support/ini.ts";
import { ManagedProcess } from "../../support/managed_process.ts";
import { needs } from "../../support/needs.ts";
import { DEFAULT_USERS, defaultSettings } from "../../support/pooler.ts";
import { startPostgres } from "../../support/postgres.ts";
import { residentBytes } from "../../support/processes.ts";
import { RawClient } from "../../support/raw_client.ts";
import { freePort, tempDir } from "../../support/temp.ts";
import { run } from "../drivers/support.ts";

needs("postgresql");

/** Lines that a pipe and the pooler may hold together: 64 KiB of pipe, 10,000 lines of queue, one batch. */
const HELD_LINES = 13_000;
const CONNECTIONS = 4 * HELD_LINES / 2;

const tests = suite("a log that nobody reads");
const postgres = await startPostgres();
const port = await freePort();
const dir = tempDir("log");
const log = join(dir, "log");
const ready = join(dir, "read");
const ini = join(dir, "pgweir.ini");
writeFileSync(join(dir, "userlist.txt"), userlistText(DEFAULT_USERS));
writeFileSync(
  ini,
  iniText({
    databases: { "*": `host=127.0.0.1 port=${postgres.port}` },
    pgbouncer: defaultSettings(port, dir),
  }),
);

tests("it bounds what waits for it, and stops nobody", async () => {
  const cli = join(import.meta.dirname!, "../../../services/cli.ts");
  // The reader of the pipe does not read before it is told to, and not for ever.
  const reader = `for i in $(seq 3000); do [ -e ${ready} ] && break; sleep 0.1; done; cat > ${log}`;
  const pooler = await ManagedProcess.launch({
    command: [
      "bash",
      "-c",
      `exec "$@" 2> >(${reader})`,
      "bash",
      ...runtimeCommand(),
      cli,
      "pooler",
      ini,
    ],
  });
  const login = { user: "postgres", database: "postgres" };
  const target = { host: "127.0.0.1", port };
  await pooler.ready("the pooler to serve", async () => {
    const client = await RawClient.login(target, login).catch(() => null);
    await client?.end();
    return client !== null;
  });
  const script = join(dir, "one.sql");
  writeFileSync(script, "SELECT 1;\n");
  const churn = async (connections: number) => {
    const load = ["-n", "-C", "-c", "4", "-j", "4", "-t", String(connections / 4), "-f", script];
    const at = ["-h", target.host, "-p", String(port), "-U", "postgres", "postgres"];
    const ran = await run(["pgbench", ...load, ...at], { seconds: 240 });
    assert.is(ran.code, 0, ran.stderr);
  };
  // The queue is full and the code is warm after this.
  await churn(HELD_LINES);
  const before = residentBytes(pooler.pid);
  await churn(CONNECTIONS);
  const grown = residentBytes(pooler.pid) - before;

  writeFileSync(ready, "");
  const text = await until(
    "the log to tell what it lost",
    async () => {
      const client = await RawClient.login(target, login);
      await client.end();
      const ran = await run(["cat", log]);
      return /\d+ more log lines were left out/.test(ran.stdout) ? ran.stdout : null;
    },
    30_000,
    200,
  );
  assert.ok(text.split("\n").length < HELD_LINES + 1_000);
  assert.ok(grown < 32 * 2 ** 20, `it grew by ${(grown / 2 ** 20).toFixed(1)} MiB`);
  assert.equal(await pooler.stop(), { code: 0, signal: null });
});

tests.after(() => postgres.stop("immediate"));
tests.run();
