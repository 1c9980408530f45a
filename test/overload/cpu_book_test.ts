// What is counted between two looks at the counters of threads that come, go and are replaced.

import { type Counters, CpuBook, parseSchedstat } from "../../services/overload/cpu_book.ts";
import { assert, suite } from "../support/harness.ts";

const tests = suite("cpu book");

type Shape = Record<number, Record<number, [busyUs: number, waitUs: number]>>;

function counters(shape: Shape): Counters {
  return new Map(
    Object.entries(shape).map(([pid, threads]) => [
      Number(pid),
      new Map(
        Object.entries(threads).map(([id, [busyUs, waitUs]]) => [
          Number(id),
          { busyNs: busyUs * 1000, waitNs: waitUs * 1000 },
        ]),
      ),
    ]),
  );
}

tests("take() sums what threads did since the last look", () => {
  const rows: [string, Shape, Shape, newPids: number[], busyUs: number, waitUs: number][] = [
    ["nobody", {}, {}, [], 0, 0],
    ["one thread", { 1: { 1: [10, 20] } }, { 1: { 1: [15, 50] } }, [], 5, 30],
    [
      "two processes",
      { 1: { 1: [10, 20], 2: [0, 0] }, 3: { 3: [5, 5] } },
      { 1: { 1: [15, 50], 2: [1, 2] }, 3: { 3: [5, 6] } },
      [],
      6,
      33,
    ],
    ["a thread that came", { 1: { 1: [10, 20] } }, { 1: { 1: [10, 20], 2: [3, 4] } }, [], 3, 4],
    ["a thread that went", { 1: { 1: [10, 20], 2: [3, 4] } }, { 1: { 1: [11, 22] } }, [], 1, 2],
    [
      "a process that was started",
      { 1: { 1: [1, 1] } },
      {
        1: { 1: [1, 1] },
        2: { 2: [7, 8] },
      },
      [2],
      7,
      8,
    ],
    ["an old process that was not looked at before", {}, { 2: { 2: [7000, 8000] } }, [], 0, 0],
    [
      "a process that went",
      { 1: { 1: [10, 20] }, 2: { 2: [9, 9] } },
      {
        1: { 1: [11, 20] },
      },
      [],
      1,
      0,
    ],
    // The id of a thread that ended was given to another one.
    ["counters that went back", { 1: { 1: [10, 20] } }, { 1: { 1: [2, 3] } }, [], 2, 3],
    ["one counter that went back", { 1: { 1: [10, 20] } }, { 1: { 1: [11, 3] } }, [], 11, 3],
    ["nobody any more", { 1: { 1: [10, 20] } }, {}, [], 0, 0],
  ];
  for (const [what, before, after, newPids, busyUs, waitUs] of rows) {
    const book = new CpuBook();
    assert.is(book.take(counters(before), () => true), null, what);
    const times = book.take(counters(after), (pid) => newPids.includes(pid));
    assert.equal(times, { busyUs, waitUs }, what);
    assert.equal(
      book.take(counters(after), () => false),
      { busyUs: 0, waitUs: 0 },
      `${what}, unchanged`,
    );
  }
});

tests("a process that comes back after it was not seen is counted from then on", () => {
  const book = new CpuBook();
  book.take(counters({ 1: { 1: [10, 10] } }), () => false);
  book.take(counters({}), () => false);
  const back = book.take(counters({ 1: { 1: [500, 500] } }), () => false);
  assert.equal(back, { busyUs: 0, waitUs: 0 });
  const next = book.take(counters({ 1: { 1: [501, 502] } }), () => false);
  assert.equal(next, { busyUs: 1, waitUs: 2 });
});

tests("parseSchedstat() reads two counters, or nothing", () => {
  assert.equal(parseSchedstat("360818 209720 2\n"), { busyNs: 360818, waitNs: 209720 });
  assert.equal(parseSchedstat("0 0 0\n"), { busyNs: 0, waitNs: 0 });
  for (const text of ["", "\n", "12", "a b c", "-1 2 3", "NaN 1 1"]) {
    assert.is(parseSchedstat(text), null, text);
  }
});

tests.run();
