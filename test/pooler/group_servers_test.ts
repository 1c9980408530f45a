// Which idle server a query of a group gets where CPU is divided: the latest of its own group, among those that are
// looked at.

import { ownServerIndex } from "../../services/pooler/plane/group_servers.ts";
import { AdmissionTree, type Group } from "../../shared/groups/mod.ts";
import { group as groupConfig } from "../groups/fixtures.ts";
import { assert, suite } from "../support/harness.ts";

const tests = suite("servers of groups");

tests("ownServerIndex() is that of the server which was used last in the group", () => {
  const tree = new AdmissionTree({
    groups: ["a", "b", "c"].map((name) => groupConfig(name)),
    priorityAgingMs: 0,
  });
  const [a, b, c] = tree.groups as [Group, Group, Group];
  const rows: [(Group | null)[], Group | null, number][] = [
    [[], a, -1],
    [[a, b, a, b, null], a, 2],
    [[a, b, a, b, null], b, 3],
    [[a, b, a, b, null], null, 4],
    [[a, b], null, -1],
    [[a, b], c, -1],
    [[a, ...Array.from({ length: 31 }, () => b)], a, 0],
    [[a, ...Array.from({ length: 32 }, () => b)], a, -1],
  ];
  for (const [idle, group, index] of rows) {
    assert.is(ownServerIndex(idle.map((group) => ({ group })), group), index);
  }
});

tests.run();
