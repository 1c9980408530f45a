// The names on the bus: built from checked parts only, and the rights that follow from them.

import { isMeshName, isWorkerId, meshSubjects } from "../../shared/bus/mod.ts";
import { covers, isPattern } from "../../shared/bus/subject_tree.ts";
import { assert, suite } from "../support/harness.ts";

const subjects = suite("meshSubjects");

subjects("meshSubjects() names every subject under the mesh", () => {
  const mesh = meshSubjects("prod-1");
  assert.is(mesh.presence(0).subject, "pgweir.prod-1.presence.0");
  assert.is(mesh.allPresence.subject, "pgweir.prod-1.presence.*");
  assert.is(mesh.cancel(32767).subject, "pgweir.prod-1.cancel.32767");
  assert.is(mesh.budgetReport(7).subject, "pgweir.prod-1.budget.report.7");
  assert.is(mesh.allBudgetReports.subject, "pgweir.prod-1.budget.report.*");
  assert.is(mesh.budgetGrant(7).subject, "pgweir.prod-1.budget.grant.7");
  assert.is(mesh.budgetLeader.subject, "pgweir.prod-1.budget.leader");
  assert.is(mesh.budgetGone.subject, "pgweir.prod-1.budget.gone");
  assert.is(mesh.budgetBackends(7).subject, "pgweir.prod-1.budget.backends.7");
  assert.is(mesh.allBudgetBackends.subject, "pgweir.prod-1.budget.backends.*");
  assert.is(mesh.tableChanges(7).subject, "pgweir.prod-1.tables.7");
  assert.is(mesh.allTableChanges.subject, "pgweir.prod-1.tables.*");
  assert.is(mesh.store.subject, "pgweir.prod-1.store");
  assert.is(mesh.inboxPrefix("pooler-17"), "pgweir.prod-1.inbox.pooler-17");
});

subjects("meshSubjects() refuses names that are no token of a subject", () => {
  const bad = ["", ".", "a.b", "*", ">", "a b", "a\n", "é", "x".repeat(33), "a*", "\u0000"];
  for (const name of bad) {
    assert.is(isMeshName(name), false, name);
    assert.throws(() => meshSubjects(name), /mesh is/, name);
    assert.throws(() => meshSubjects("m").inboxPrefix(name), /client name is/, name);
  }
  for (const name of ["a", "A_b-9", "x".repeat(32)]) assert.is(isMeshName(name), true);
});

subjects("meshSubjects() refuses worker ids out of 15 bits", () => {
  const mesh = meshSubjects("m");
  for (const id of [-1, 32768, 1.5, NaN, Infinity, "7" as unknown as number]) {
    assert.is(isWorkerId(id), false);
    assert.throws(() => mesh.presence(id), /worker id is/);
    for (const name of ["cancel", "budgetReport", "budgetGrant", "budgetBackends"] as const) {
      assert.throws(() => mesh[name](id), /worker id is/);
    }
  }
});

subjects("workerRights() allow what a worker does and nothing else", () => {
  const mesh = meshSubjects("m");
  const rights = mesh.workerRights(7, "pooler-7");
  assert.ok([...rights.publish, ...rights.subscribe].every(isPattern));
  const may = (kind: "publish" | "subscribe", subject: string): boolean =>
    rights[kind].some((allowed) => covers(allowed, subject));
  const rows: ["publish" | "subscribe", string, boolean][] = [
    ["publish", mesh.presence(7).subject, true],
    ["publish", mesh.presence(8).subject, false],
    ["publish", mesh.cancel(8).subject, true],
    ["publish", `${mesh.inboxPrefix("pooler-8")}.abc.1`, true],
    ["publish", "pgweir.other.cancel.8", false],
    ["publish", "pgweir.m.console.run", false],
    ["publish", mesh.budgetReport(7).subject, true],
    ["publish", mesh.budgetReport(8).subject, false],
    ["publish", mesh.consoleHost("supervisor-1").subject, true],
    ["publish", mesh.consoleWorker(8).subject, false],
    ["subscribe", mesh.consoleWorker(7).subject, true],
    ["subscribe", mesh.consoleWorker(8).subject, false],
    ["subscribe", mesh.consoleHost("supervisor-1").subject, false],
    ["publish", mesh.budgetBackends(7).subject, true],
    ["publish", mesh.budgetBackends(8).subject, false],
    ["publish", mesh.tableChanges(7).subject, true],
    ["publish", mesh.tableChanges(8).subject, false],
    ["subscribe", mesh.allTableChanges.subject, true],
    ["publish", mesh.groupUses(8).subject, true],
    ["subscribe", mesh.groupUses(7).subject, true],
    ["subscribe", mesh.groupUses(8).subject, false],
    ["publish", mesh.budgetGrant(7).subject, false],
    ["publish", mesh.budgetLeader.subject, false],
    ["publish", mesh.budgetGone.subject, false],
    ["publish", mesh.store.subject, false],
    ["subscribe", mesh.budgetGrant(7).subject, true],
    ["subscribe", mesh.budgetGrant(8).subject, false],
    ["subscribe", mesh.budgetLeader.subject, true],
    ["subscribe", mesh.allBudgetReports.subject, false],
    ["subscribe", mesh.budgetGone.subject, false],
    ["subscribe", mesh.store.subject, false],
    ["subscribe", mesh.allPresence.subject, true],
    ["subscribe", mesh.cancel(7).subject, true],
    ["subscribe", mesh.cancel(8).subject, false],
    ["subscribe", "pgweir.m.cancel.*", false],
    ["subscribe", `${mesh.inboxPrefix("pooler-7")}.abc.*`, true],
    ["subscribe", `${mesh.inboxPrefix("pooler-8")}.abc.*`, false],
    ["subscribe", "pgweir.m.>", false],
    ["subscribe", ">", false],
  ];
  for (const [kind, subject, allowed] of rows) {
    assert.is(may(kind, subject), allowed, `${kind} ${subject}`);
  }
});

