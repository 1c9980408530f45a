// Whose processes a monitor looks at: the workers of its supervisor, the PostgreSQL that is meant.

import {
  choosePostmaster,
  portOfArguments,
  type Postmaster,
  type PostmasterHints,
} from "../../services/overload/postmaster.ts";
import { WorkerWatch } from "../../services/overload/worker_watch.ts";
import { assert, suite } from "../support/harness.ts";
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

tests(
  "choosePostmaster() takes the only one, the one that is named, or the one of the port",
  () => {
    const all = [first, second, hidden];
    const rows: [Postmaster[], Partial<PostmasterHints>, number, number][] = [
      [[first], {}, 1, 10],
      [[hidden], {}, 1, 30],
      [all, {}, 5433, 20],
      [all, { port: 5432 }, 5433, 10],
      [all, { pid: 30 }, 5433, 30],
      [all, { dataDirectory: "/data/b" }, 5432, 20],
    ];
    for (const [some, hints, usual, pid] of rows) {
      const chosen = choosePostmaster(some, { ...none, ...hints }, usual);
      assert.is(typeof chosen === "string" ? chosen : chosen.pid, pid);
    }
  },
);

tests("choosePostmaster() says what runs when it can't tell which", () => {
  assert.match(
    choosePostmaster([], none, 5432) as string,
    /^0 .*running here: none.*--pid, --port/,
  );
  const several = choosePostmaster([first, second], none, 1) as string;
  assert.match(several, /^2 PostgreSQL servers fit \(running here: pid 10, port 5432; pid 20, /);
  assert.not.match(several, /run it as/);
  const hinted = choosePostmaster([hidden], { ...none, port: 5432 }, 5432) as string;
  assert.match(hinted, /^0 .*pid 30, port \?.*run it as the user of PostgreSQL/);
});

tests.run();
