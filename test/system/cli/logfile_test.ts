// logfile, syslog and the options -q and -v, of a lone worker and of a supervised host.
// limit: 360 s

import { existsSync, readFileSync, renameSync, statSync } from "node:fs";
import { resolve } from "node:path";
import process from "node:process";
import { assert, suite, until } from "../../support/harness.ts";
import { ManagedProcess } from "../../support/managed_process.ts";
import { needs } from "../../support/needs.ts";
import { Instance } from "./support.ts";

needs("python3-psycopg");

const test = suite("log output");

for (const command of ["pooler", "up"]) {
  test(`${command}: the log is appended to logfile, beside standard error`, async () => {
    const instance = await Instance.make();
    instance.configure({ logfile: instance.logfile });
    instance.folder.write("p.log", "from before\n");
    const running = await instance.start(command);
    await instance.console("SHOW POOLS");
    assert.ok(instance.log().startsWith("from before\n"));
    // What the workers of a supervised host say is among it.
    await until("the login", () => / LOG C-.* login attempt/.test(instance.log()));
    await until("it there too", () => / LOG C-.* login attempt/.test(running.stderr()));
    await running.stop();
    assert.is(`from before\n${running.stderr()}`, instance.log());
  });

  test(`${command} -q: nothing goes to standard error`, async () => {
    const instance = await Instance.make();
    instance.configure({ logfile: instance.logfile });
    const running = await instance.start(command, "-q");
    assert.is(running.stderr(), "");
    await until("the log", () => /process up: pgweir/.test(instance.log()));
    await running.stop();
    assert.is(running.stderr(), "");
  });

  test(`${command}: SIGHUP makes a log file that was moved away anew`, async () => {
    const instance = await Instance.make();
    instance.configure({ logfile: instance.logfile });
    const running = await instance.start(command);
    renameSync(instance.logfile, `${instance.logfile}.1`);
    running.signal("SIGHUP");
    await until("the new file", () => / got SIGHUP/.test(instance.log()));
    // As PgBouncer's: what ships logs reads it as any user.
    assert.is(statSync(instance.logfile).mode & 0o777, 0o644 & ~process.umask());
    const before = readFileSync(`${instance.logfile}.1`, "utf8");
    await instance.console("SHOW POOLS");
    await until("the login", () => / LOG C-.* login attempt/.test(instance.log()));
    await running.stop();
    assert.is(readFileSync(`${instance.logfile}.1`, "utf8"), before);
  });

  test(`${command}: a log file that cannot be opened is no start`, async () => {
    const instance = await Instance.make({ logfile: "/nowhere/p.log" });
    const run = await instance.folder.run(command, "p.ini");
    assert.is(run.code, 1);
    assert.match(
      run.stderr,
      /p\.ini:\d+: logfile "\/nowhere\/p\.log": directory "\/nowhere": no such directory/,
    );
  });
}

test("-v has the lines of verbose = 1", async () => {
  const instance = await Instance.make();
  const quiet = await instance.start("pooler");
  await quiet.stop();
  assert.not.match(quiet.stderr(), / DEBUG /);
  const talkative = await instance.start("up", "-v");
  await talkative.stop();
  assert.match(talkative.stderr(), / DEBUG C-\S+ \(nodb\)\/\(nouser\)@\S+ got connection$/m);
});

// Root alone may be the syslog of a host, and only where there is none.
if (process.getuid!() === 0 && (!existsSync("/dev/log") || !existsSync("/run/systemd/system"))) {
  test("syslog = 1: the log goes to /dev/log, each line under the process that wrote it", async () => {
    const script = resolve(import.meta.dirname!, "../../support/datagram_receiver.py");
    const daemon = await ManagedProcess.launch({
      command: ["python3", script, "/dev/log"],
      exitSignal: "SIGTERM",
    });
    await daemon.ready("/dev/log", () => daemon.stdout().startsWith("ready\n"), 60_000);
    const instance = await Instance.make({
      syslog: 1,
      syslog_facility: "local3",
      syslog_ident: "weir",
    });
    const running = await instance.start("up", "-q");
    await instance.console("SHOW POOLS");
    const login = /^<158>\w{3} [ \d]\d [\d:]{8} weir\[(\d+)\]: C-\S+ pgbouncer\/admin@\S+ login/m;
    const line = await until("the login", () => login.exec(daemon.stdout()));
    assert.is.not(Number(line[1]), running.pid);
    assert.is(running.stderr(), "");
    await running.stop();
    await daemon.stop("SIGTERM");
  });
}

test.run();
