// Whose processes a monitor looks at: the workers of its supervisor, the PostgreSQL that is meant.

import { mkdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import process from "node:process";
import {
  choosePostmaster,
  portOfArguments,
  type Postmaster,
  type PostmasterHints,
  PostmasterWatch,
} from "../../services/overload/postmaster.ts";
import { Proc } from "../../services/overload/proc.ts";
import { WorkerWatch } from "../../services/overload/worker_watch.ts";
import { assert, suite } from "../support/harness.ts";
import { tempDir } from "../support/temp.ts";
import { presence } from "./fixtures.ts";

const tests = suite("watched processes");

tests("WorkerWatch knows the workers of its supervisor until they go or are silent", () => {
  const watch = new WorkerWatch("supervisor-1");
  watch.heard(presence(1), 0);
  watch.heard(presence(2, { state: "starting" }), 0);
  watch.heard(presence(3, { supervisor: "supervisor-2" }), 0);
  watch.heard(presence(4, { supervisor: "" }), 0);
  assert.equal(watch.pids(0), [1, 2]);
  watch.heard(presence(2, { state: "draining" }), 9000);
  assert.equal(watch.pids(9999), [1, 2]);
  assert.equal(watch.pids(10_000), [2]);
  watch.heard(presence(2, { state: "gone" }), 10_001);
  assert.equal(watch.pids(10_001), []);
});

tests("portOfArguments() reads the ways to say a port, the last of which wins", () => {
  const rows: [string, number | null][] = [
    ["postgres", null],
    ["postgres\0-D\0/data\0-p\x005433", 5433],
    ["postgres\0-p5434", 5434],
    ["postgres\0-c\0port=5435", 5435],
    ["postgres\0-cport=5436", 5436],
    ["postgres\0--port=5437", 5437],
    ["postgres\0-p\x001\0--port=2", 2],
    ["postgres\0-p\0x", null],
    ["postgres\0-c\0superuser_reserved_connections=3", null],
  ];
  for (const [text, port] of rows) assert.is(portOfArguments(text), port, text);
});

const none: PostmasterHints = { pid: null, dataDirectory: null, port: null };
const first: Postmaster = { pid: 10, dataDirectory: "/data/a", port: 5432 };
const second: Postmaster = { pid: 20, dataDirectory: "/data/b", port: 5433 };
const hidden: Postmaster = { pid: 30, dataDirectory: null, port: null };

tests("choosePostmaster() takes the one that is named, or else the one of the entry's port", () => {
  const all = [first, second, hidden];
  const rows: [Postmaster[], Partial<PostmasterHints>, number, number | null][] = [
    [[first], {}, 5432, 10],
    [[first], {}, 1, null],
    [[hidden], {}, 1, 30],
    [[second, hidden], {}, 5432, null],
    [all, {}, 5433, 20],
    [[first, { ...second, port: 5432 }], {}, 5432, null],
    [all, { port: 5432 }, 5433, 10],
    [all, { pid: 30 }, 5433, 30],
    [all, { dataDirectory: "/data/b" }, 5432, 20],
    [[first], { port: 5433 }, 5432, null],
  ];
  for (const [some, hints, port, pid] of rows) {
    const chosen = choosePostmaster(some, { ...none, ...hints }, port);
    assert.is(typeof chosen === "string" ? null : chosen.pid, pid);
  }
});

tests("choosePostmaster() says what runs when it can't tell which", () => {
  assert.match(
    choosePostmaster([], none, 5432) as string,
    /^0 .*running here: none.*--pid, --port/,
  );
  const others = choosePostmaster([first, second], none, 1) as string;
  assert.match(
    others,
    /^0 PostgreSQL servers fit port 1, that of the entry \(running here: pid 10, port 5432, data directory "\/data\/a"; pid 20, /,
  );
  assert.not.match(others, /run it as/);
  const hinted = choosePostmaster([hidden], { ...none, port: 5432 }, 5432) as string;
  assert.match(hinted, /^0 .*fit what was given .*pid 30, port \?\).*run it as the user of Postg/);
});

/** A host with postmasters that are nothing but files. */
class Host {
  readonly #root = tempDir("proc");
  readonly directory = tempDir("data");
  readonly found: number[] = [];
  readonly missing: string[] = [];

  start(pid: number, port: number | null, directory = ""): void {
    const folder = join(this.#root, "proc", `${pid}`);
    mkdirSync(folder, { recursive: true });
    const [parent, rest] = [1, Array(19).fill(0).join(" ")];
    writeFileSync(join(folder, "stat"), `${pid} (postgres) S ${parent} ${rest}`);
    writeFileSync(join(folder, "cmdline"), `postgres\0${port === null ? "" : `-p\0${port}\0`}`);
    if (directory !== "") symlinkSync(directory, join(folder, "cwd"));
  }

  stop(pid: number): void {
    rmSync(join(this.#root, "proc", `${pid}`), { recursive: true });
  }

  watch(hints: Partial<PostmasterHints>, entryPort: () => number): PostmasterWatch {
    return new PostmasterWatch({
      proc: new Proc(this.#root),
      hints: { ...none, ...hints },
      entryPort,
      onFound: ({ pid }) => this.found.push(pid),
      onMissing: (why) => this.missing.push(why),
    });
  }
}

tests("a PostgreSQL that is restarted is waited for, and none beside it takes its place", () => {
  const host = new Host();
  host.start(20, 5433);
  const watch = host.watch({}, () => 5432);
  assert.equal(watch.pids(), []);
  host.start(10, 5432);
  assert.equal(watch.pids(), [10]);
  host.stop(10);
  assert.equal(watch.pids(), []);
  host.start(11, 5432);
  assert.equal(watch.pids(), [11]);
  assert.equal(watch.pids(), [11]);
  assert.equal(host.found, [10, 11]);
  assert.is(host.missing.length, 2);
});

tests("a port that the entry has from now on is that of another PostgreSQL", () => {
  const host = new Host();
  host.start(10, 5432);
  host.start(20, 5433);
  let port = 5432;
  const watch = host.watch({}, () => port);
  assert.equal(watch.pids(), [10]);
  port = 5433;
  assert.equal(watch.pids(), [20]);
  port = 5434;
  assert.equal(watch.pids(), []);
});

tests("one whose port may not be seen is watched while it is the only one", () => {
  const host = new Host();
  host.start(10, null);
  const watch = host.watch({}, () => 5432);
  assert.equal([watch.pids(), watch.pids(), host.found], [[10], [10], [10]]);
  host.start(20, null);
  assert.equal(watch.pids(), []);
});

tests("a data directory may be named by any path that leads there", () => {
  const host = new Host();
  host.start(10, 5432, host.directory);
  host.start(20, 5433);
  const link = join(tempDir("link"), "main");
  symlinkSync(host.directory, link);
  const paths = [host.directory, link, `${host.directory}/`, relative(process.cwd(), link)];
  for (const dataDirectory of paths) {
    assert.equal(host.watch({ dataDirectory }, () => 1).pids(), [10], dataDirectory);
  }
  assert.equal(host.watch({ dataDirectory: `${link}/other` }, () => 1).pids(), []);
  // Of a container: not there for us.
  host.start(30, 5432, "/nosuch/data");
  assert.equal(host.watch({ dataDirectory: "/nosuch/data/" }, () => 1).pids(), [30]);
});

tests.run();
