// -d and pidfile: a daemon whose start ends when clients can connect, and that is the only one of its pidfile.
// limit: 360 s

import { existsSync, readlinkSync, renameSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { assert, suite, until } from "../../support/harness.ts";
import {
  childrenOf,
  commandLine,
  isAlive,
  listProcesses,
  processInfo,
  signal,
} from "../../support/processes.ts";
import { Instance } from "./support.ts";

const test = suite("background");

const daemonSettings = (instance: Instance) => ({
  pidfile: instance.pidfile,
  logfile: instance.logfile,
});

/** Everything that runs in the instance's folder. */
function processesOf(instance: Instance): number[] {
  return listProcesses().map(({ pid }) => pid).filter((pid) => commandLine(pid).includes("p.ini"))
    .filter((pid) => {
      const pidOf = instance.pid();
      return pid === pidOf || processInfo(pid)?.parent === pidOf;
    });
}

/** Whatever was started in a folder. */
function runningIn(folder: string): number[] {
  return listProcesses().map(({ pid }) => pid).filter((pid) => {
    try {
      return readlinkSync(`/proc/${pid}/cwd`) === folder;
    } catch {
      return false;
    }
  });
}

for (const command of ["pooler", "up"]) {
  test(`${command} -d: the start ends when clients can connect; SIGTERM ends the daemon`, async () => {
    const instance = await Instance.make();
    instance.configure(daemonSettings(instance));
    const start = await instance.folder.run(command, "-d", "p.ini");
    const pid = instance.pid();
    assert.ok(pid !== null, start.stderr);
    instance.owns(pid);
    assert.is(start.code, 0, start.stderr);
    assert.is(start.stdout, "");
    assert.ok(await instance.answers(), instance.log());
    const info = processInfo(pid);
    assert.is(info?.session, pid, "a session of its own");
    await until("the log", () => /process up: pgweir/.test(instance.log()));
    const children = processesOf(instance);
    assert.is(children.length > 1, command === "up");
    signal(pid, "SIGTERM");
    await until("its end", () => !children.some(isAlive));
    assert.not.ok(existsSync(instance.pidfile));
  });
}

test("-d: the log file goes on after SIGHUP", async () => {
  const instance = await Instance.make();
  instance.configure(daemonSettings(instance));
  assert.is((await instance.folder.run("pooler", "-d", "p.ini")).code, 0);
  const pid = instance.pid()!;
  instance.owns(pid);
  renameSync(instance.logfile, `${instance.logfile}.1`);
  signal(pid, "SIGHUP");
  await until("the new file", () => / got SIGHUP/.test(instance.log()));
  await instance.console("SHOW VERSION");
  await until("the login", () => / login attempt/.test(instance.log()));
  // Once, not by way of standard error as well.
  const lines = instance.log().trimEnd().split("\n");
  assert.equal(lines, [...new Set(lines)]);
  signal(pid, "SIGTERM");
  await until("its end", () => !isAlive(pid));
});

test("-d needs a pidfile", async () => {
  const instance = await Instance.make();
  instance.configure({ logfile: instance.logfile });
  const start = await instance.folder.run("pooler", "-d", "p.ini");
  assert.is(start.code, 1);
  assert.match(start.stderr, / FATAL daemon needs pidfile configured\n$/);
});

for (const command of ["pooler", "up"]) {
  test(`${command} -d: a start that fails says why, exits with 1 and leaves nothing`, async () => {
    const instance = await Instance.make();
    instance.configure(daemonSettings(instance));
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(instance.port, "127.0.0.1", resolve));
    const start = await instance.folder.run(command, "-d", "p.ini");
    await new Promise((resolve) => server.close(resolve));
    assert.is(start.code, 1);
    assert.match(start.stderr, new RegExp(`listen on "?127\\.0\\.0\\.1.*${instance.port}`));
    assert.not.ok(existsSync(instance.pidfile));
    await until("its end", () => runningIn(instance.folder.path).length === 0);
  });

  test(`${command}: a second one with the same pidfile is refused, and harms nothing`, async () => {
    const instance = await Instance.make();
    instance.configure({ pidfile: instance.pidfile, so_reuseport: 1 });
    const first = await instance.start(command);
    assert.is(instance.pid(), first.pid);
    const second = await instance.folder.run(command, "p.ini");
    assert.is(second.code, 1);
    assert.match(second.stderr, /pidfile exists, another instance running\?/);
    assert.match(second.stderr, new RegExp(`names process ${first.pid}$`, "m"));
    assert.ok(await instance.answers());
    assert.is(instance.pid(), first.pid);
    await first.stop();
    assert.not.ok(existsSync(instance.pidfile));
  });

  test(`${command}: a pidfile that a crash has left is replaced`, async () => {
    const instance = await Instance.make();
    instance.configure({ pidfile: instance.pidfile });
    const first = await instance.start(command);
    const children = childrenOf(first.pid);
    await first.stop("SIGKILL");
    await until("the end of its workers", () => !children.some(isAlive));
    assert.ok(existsSync(instance.pidfile));
    const second = await instance.start(command);
    assert.is(instance.pid(), second.pid);
    await second.stop();
    assert.not.ok(existsSync(instance.pidfile));
    writeFileSync(instance.pidfile, "4194303\n");
    const third = await instance.start(command);
    assert.is(instance.pid(), third.pid);
    await third.stop();
  });
}

test("a second worker on the port is refused, unless so_reuseport says that they share it", async () => {
  const instance = await Instance.make({ unix_socket_dir: "" });
  const first = await instance.start();
  const second = await instance.folder.run("pooler", "p.ini");
  assert.is(second.code, 1);
  assert.match(second.stderr, /bind failed with EADDRINUSE/);
  await first.stop();
  instance.configure({ unix_socket_dir: "", so_reuseport: 1 });
  const pair = [await instance.start(), await instance.start()];
  for (const one of pair) {
    await one.ready("the log", () => one.stderr().includes("process up: pgweir"));
    await one.stop();
  }
});

test.run();
