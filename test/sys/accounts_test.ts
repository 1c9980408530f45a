// Users and groups by name. That a process becomes one is shown with real processes, test/system/cli.

import { execFileSync } from "node:child_process";
import process from "node:process";
import { assert, suite } from "../support/harness.ts";
import { becomeUser, findGroup, findUser, SysError } from "../../shared/sys/mod.ts";

const test = suite("sys: accounts");

const id = (...words: string[]) => Number(execFileSync("id", words, { encoding: "utf8" }));

test("findUser() has the ids of a user, and null for a stranger", () => {
  for (const name of ["root", "nobody", "daemon"]) {
    assert.equal(findUser(name), { uid: id("-u", name), gid: id("-g", name) }, name);
  }
  assert.is(findUser("nobody-of-that-name"), null);
  assert.is(findUser(""), null);
});

test("findGroup() has the id of a group, takes a number as it is, and null for none", () => {
  const groups = execFileSync("getent", ["group"], { encoding: "utf8" }).trim().split("\n");
  for (const line of groups) {
    const [name, , gid] = line.split(":");
    assert.is(findGroup(name!), Number(gid), name);
  }
  assert.is(findGroup("123"), 123);
  assert.is(findGroup("no-such-group"), null);
});

test("findUser() takes no NUL character for the end of a name", () => {
  assert.throws(() => findUser("root\0"), /holds a NUL character/);
});

test("becomeUser() has nothing to do for the user that runs the process", () => {
  const uid = process.getuid!();
  becomeUser("whoever", { uid, gid: process.getgid!() });
  assert.is(process.getuid!(), uid);
});

if (process.getuid!() !== 0) {
  test("becomeUser() fails without the right to it", () => {
    assert.throws(
      () => becomeUser("root", { uid: 0, gid: 0 }),
      (error: unknown) => error instanceof SysError && error.code === "EPERM",
    );
  });
}

test.run();
