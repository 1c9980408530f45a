// What overload monitors say: what is whole passes unchanged, what is not is refused, and one speaks under
// its own subject only.

import { meshSubjects } from "../../shared/bus/mod.ts";
import {
  type OverloadDecision,
  overloadDecisionPayload,
  type OverloadWarnings,
  overloadWarningsPayload,
} from "../../shared/bus/overload_messages.ts";
import { decodePayload, encodePayload } from "../../shared/bus/codec.ts";
import { assert, suite } from "../support/harness.ts";

const tests = suite("overload messages");

const decision: OverloadDecision = {
  monitor: "overload-1",
  host: "db1.example",
  supervisor: "supervisor-1",
  database: "",
  epoch: 1_700_000_000_000,
  seq: 3,
  intervalMs: 1000,
  ratio: 4,
  waitUs: 2_000_000,
  busyUs: 500_000,
  reason: "CPU wait 2.00 s, work 0.50 s",
  transactions: { min: 2, max: 6, probability: 0.5 },
  connections: { min: 0, max: 0, probability: 0 },
};
const warnings: OverloadWarnings = {
  monitor: "overload-1",
  host: "db1.example",
  epoch: 1_700_000_000_000,
  seq: 3,
  warnings: [
    { kind: "cpu", raisedAt: 5, clearedAt: 9, value: 0.7, warn: 0.9, clear: 0.8 },
    { kind: "memory", raisedAt: 7, clearedAt: null, value: 0.95, warn: 0.9, clear: 0.8 },
  ],
};

tests("what is whole comes back from its bytes, without what nobody knows", () => {
  const decided = decodePayload(
    overloadDecisionPayload,
    encodePayload(overloadDecisionPayload, { ...decision, newer: 1 } as OverloadDecision),
  );
  assert.equal(decided, { ok: true, message: decision });
  const warned = decodePayload(
    overloadWarningsPayload,
    encodePayload(overloadWarningsPayload, warnings),
  );
  assert.equal(warned, { ok: true, message: warnings });
});

tests("a field that is missing or of another kind is refused", () => {
  for (
    const [payload, message] of [
      [overloadDecisionPayload, decision],
      [overloadWarningsPayload, warnings],
    ] as const
  ) {
    for (const key of Object.keys(message)) {
      for (const bad of [undefined, -1, NaN, Infinity, {}, "x".repeat(10_000)]) {
        assert.is(payload.check({ ...message, [key]: bad }), null, `${payload.name}.${key} ${bad}`);
      }
    }
  }
});

tests("a decision is about a host's workers or a database, and its numbers make sense", () => {
  const check = (change: Record<string, unknown>) =>
    overloadDecisionPayload.check({ ...decision, ...change });
  assert.is.not(check({ supervisor: "", database: "shop" }), null);
  const wrong: Record<string, unknown>[] = [
    { supervisor: "", database: "" },
    { supervisor: "s", database: "shop" },
    { intervalMs: 0 },
    { intervalMs: 1.5 },
    { transactions: { min: 2, max: 6, probability: 1.1 } },
    { transactions: { min: 2, max: 6, probability: -0.1 } },
    { transactions: { min: 2, max: 6 } },
    // Bounds that are turned off refuse nothing.
    { transactions: { min: 6, max: 2, probability: 0.5 } },
    { connections: { min: 0, max: 0, probability: 0.5 } },
  ];
  for (const change of wrong) assert.is(check(change), null, JSON.stringify(change));
});

tests("warnings are bounded, and of a kind that is known", () => {
  const check = (list: unknown) => overloadWarningsPayload.check({ ...warnings, warnings: list });
  const one = warnings.warnings[0]!;
  assert.is.not(check(new Array(48).fill(one)), null);
  for (const bad of [new Array(49).fill(one), [{ ...one, kind: "disk" }], [{ ...one, warn: -1 }]]) {
    assert.is(check(bad), null);
  }
});

tests("each speaks under its own subject, in its own mesh", () => {
  const mesh = meshSubjects("m");
  const host = mesh.overloadHost("supervisor-1");
  assert.is(host.subject, "pgweir.m.overload.host.supervisor-1");
  assert.is(host.accepts?.(host.subject, decision), true);
  assert.is(host.accepts?.(host.subject, { ...decision, supervisor: "supervisor-2" }), false);
  const about = { ...decision, supervisor: "", database: "shop" };
  assert.is(host.accepts?.(host.subject, about), false);
  const { allOverloadDatabases, allOverloadWarnings } = mesh;
  assert.is(allOverloadDatabases.subject, "pgweir.m.overload.database.*");
  const own = mesh.overloadDatabase("overload-1").subject;
  assert.is(allOverloadDatabases.accepts?.(own, about), true);
  assert.is(allOverloadDatabases.accepts?.(own, decision), false);
  assert.is(allOverloadDatabases.accepts?.(`${own}2`, about), false);
  const warner = mesh.overloadWarnings("overload-1").subject;
  assert.is(warner, "pgweir.m.overload.warnings.overload-1");
  assert.is(allOverloadWarnings.accepts?.(warner, warnings), true);
  assert.is(allOverloadWarnings.accepts?.(own, warnings), false);
  for (const bad of ["a.b", "*", ""]) {
    assert.throws(() => mesh.overloadHost(bad), /supervisor is/);
    assert.throws(() => mesh.overloadDatabase(bad), /monitor is/);
    assert.throws(() => mesh.overloadWarnings(bad), /monitor is/);
  }
});

tests("rights: a monitor speaks for itself and its supervisor's workers, which only listen", () => {
  const mesh = meshSubjects("m");
  assert.equal(mesh.monitorRights("supervisor-1", "overload-1").publish, [
    "pgweir.m.overload.host.supervisor-1",
    "pgweir.m.overload.warnings.overload-1",
  ]);
  const worker = mesh.workerRights(7, "worker-7");
  assert.is(worker.publish.some((subject) => subject.includes("overload")), false);
  assert.equal(worker.subscribe.filter((subject) => subject.includes("overload")), [
    "pgweir.m.overload.host.*",
    "pgweir.m.overload.database.*",
    "pgweir.m.overload.warnings.*",
  ]);
});

tests.run();
