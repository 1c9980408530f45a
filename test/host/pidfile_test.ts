// Pidfiles: who may take one, what is stale, and what is left at the end.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { assert, suite } from "../support/harness.ts";
import { tempDir } from "../support/temp.ts";
import { Pidfile, PidfileError } from "../../shared/host/pidfile.ts";

const test = suite("pidfile");

const newPath = () => join(tempDir("pid"), "p.pid");

test("claim() writes the process id, release() removes the file, twice too", () => {
  const path = newPath();
  const pidfile = Pidfile.claim(path);
  assert.is(readFileSync(path, "utf8"), `${process.pid}\n`);
  pidfile.release();
  pidfile.release();
  assert.not.ok(existsSync(path));
});

test("claim() refuses a file that names a running process, and leaves it", async () => {
  const path = newPath();
  const other = spawn("sleep", ["60"]);
  await once(other, "spawn");
  try {
    writeFileSync(path, `${other.pid}\n`);
    try {
      Pidfile.claim(path);
      assert.unreachable();
    } catch (error) {
      assert.instance(error, PidfileError);
      assert.is(
        (error as Error).message,
        `pidfile exists, another instance running? "${path}" names process ${other.pid}`,
      );
    }
    assert.is(readFileSync(path, "utf8"), `${other.pid}\n`);
  } finally {
    process.kill(other.pid!, "SIGKILL");
    await once(other, "exit");
  }
  // It is gone: stale.
  Pidfile.claim(path).release();
});

test("claim() replaces what is stale: no process, no number, our own id", () => {
  for (const text of ["", "\n", "0\n", "nonsense", `${process.pid}\n`]) {
    const path = newPath();
    writeFileSync(path, text);
    const pidfile = Pidfile.claim(path);
    assert.is(readFileSync(path, "utf8"), `${process.pid}\n`, JSON.stringify(text));
    pidfile.release();
  }
});

test("release() leaves a file that somebody else has taken over", () => {
  const path = newPath();
  const pidfile = Pidfile.claim(path);
  writeFileSync(path, "1\n");
  pidfile.release();
  assert.is(readFileSync(path, "utf8"), "1\n");
});

test("claim() says why a file cannot be written", () => {
  assert.throws(
    () => Pidfile.claim("/nowhere/p.pid"),
    /^write pidfile "\/nowhere\/p\.pid": ENOENT$/,
  );
  const folder = tempDir("pid");
  assert.throws(() => Pidfile.claim(folder), /^read pidfile ".*": EISDIR$/);
});

test.run();
