// What workers say of the use of resource groups: what is whole comes over the wire as it was, what is not is refused.

import { type GroupUses, groupUsesPayload } from "../../shared/bus/group_uses.ts";
import { noUse } from "../groups/fixtures.ts";
import { assert, suite } from "../support/harness.ts";

const tests = suite("group uses messages");

/** Over the wire. */
function passed(message: GroupUses): GroupUses | null {
  return groupUsesPayload.check(
    groupUsesPayload.wire!.unpack(groupUsesPayload.wire!.pack(message)),
  );
}

tests("what is whole comes as it was", () => {
  const one = { ...noUse, name: "a", running: 1, queued: 2, memory: 2 ** 40, granted: 4 };
  const other = { ...one, name: "b", refused: 6, timedOut: 7, queuedMs: 8, lastUsed: 2 ** 41 };
  for (const groups of [[], [one], [one, { ...other, admitted: 2 ** 50, runningMs: 9 }]]) {
    assert.equal(passed({ groups }), { groups });
  }
});

tests("a message with anything else in it is refused", () => {
  const use = { ...noUse, name: "a" };
  for (const key of Object.keys(use)) {
    for (const bad of [undefined, -1, 1.5, null, {}, "x".repeat(64)]) {
      assert.is(groupUsesPayload.check({ groups: [{ ...use, [key]: bad }] }), null, key);
    }
  }
  assert.is(groupUsesPayload.check({ groups: Array.from({ length: 1001 }, () => use) }), null);
  assert.is(groupUsesPayload.check({}), null);
  const wire = groupUsesPayload.wire!.pack({ groups: [use, use] });
  for (const bad of [undefined, [], "x", new Uint8Array(8), new Uint8Array(17)]) {
    for (const key of Object.keys(wire)) {
      const raw = groupUsesPayload.wire!.unpack({ ...wire, [key]: bad });
      if (key === "names" && Array.isArray(bad)) continue;
      assert.is(groupUsesPayload.check(raw), null, key);
    }
  }
});

tests.run();
