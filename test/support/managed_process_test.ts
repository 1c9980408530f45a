// Servers and temp folders never outlive the test process, in whatever way it ends.

import { existsSync } from "node:fs";
import { join } from "node:path";
import { runtimeCommand } from "../../shared/sys/mod.ts";
import { assert, suite, until } from "./harness.ts";
import { iniText, userlistText, withDefaults } from "./ini.ts";
import { ManagedProcess } from "./managed_process.ts";
import { isAlive } from "./processes.ts";
import { freePort } from "./temp.ts";

const tests = suite("what a test process leaves behind");

const endings = [
  ["nothing", 0],
  ["throw", 1],
  ["throw later", 1],
  ["reject", 1],
  ["frozen server", 0],
] as const;

function start(ending: string): Promise<ManagedProcess> {
  return ManagedProcess.launch({
    command: [...runtimeCommand(), join(import.meta.dirname!, "exit_child.ts"), ending],
  });
}

async function assertGone(child: ManagedProcess): Promise<void> {
  const [, pid, dir] = /^(\d+) (.+)$/m.exec(child.stdout()) ?? [];
  assert.ok(Number(pid) > 0 && dir !== undefined, child.output());
  assert.not(existsSync(dir!));
  // It was killed, which may take a busy machine longer than the child waited for it; by itself it lives for minutes.
  await until("its server to end", () => !isAlive(Number(pid)));
}

for (const [ending, code] of endings) {
  tests(`nothing is left when a test process ends by: ${ending}`, async () => {
    const child = await start(ending);
    assert.equal(await child.ended(), { code, signal: null });
    await assertGone(child);
  });
}

for (const [name, code] of [["SIGTERM", 143], ["SIGINT", 130], ["SIGHUP", 129]] as const) {
  tests(`nothing is left when a test process gets ${name}`, async () => {
    const child = await start("wait");
    await until("the child to speak", () => child.stdout().includes("\n"));
    child.signal(name);
    assert.equal(await child.ended(), { code, signal: null });
    await assertGone(child);
  });
}

tests("ManagedProcess.stop() kills a process that does not obey", async () => {
  const stubborn = await ManagedProcess.launch({
    command: ["sh", "-c", "trap '' TERM; echo on; while :; do sleep 0.05; done"],
  });
  await until("the trap", () => stubborn.stdout() === "on\n");
  assert.equal(await stubborn.stop("SIGTERM", 100), { code: null, signal: "SIGKILL" });
  assert.not(stubborn.running);
});

tests("ManagedProcess.ready() fails with the output of a process that ended", async () => {
  const failing = await ManagedProcess.launch({ command: ["sh", "-c", "echo broken >&2; exit 3"] });
  let said = "";
  await failing.ready("it to serve", () => false).catch((error) => said = error.message);
  assert.match(said, /the process has ended[^]*broken/);
  assert.is(failing.end?.code, 3);
});

tests("ManagedProcess.launch() fails when there is no such program", async () => {
  let said = "";
  await ManagedProcess.launch({ command: ["/no/such/program"] }).catch((e) => said = e.message);
  assert.match(said, /start "\/no\/such\/program": /);
});

tests("freePort() finds ports below the kernel's own", async () => {
  const ports = await Promise.all([freePort(), freePort(), freePort()]);
  for (const port of ports) assert.ok(port >= 10_000 && port < 32_000);
});

tests("iniText() and userlistText() write what poolers read", () => {
  const ini = withDefaults({ pgbouncer: { listen_port: 7 } }, {
    pgbouncer: { listen_port: 1, a: "b" },
  });
  assert.is(
    iniText({ databases: {}, ...ini }),
    "[databases]\n\n[pgbouncer]\nlisten_port = 7\na = b\n",
  );
  assert.is(userlistText({ 'o"dd': 'x"y' }), '"o""dd" "x""y"\n');
});

tests.run();
