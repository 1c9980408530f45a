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
    assert.throws(() => mesh.cancel(id), /worker id is/);
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

subjects.run();
