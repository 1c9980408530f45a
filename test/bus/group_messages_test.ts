// What workers and monitors say of resource groups: what is whole comes back from its bytes, what is not is refused, and
// each speaks under its own subject.

import { decodePayload, encodePayload } from "../../shared/bus/codec.ts";
import {
  type GroupBackends,
  groupBackendsPayload,
  type GroupMemory,
  groupMemoryPayload,
} from "../../shared/bus/group_messages.ts";
import { meshSubjects } from "../../shared/bus/mod.ts";
import { assert, suite } from "../support/harness.ts";

const tests = suite("group messages");

const backends: GroupBackends = {
  worker: 7,
  incarnation: 1_700_000_000_000,
  seq: 3,
  rows: [
    {
      database: "shop",
      group: "reports",
      memory: 5 * 2 ** 30,
      running: 1,
      backends: [{ pid: 4_000_000, ageMs: 12 }, { pid: 5, ageMs: 4_000_000_000 }],
    },
    { database: "shop", group: "adhoc", memory: 0, running: 0, backends: [] },
  ],
};
const memory: GroupMemory = {
  monitor: "overload-1",
  host: "db1.example",
  epoch: 1_700_000_000_000,
  seq: 3,
  intervalMs: 1000,
  worker: 7,
  measures: true,
  dividesCpu: false,
  databases: [{ database: "shop", backends: [{ pid: 5, kB: 10_240 }] }],
  elsewhere: [{ group: "reports", bytes: 3 * 2 ** 30 }],
};

tests("what is whole comes back from its bytes, without what nobody knows", () => {
  const named = encodePayload(groupBackendsPayload, { ...backends, newer: 1 } as GroupBackends);
  assert.equal(decodePayload(groupBackendsPayload, named), { ok: true, message: backends });
  const measured = encodePayload(groupMemoryPayload, { ...memory, newer: 1 } as GroupMemory);
  assert.equal(decodePayload(groupMemoryPayload, measured), { ok: true, message: memory });
});

tests("a field that is missing or of another kind is refused", () => {
  for (
    const [payload, message] of [
      [groupBackendsPayload, backends],
      [groupMemoryPayload, memory],
    ] as const
  ) {
    for (const key of Object.keys(message)) {
      for (const bad of [undefined, -1, NaN, {}, "x".repeat(10_000)]) {
        assert.is(payload.check({ ...message, [key]: bad }), null, `${payload.name}.${key} ${bad}`);
      }
    }
  }
});

tests("a row names a database and a group, and no more that run than there are", () => {
  const [row] = backends.rows;
  const check = (change: Record<string, unknown>) =>
    groupBackendsPayload.check({ ...backends, rows: [{ ...row, ...change }] });
  assert.is.not(check({}), null);
  const wrong: Record<string, unknown>[] = [
    { database: "" },
    { group: "x".repeat(64) },
    { memory: -1 },
    { running: 3 },
    { backends: [{ pid: 2 ** 32, ageMs: 0 }] },
    { backends: [{ pid: 1 }] },
  ];
  for (const change of wrong) assert.is(check(change), null, JSON.stringify(change));
});

tests("packed columns of unequal or odd length are refused, and so are too many", () => {
  const wire = groupBackendsPayload.wire!;
  const packed = wire.pack(backends);
  const [row] = packed["rows"] as Record<string, unknown>[];
  const passes = (change: Record<string, unknown>) =>
    groupBackendsPayload.check(wire.unpack({ ...packed, rows: [{ ...row, ...change }] })) !== null;
  assert.ok(passes({}));
  for (const pids of [new Uint8Array(4), new Uint8Array(7), "text", undefined]) {
    assert.is(passes({ pids }), false);
  }
  const many = new Uint8Array(4 * 16_385);
  assert.is(passes({ pids: many, agesMs: many }), false);
  assert.is(groupBackendsPayload.check(wire.unpack({ ...packed, rows: "none" })), null);
  const rows = new Array(501).fill(backends.rows[1]);
  assert.is(groupBackendsPayload.check({ ...backends, rows }), null);
});

tests("the largest message that passes can be sent, and read", () => {
  const name = "ä".repeat(63);
  const list = Array.from({ length: 32 }, (_, pid) => ({ pid, ageMs: pid }));
  const rows = Array.from({ length: 500 }, () => {
    return { database: name, group: name, memory: 1, running: 0, backends: list };
  });
  const message = { ...backends, rows };
  const read = decodePayload(groupBackendsPayload, encodePayload(groupBackendsPayload, message));
  assert.equal(read, { ok: true, message });
  const said = {
    ...memory,
    databases: rows.map(({ database }) => ({
      database,
      backends: list.map(({ pid }) => ({ pid, kB: pid })),
    })),
    elsewhere: rows.map(({ group }) => ({ group, bytes: 1 })),
  };
  assert.ok(decodePayload(groupMemoryPayload, encodePayload(groupMemoryPayload, said)).ok);
});

tests("each speaks under its own subject, and workers may", () => {
  const mesh = meshSubjects("m");
  const { allGroupBackends } = mesh;
  assert.is(allGroupBackends.subject, "pgweir.m.groups.backends.*");
  assert.is(allGroupBackends.accepts?.(mesh.groupBackends(7).subject, backends), true);
  assert.is(allGroupBackends.accepts?.(mesh.groupBackends(8).subject, backends), false);
  assert.is(mesh.groupMemory(7).accepts?.("pgweir.m.groups.memory.7", memory), true);
  const { publish, subscribe } = mesh.workerRights(7, "worker-7");
  assert.ok(publish.includes("pgweir.m.groups.backends.7"));
  assert.ok(subscribe.includes("pgweir.m.groups.memory.7"));
});

tests.run();
