// user, -u and unix_socket_group: whose process it is after the start, and what that owns. Only root may start a
// process that becomes somebody else.
// limit: 300 s

import { existsSync, readdirSync, readFileSync, renameSync, statSync } from "node:fs";
import process from "node:process";
import { assert, suite, until } from "../../support/harness.ts";
import { childrenOf } from "../../support/processes.ts";
import { findGroup, findUser } from "../../../shared/sys/mod.ts";
import { Instance } from "./support.ts";

const test = suite("user");
const isRoot = process.getuid!() === 0;
const nobody = findUser("nobody")!;

function idsOf(folder: string): { uids: string; gids: string; groups: string } {
  const status = readFileSync(`${folder}/status`, "utf8");
  const field = (name: string) =>
    new RegExp(`^${name}:\\s*(.*)$`, "m").exec(status)![1]!.trim().replaceAll("\t", " ");
  return { uids: field("Uid"), gids: field("Gid"), groups: field("Groups") };
}

const four = (id: number) => Array(4).fill(id).join(" ");

/** The ids of every thread. */
function tasksOf(pid: number): { uids: string; gids: string }[] {
  return readdirSync(`/proc/${pid}/task`).map((task) => {
    const { uids, gids } = idsOf(`/proc/${pid}/task/${task}`);
    return { uids, gids };
  });
}

if (isRoot) {
  for (const [words, settings] of [[["-u", "nobody"], {}], [[], { user: "nobody" }]] as const) {
    const how = words.length > 0 ? "-u" : "user =";
    test(`${how}: a lone worker becomes the user, in all its threads, and owns its files`, async () => {
      const instance = await Instance.make();
      instance.configure({
        logfile: instance.logfile,
        pidfile: instance.pidfile,
        ...settings,
      });
      const running = await instance.start("pooler", ...words);
      await running.ready("the log", () => instance.log().includes("process up: pgweir"));
      const tasks = tasksOf(running.pid);
      assert.ok(tasks.length > 1);
      for (const task of tasks) {
        assert.equal(task, { uids: four(nobody.uid), gids: four(nobody.gid) });
      }
      assert.is(idsOf(`/proc/${running.pid}`).groups, String(nobody.gid));
      for (const path of [instance.logfile, instance.pidfile, instance.socket]) {
        assert.is(statSync(path).uid, nobody.uid, path);
        assert.is(statSync(path).gid, nobody.gid, path);
      }
      assert.ok(await instance.answers());
      renameSync(instance.logfile, `${instance.logfile}.1`);
      running.signal("SIGHUP");
      await until("the new log file", () => / got SIGHUP/.test(instance.log()));
      assert.equal(await running.stop(), { code: 0, signal: null });
      assert.not.ok(existsSync(instance.pidfile));
      assert.not.ok(existsSync(instance.socket));
    });
  }

  test("user =: a supervised host becomes the user before it starts anything", async () => {
    const instance = await Instance.make();
    instance.configure({ pidfile: instance.pidfile, user: "nobody" });
    const running = await instance.start("up");
    // Two workers and a coordinator.
    const children = await until("all to be started", () => {
      const found = childrenOf(running.pid);
      return found.length >= 3 ? found : null;
    });
    assert.is(children.length, 3);
    for (const pid of [running.pid, ...children]) {
      assert.is(idsOf(`/proc/${pid}`).uids, four(nobody.uid));
      assert.is(idsOf(`/proc/${pid}`).groups, String(nobody.gid));
    }
    await running.stop();
    assert.not.ok(existsSync(instance.pidfile));
  });

  test("unix_socket_group: the group of the socket's file, and its mode", async () => {
    const instance = await Instance.make({
      unix_socket_group: "daemon",
      unix_socket_mode: "0770",
      user: "nobody",
    });
    const running = await instance.start();
    await running.ready("the log", () => running.stderr().includes("process up: pgweir"));
    const { uid, gid, mode } = statSync(instance.socket);
    assert.equal([uid, gid, mode & 0o777], [nobody.uid, findGroup("daemon"), 0o770]);
    await running.stop();
  });
}

for (const command of ["pooler", "up"]) {
  test(`${command}: a user that is not there is no start`, async () => {
    const instance = await Instance.make({ user: "nobody-of-that-name" });
    const run = await instance.folder.run(command, "p.ini");
    assert.is(run.code, 1);
    assert.match(run.stderr, /p\.ini:\d+: user "nobody-of-that-name": this host has none/);
  });
}

test("a group that is not there is no start", async () => {
  const instance = await Instance.make({ unix_socket_group: "no-such-group" });
  const run = await instance.folder.run("pooler", "p.ini");
  assert.is(run.code, 1);
  assert.match(run.stderr, /p\.ini:\d+: unix_socket_group "no-such-group": this host has none/);
});

test.run();
