// systemd's Type=notify, as in the unit file of Debian's PgBouncer: it hears when clients can connect, and when the
// service begins to stop; from the process it started, and from no other.
// limit: 240 s

import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { assert, suite, until } from "../../support/harness.ts";
import { ManagedProcess } from "../../support/managed_process.ts";
import { needs } from "../../support/needs.ts";
import { childrenOf } from "../../support/processes.ts";
import { Instance } from "./support.ts";

needs("python3-psycopg");

const test = suite("Type=notify");
const script = resolve(import.meta.dirname!, "../../support/datagram_receiver.py");

for (const command of ["pooler", "up"]) {
  test(`${command} says READY=1 once clients can connect, and STOPPING=1 once it is told to end`, async () => {
    const instance = await Instance.make();
    const path = join(instance.folder.path, "notify");
    const systemd = await ManagedProcess.launch({ command: ["python3", script, path] });
    await systemd.ready("the socket", () => systemd.stdout().startsWith("ready\n"));
    instance.folder.environment = { NOTIFY_SOCKET: path };
    const running = await instance.folder.launch(command, "p.ini");
    await running.ready("the message", () => systemd.stdout().includes("READY=1\n"));
    assert.ok(await instance.answers());
    for (const pid of childrenOf(running.pid)) {
      assert.not.match(readFileSync(`/proc/${pid}/environ`, "utf8"), "NOTIFY_SOCKET");
    }
    await running.stop();
    const said = `ready\nREADY=1\nMAINPID=${running.pid}\nSTOPPING=1\n`;
    await until("the last message", () => systemd.stdout() === said);
    await systemd.stop("SIGTERM");
  });
}

test.run();
