// Where log lines go: standard error, files that are moved away, syslog that comes and goes.

import { closeSync, existsSync, openSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import process from "node:process";
import { assert, suite, until } from "../support/harness.ts";
import { ManagedProcess } from "../support/managed_process.ts";
import { needs } from "../support/needs.ts";
import { freeze } from "../support/processes.ts";
import { tempDir } from "../support/temp.ts";
import { LogOutput } from "../../shared/telemetry/mod.ts";
import { type SyslogFacility, syslogPacket } from "../../shared/telemetry/syslog.ts";

needs("python3-psycopg");

const file = suite("log file");

const quiet = (logfile: string) => ({ logfile, syslog: null, quiet: true });

file("lines are appended to what is there", () => {
  const path = join(tempDir("log"), "p.log");
  writeFileSync(path, "old\n");
  const output = new LogOutput();
  output.configure(quiet(path));
  output.write("one\n");
  output.write("two\n");
  assert.is(readFileSync(path, "utf8"), "old\none\ntwo\n");
});

file("reopen() makes a file that was moved away anew, under its own name", () => {
  const path = join(tempDir("log"), "p.log");
  const output = new LogOutput();
  output.configure(quiet(path));
  output.write("one\n");
  renameSync(path, `${path}.1`);
  output.write("two\n");
  output.reopen();
  output.write("three\n");
  assert.is(readFileSync(`${path}.1`, "utf8"), "one\ntwo\n");
  assert.is(readFileSync(path, "utf8"), "three\n");
});

file("what cannot be opened is said, and the open file stays", () => {
  const path = join(tempDir("log"), "p.log");
  const output = new LogOutput();
  output.configure(quiet(path));
  assert.throws(
    () => output.configure(quiet("/nowhere/p.log")),
    /^open logfile "\/nowhere\/p\.log": ENOENT$/,
  );
  output.write("one\n");
  assert.is(readFileSync(path, "utf8"), "one\n");
});

file("configure() goes on to another file, and to none", () => {
  const folder = tempDir("log");
  const [a, b] = [join(folder, "a.log"), join(folder, "b.log")];
  const output = new LogOutput();
  for (const [path, line] of [[a, "one\n"], [b, "two\n"], ["", "three\n"]] as const) {
    output.configure(quiet(path));
    output.write(line);
  }
  assert.is(readFileSync(a, "utf8") + readFileSync(b, "utf8"), "one\ntwo\n");
  assert.is(output.fileDescriptor, null);
});

file("a full disk costs lines, never an exception", () => {
  if (!existsSync("/dev/full")) return;
  const output = new LogOutput();
  output.configure(quiet("/dev/full"));
  for (let i = 0; i < 3; i++) output.write("one\n");
});

file("reopen() leaks no descriptor", () => {
  const path = join(tempDir("log"), "p.log");
  const output = new LogOutput();
  output.configure(quiet(path));
  const free = () => {
    const fd = openSync("/dev/null", "r");
    closeSync(fd);
    return fd;
  };
  output.reopen();
  const before = free();
  for (let i = 0; i < 10; i++) output.reopen();
  assert.ok(free() <= before + 1);
});

file.run();

const syslog = suite("syslog");

const now = new Date(2026, 0, 5, 3, 4, 5);

function packet(line: string, facility: SyslogFacility = "daemon"): string {
  return new TextDecoder().decode(syslogPacket(line, { facility, ident: "pgw" }, now, 7));
}

syslog("a packet has priority, time, ident and the process id of the line", () => {
  const head = "2026-01-05 03:04:05.678 UTC [42]";
  const rows: readonly (readonly [string, SyslogFacility, string])[] = [
    [`${head} LOG a b`, "daemon", "<30>Jan  5 03:04:05 pgw[42]: a b"],
    [`${head} WARNING a`, "daemon", "<28>Jan  5 03:04:05 pgw[42]: a"],
    [`${head} ERROR a`, "user", "<11>Jan  5 03:04:05 pgw[42]: a"],
    [`${head} FATAL a`, "local7", "<186>Jan  5 03:04:05 pgw[42]: a"],
    [`${head} DEBUG a`, "kern", "<7>Jan  5 03:04:05 pgw[42]: a"],
    ["panic: no log line", "daemon", "<30>Jan  5 03:04:05 pgw[7]: panic: no log line"],
    [
      '{"time":"x","pid":42,"level":"error","message":"a"}',
      "daemon",
      '<27>Jan  5 03:04:05 pgw[42]: {"time":"x","pid":42,"level":"error","message":"a"}',
    ],
    ["{ no JSON", "daemon", "<30>Jan  5 03:04:05 pgw[7]: { no JSON"],
  ];
  for (const [line, facility, expected] of rows) {
    assert.is(packet(`${line}\n`, facility), expected);
  }
});

const receiver = (path: string) =>
  ManagedProcess.launch({
    command: ["python3", resolve(import.meta.dirname!, "../support/datagram_receiver.py"), path],
  });

syslog("lines reach a daemon, and again when it was restarted; lost ones are counted", async () => {
  const path = join(tempDir("syslog"), "log");
  const output = new LogOutput(path);
  const target = { facility: "local0", ident: "pgw" } as const;
  output.configure({ logfile: "", syslog: target, quiet: true });
  const line = (text: string) => `2026-01-05 03:04:05.678 UTC [42] LOG ${text}\n`;
  output.write(line("nobody is there"));
  output.write(line("still nobody"));
  for (const round of [1, 2]) {
    const daemon = await receiver(path);
    await until("the daemon", () => daemon.stdout().startsWith("ready\n"));
    output.write(line(`round ${round}`));
    const got = () => daemon.stdout();
    await until("the line", () => got().includes(` pgw[42]: round ${round}\n`));
    const lost = round === 1 ? 2 : 1;
    const report = `pgw[${process.pid}]: ${lost} log lines lost: syslog did not take them\n`;
    assert.ok(got().includes(report), got());
    await daemon.stop("SIGTERM");
    output.write(line("between"));
  }
});

syslog("a daemon that does not read costs lines, never time", async () => {
  const path = join(tempDir("syslog"), "log");
  const daemon = await receiver(path);
  await until("the daemon", () => daemon.stdout().startsWith("ready\n"));
  await freeze(daemon.pid);
  const output = new LogOutput(path);
  output.configure({ logfile: "", syslog: { facility: "user", ident: "p" }, quiet: true });
  for (let i = 0; i < 2000; i++) output.write(`2026-01-05 03:04:05.678 UTC [1] LOG ${i}\n`);
  daemon.signal("SIGCONT");
  await until("lines to get through again", () => {
    output.write("2026-01-05 03:04:05.678 UTC [1] LOG more\n");
    return /\d+ log lines lost: syslog did not take them\n/.test(daemon.stdout());
  });
  await daemon.stop("SIGTERM");
});

syslog.run();
