// Which backend is whose: what workers say of their backends' groups, as long as they say it, and what is believed of it;
// and what PostgreSQL says of its processes.

import { leaderOf, servesClient } from "../../services/overload/backend_title.ts";
import { GroupBook } from "../../services/overload/group_book.ts";
import type { GroupBackends, GroupRow } from "../../shared/bus/mod.ts";
import { assert, suite } from "../support/harness.ts";

const tests = suite("group book");

function row(change: Partial<GroupRow> = {}): GroupRow {
  const backends = [{ pid: 10, ageMs: 1000 }, { pid: 11, ageMs: 2000 }];
  return { database: "shop", group: "a", memory: 100, running: 1, backends, ...change };
}

function said(worker: number, seq: number, ...rows: GroupRow[]): GroupBackends {
  return { worker, incarnation: 1, seq, rows };
}

tests("a backend is in the group that its worker says, if it was started with a connection", () => {
  const book = new GroupBook((name) => ["shop", "stock"].includes(name));
  book.heard(said(1, 1, row(), row({ database: "other", group: "b" })), 50_000);
  const claim = { worker: 1, database: "shop", group: "a", isRunning: true };
  const near = (one: ReturnType<GroupBook["claimOf"]>) =>
    one === null ? null : { ...one, openedAt: undefined };
  assert.equal(near(book.claimOf(10, 49_010)), { ...claim, openedAt: undefined });
  assert.is(book.claimOf(11, 48_000)?.isRunning, false);
  const rows: [number, boolean][] = [
    [49_000 - 5001, false],
    [49_000 - 5000, true],
    [49_000 + 20_000, true],
    [49_000 + 20_001, false],
    [0, false],
  ];
  for (const [startedAt, isBelieved] of rows) {
    assert.is(book.claimOf(10, startedAt) !== null, isBelieved, `${startedAt}`);
  }
  assert.is(book.claimOf(12, 49_000), null);
});

tests("one process id on two hosts is told apart by when it was started", () => {
  const book = new GroupBook((name) => ["shop"].includes(name));
  book.heard(
    said(
      1,
      1,
      row({ group: "old", backends: [{ pid: 10, ageMs: 90_000 }], running: 0 }),
      row({ group: "new", backends: [{ pid: 10, ageMs: 100 }], running: 0 }),
    ),
    100_000,
  );
  assert.is(book.claimOf(10, 10_000)?.group, "old");
  assert.is(book.claimOf(10, 99_900)?.group, "new");
});

tests(
  "the newest message counts, of the newest start, and none of a worker that is gone or silent",
  () => {
    const book = new GroupBook((name) => ["shop"].includes(name));
    const groupNow = () => book.claimOf(10, 0)?.group ?? null;
    const of = (group: string) => row({ group, backends: [{ pid: 10, ageMs: 0 }], running: 0 });
    book.heard(said(1, 5, of("a")), 0);
    book.heard(said(1, 4, of("b")), 0);
    book.heard({ ...said(1, 9, of("c")), incarnation: 0 }, 0);
    assert.is(groupNow(), "a");
    book.heard({ ...said(1, 1, of("d")), incarnation: 2 }, 0);
    assert.is(groupNow(), "d");
    book.gone(1, 1);
    assert.is(groupNow(), "d");
    book.gone(1, 2);
    assert.is(groupNow(), null);
    book.heard(said(2, 1, of("e")), 0);
    book.expire(9999);
    assert.is(groupNow(), "e");
    book.expire(10_000);
    assert.is(groupNow(), null);
    assert.equal(book.workers, []);
  },
);

tests("of two workers that claim a backend the same one wins always", () => {
  for (const order of [[1, 2], [2, 1]] as const) {
    const book = new GroupBook((name) => ["shop"].includes(name));
    for (const worker of order) {
      book.heard(said(worker, 1, row({ group: `of ${worker}` })), 1000);
    }
    assert.is(book.claimOf(10, 0)?.group, "of 1");
  }
});

tests("what a worker counts is summed up by group", () => {
  const book = new GroupBook((name) => ["shop", "stock"].includes(name));
  book.heard(
    said(3, 1, row(), row({ database: "stock", memory: 50 }), row({ group: "b", memory: 7 })),
    0,
  );
  assert.equal([...book.countedBy(3)], [["a", 150], ["b", 7]]);
  assert.equal([...book.countedBy(4)], []);
});

tests("there are no more workers than the bound", () => {
  const book = new GroupBook((name) => ["shop"].includes(name));
  for (let worker = 0; worker < 1100; worker++) book.heard(said(worker, 1), 0);
  assert.is(book.workers.length, 1000);
});

tests("a process serves a client, helps another with its query, or neither", () => {
  const rows: [string, boolean, number | null][] = [
    ["postgres: app shop 127.0.0.1(5432) SELECT", true, null],
    ["postgres: app shop 127.0.0.1(5432) idle\0\0\0", true, null],
    ["postgres: main: app shop [local] idle in transaction", true, null],
    ["postgres: app shop [local]", true, null],
    ["postgres: app shop fe80::1(33) idle", true, null],
    ["postgres: walsender rep 10.0.0.1(4) streaming 0/1", false, null],
    ["postgres: main: walsender rep postgres [local] START", false, null],
    ["postgres: checkpointer ", false, null],
    ["postgres: main: background writer ", false, null],
    ["postgres: autovacuum worker shop", false, null],
    ["postgres: logical replication launcher ", false, null],
    ["postgres: parallel worker for PID 4711 ", false, 4711],
    ["postgres: main: parallel worker for PID 12", false, 12],
    ["postgres\0-D\0/data", false, null],
    ["", false, null],
  ];
  for (const [title, serves, leader] of rows) {
    assert.is(servesClient(title), serves, title);
    assert.is(leaderOf(title), leader, title);
  }
});

tests.run();
