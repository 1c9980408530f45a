// systemd's Type=notify, as in the unit file of Debian's PgBouncer, and Type=notify-reload: it hears when clients can
// connect, when a reload begins and ends, and when the service begins to stop; from the process it started, and from
// no other.
// limit: 240 s

import { readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import process from "node:process";
import { assert, suite, until } from "../../support/harness.ts";
import { ManagedProcess } from "../../support/managed_process.ts";
import { needs } from "../../support/needs.ts";
import { childrenOf, signal } from "../../support/processes.ts";
import { monotonicMicros, runtimeCommand } from "../../../shared/sys/mod.ts";
import { tempDir } from "../../support/temp.ts";
import { Instance } from "./support.ts";

needs("python3-psycopg");

const test = suite("Type=notify");
const cli = resolve(import.meta.dirname!, "../../../services/cli.ts");
const script = resolve(import.meta.dirname!, "../../support/datagram_receiver.py");

for (const command of ["pooler", "up"]) {
  test(`${command} says READY=1 once clients can connect, and STOPPING=1 once it is told to end`, async () => {
    const instance = await Instance.make();
    const path = join(instance.folder.path, "notify");
    const systemd = await ManagedProcess.launch({ command: ["python3", script, path] });
    await systemd.ready("the socket", () => systemd.stdout().startsWith("ready\n"));
    instance.folder.environment = { NOTIFY_SOCKET: path, LISTEN_FDS: "1" };
    const running = await instance.folder.launch(command, "p.ini");
    await running.ready("the message", () => systemd.stdout().includes("READY=1\n"));
    assert.ok(await instance.answers());
    for (const pid of childrenOf(running.pid)) {
      assert.not.match(readFileSync(`/proc/${pid}/environ`, "utf8"), "NOTIFY_SOCKET");
    }
    assert.match(
      running.output(),
      / WARNING LISTEN_FDS is set: socket activation is not supported/,
    );
    const before = monotonicMicros();
    signal(running.pid, "SIGHUP");
    const reloaded = /\nRELOADING=1\nMONOTONIC_USEC=(\d+)\nREADY=1\n$/;
    await until("the end of the reload", () => reloaded.test(systemd.stdout()));
    const time = BigInt(reloaded.exec(systemd.stdout())![1]!);
    assert.ok(time >= before && time <= monotonicMicros(), `${before} ${time}`);
    await running.stop();
    const reload = `RELOADING=1\nMONOTONIC_USEC=${time}\nREADY=1\n`;
    const said = `ready\nREADY=1\nMAINPID=${running.pid}\n${reload}STOPPING=1\n`;
    await until("the last message", () => systemd.stdout() === said);
    await systemd.stop("SIGTERM");
  });
}

test("overload says READY=1 once it watches, which needs no bus and no PostgreSQL", async () => {
  const folder = tempDir("overload");
  const [path, file] = [join(folder, "notify"), join(folder, "p.ini")];
  writeFileSync(
    file,
    "[databases]\nshop = host=127.0.0.1 port=1\n[pgbouncer]\nbus_url = nats://127.0.0.1:1\n",
  );
  const systemd = await ManagedProcess.launch({ command: ["python3", script, path] });
  await systemd.ready("the socket", () => systemd.stdout().startsWith("ready\n"));
  const monitor = await ManagedProcess.launch({
    command: [...runtimeCommand(), cli, "overload", "--database", "shop", file],
    environment: { ...process.env as Record<string, string>, NOTIFY_SOCKET: path },
  });
  await until("the message", () => systemd.stdout() === "ready\nREADY=1\n");
  signal(monitor.pid, "SIGHUP");
  const reloaded = /^ready\nREADY=1\nRELOADING=1\nMONOTONIC_USEC=\d+\nREADY=1\n$/;
  await until("the end of the reload", () => reloaded.test(systemd.stdout()));
  await monitor.stop();
  await until("the last message", () => systemd.stdout().endsWith("READY=1\nSTOPPING=1\n"));
  await systemd.stop("SIGTERM");
});

test.run();