subjects("coordinatorRights() allow what a coordinator does and nothing else", () => {
  const mesh = meshSubjects("m");
  const rights = mesh.coordinatorRights("budget");
  assert.ok([...rights.publish, ...rights.subscribe].every(isPattern));
  const may = (kind: "publish" | "subscribe", subject: string): boolean =>
    rights[kind].some((allowed) => covers(allowed, subject));
  const rows: ["publish" | "subscribe", string, boolean][] = [
    ["publish", mesh.budgetGrant(8).subject, true],
    ["publish", mesh.budgetLeader.subject, true],
    ["publish", mesh.store.subject, true],
    ["publish", `${mesh.inboxPrefix("supervisor")}.abc.1`, true],
    ["publish", mesh.budgetReport(8).subject, false],
    ["publish", mesh.budgetGone.subject, false],
    ["publish", mesh.cancel(8).subject, false],
    ["publish", mesh.consoleHost("supervisor-1").subject, false],
    ["subscribe", mesh.consoleWorker(8).subject, false],
    ["publish", mesh.presence(8).subject, false],
    ["subscribe", mesh.allPresence.subject, true],
    ["subscribe", mesh.allBudgetReports.subject, true],
    ["subscribe", mesh.allBudgetBackends.subject, true],
    ["subscribe", mesh.budgetGone.subject, true],
    ["subscribe", mesh.budgetLeader.subject, true],
    ["subscribe", `${mesh.inboxPrefix("budget")}.abc.*`, true],
    ["subscribe", `${mesh.inboxPrefix("supervisor")}.abc.*`, false],
    ["subscribe", mesh.store.subject, false],
    ["subscribe", "pgweir.m.cancel.*", false],
    ["subscribe", ">", false],
  ];
  for (const [kind, subject, allowed] of rows) {
    assert.is(may(kind, subject), allowed, `${kind} ${subject}`);
  }
});

subjects("what a worker says is taken under its own subject only", () => {
  const mesh = meshSubjects("m");
  const report = { worker: 7, incarnation: 1, epoch: 1, seq: 1, leaves: [] };
  for (const pattern of [mesh.allBudgetReports, mesh.budgetReport(7)]) {
    assert.is(pattern.accepts?.(mesh.budgetReport(7).subject, report), true);
    assert.is(pattern.accepts?.(mesh.budgetReport(8).subject, report), false);
  }
  const change = { worker: 7, database: "shop" };
  assert.is(mesh.allTableChanges.accepts?.(mesh.tableChanges(7).subject, change), true);
  assert.is(mesh.allTableChanges.accepts?.(mesh.tableChanges(8).subject, change), false);
  for (const wrong of [{ database: "" }, { worker: 7 }, { ...change, database: 1 }]) {
    assert.is(mesh.allTableChanges.message.check(wrong), null);
  }
  assert.equal(mesh.allTableChanges.message.check({ ...change, newer: 1 }), change);
  const grant = { ...report, report: 1 };
  assert.is(mesh.budgetGrant(7).accepts?.(mesh.budgetGrant(7).subject, grant), true);
  assert.is(mesh.budgetGrant(8).accepts?.(mesh.budgetGrant(8).subject, grant), false);
  assert.is(mesh.allBudgetBackends.accepts?.(mesh.budgetBackends(8).subject, report), false);
  assert.is(mesh.allBudgetBackends.accepts?.(mesh.budgetBackends(7).subject, report), true);
});

subjects.run();
