// CPU time and memory of process trees.

import { spawn } from "node:child_process";
import { assert, suite, until } from "../support/harness.ts";
import { signal } from "../support/processes.ts";
import {
  descendants,
  otherShare,
  parseBusySeconds,
  parseCpuSeconds,
  processTree,
  readMachineUsage,
  readUsage,
  type Usage,
  usedCpuSeconds,
} from "./usage.ts";

const test = suite("bench usage");

function usage(
  processes: Record<number, [coarse: number, threads: Record<number, number>]>,
): Usage {
  return {
    residentBytes: 0,
    processes: new Map(
      Object.entries(processes).map(([pid, [coarseSeconds, threads]]) => [Number(pid), {
        coarseSeconds,
        threadSeconds: new Map(Object.entries(threads).map(([id, s]) => [Number(id), s])),
      }]),
    ),
  };
}

test("descendants() finds children of children when the list is in any order", () => {
  const all = [
    { pid: 40, parent: 30 },
    { pid: 30, parent: 10 },
    { pid: 20, parent: 1 },
    { pid: 10, parent: 1 },
  ];
  assert.equal(descendants(all, [10]).map((p) => p.pid), [10, 30, 40]);
  assert.equal(descendants(all, [10, 30]).map((p) => p.pid).sort(), [10, 30, 40]);
  assert.equal(descendants(all, [99]), []);
});

test("parseCpuSeconds() tells own from ended children's time when the name holds blanks and brackets", () => {
  const stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 100 0 0 0 150 50 70 30 20 0 1 0 12345 1 1";
  assert.equal(parseCpuSeconds(stat), { own: 2, endedChildren: 1 });
});

test("usedCpuSeconds() adds up the threads when all of them lived on", () => {
  const before = usage({ 1: [1.0, { 1: 0.5, 2: 0.25 }] });
  const after = usage({ 1: [9.9, { 1: 1.0, 2: 0.5, 3: 0.125 }] });
  assert.is(usedCpuSeconds(before, after), 0.875);
});

test("usedCpuSeconds() takes the process's total when a thread ended in between", () => {
  const before = usage({ 1: [1.0, { 1: 0.5, 2: 0.25 }] });
  const after = usage({ 1: [1.5, { 1: 0.6 }] });
  assert.is(usedCpuSeconds(before, after), 0.5);
});

test("usedCpuSeconds() counts a process from its start when it began in between", () => {
  assert.is(usedCpuSeconds(usage({}), usage({ 2: [0.1, { 2: 0.0625 }] })), 0.0625);
});

test("usedCpuSeconds() throws when a process ended in between", () => {
  assert.throws(
    () => usedCpuSeconds(usage({ 5: [1, { 5: 1 }] }), usage({})),
    /CPU of process 5: it has ended/,
  );
});

test("parseBusySeconds() leaves idle and waiting for the disk out", () => {
  const stat = "cpu  100 20 30 5000 600 7 8 35 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
  assert.is(parseBusySeconds(stat), 2);
});

test("otherShare() is what was busy beyond our own work, of all cores", () => {
  const before = { atSeconds: 10, busySeconds: 100, ownSeconds: 50 };
  assert.is(otherShare(before, { atSeconds: 12, busySeconds: 104, ownSeconds: 53 }, 2), 0.25);
  // Ticks are counted by sampling: our own work may seem more than all.
  assert.is(otherShare(before, { atSeconds: 12, busySeconds: 102, ownSeconds: 53 }, 2), 0);
});

test("readMachineUsage() includes this process", () => {
  const before = readMachineUsage();
  assert.ok(before.busySeconds > 0 && before.ownSeconds > 0);
  assert.ok(before.busySeconds >= before.ownSeconds);
});

test("readUsage() counts a child of the process it is asked for", async () => {
  const shell = spawn("/bin/sh", ["-c", "sleep 60 & wait"], { stdio: "ignore" });
  const pid = shell.pid!;
  try {
    await until("the shell's child", () => processTree([pid]).length === 2);
    const seen = readUsage([pid]);
    assert.is(seen.processes.size, 2);
    assert.ok(seen.residentBytes > 0);
    assert.ok(usedCpuSeconds(seen, readUsage([pid])) >= 0);
  } finally {
    const ended = new Promise((resolve) => shell.once("exit", resolve));
    for (const process of processTree([pid])) signal(process.pid, "SIGKILL");
    await ended;
  }
});

test.run();
