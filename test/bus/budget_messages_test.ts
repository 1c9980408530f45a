// The messages of budgets: as large as they may be, and everything hostile in their place.

import { Buffer } from "node:buffer";
import { encode } from "@msgpack/msgpack";
import {
  budgetBackendsPayload,
  budgetGrantPayload,
  budgetLeaderPayload,
  budgetReportPayload,
  goneWorkerPayload,
  heardPayload,
} from "../../shared/bus/budget_messages.ts";
import { type Grant, type LeafReport, LEAVES_MAX, type Report } from "../../shared/ledger/mod.ts";
import { decodePayload, encodePayload, maxPayloadBytes } from "../../shared/bus/codec.ts";
import type { Payload } from "../../shared/bus/payload.ts";
import { assert, suite } from "../support/harness.ts";

const leaf: LeafReport = {
  leaf: "pool:app/web",
  held: 3,
  wanted: 5,
  granted: 4,
  ack: 17,
  idleMs: 0,
  asks: false,
  busyMs: 0,
};
const report: Report = { worker: 7, incarnation: 1, epoch: 2, seq: 3, leaves: [leaf] };
const grant: Grant = {
  worker: 7,
  incarnation: 1,
  epoch: 2,
  seq: 3,
  report: 9,
  leaves: [{ leaf: "clients", granted: 4, floor: 4, pending: true, poll: true, usedUp: 8 }],
};
const most = Number.MAX_SAFE_INTEGER;
const mostSlots = 0x7fff_ffff;

function roundTrip<M extends object>(kind: Payload<M>, message: M): number {
  const bytes = encodePayload(kind, message);
  assert.equal(decodePayload(kind, bytes), { ok: true, message });
  return bytes.length;
}

const test = suite("budget messages");

test("decodePayload() undoes encodePayload()", () => {
  roundTrip(budgetReportPayload, report);
  roundTrip(budgetReportPayload, { ...report, leaves: [] });
  roundTrip(budgetGrantPayload, grant);
  roundTrip(budgetGrantPayload, { ...grant, leaves: [] });
  roundTrip(budgetLeaderPayload, { epoch: 4, name: "host-a 4711" });
  roundTrip(goneWorkerPayload, { worker: 32767, incarnation: most });
  roundTrip(heardPayload, {});
  const leaves = [{ leaf: "pool:a/b", pids: Uint8Array.of(0, 0, 1, 2, 0, 0, 1, 3) }];
  roundTrip(budgetBackendsPayload, { worker: 1, incarnation: 2, leaves });
});

test("a message of the longest leaves fits, and one more leaf is refused", () => {
  // Percent-encoded names are ASCII; a name that is not takes more bytes, and fewer fit.
  const named = (at: number) => `pool:${String(at).padStart(6, "0")}/${"%C3%A4".repeat(164)}`;
  const names = Array.from({ length: LEAVES_MAX }, (_, at) => named(at).padEnd(1000, "x"));
  const full = names.map((leaf) => ({
    leaf,
    held: mostSlots,
    wanted: mostSlots,
    granted: mostSlots,
    ack: most,
    idleMs: most,
    asks: false,
    busyMs: 0,
  }));
  const largest = { worker: 32767, incarnation: most, epoch: most, seq: most, leaves: full };
  assert.ok(roundTrip(budgetReportPayload, largest) > maxPayloadBytes);
  const granted = names.map((leaf) => ({
    leaf,
    granted: mostSlots,
    floor: mostSlots,
    pending: false,
    poll: false,
    usedUp: most,
  }));
  roundTrip(budgetGrantPayload, { ...largest, report: most, leaves: granted });
  const pids = names.map((leaf) => ({ leaf, pids: new Uint8Array(4 * 300) }));
  roundTrip(budgetBackendsPayload, { worker: 1, incarnation: 1, leaves: pids });
  roundTrip(budgetBackendsPayload, {
    worker: 1,
    incarnation: 1,
    leaves: [{ leaf: "pool:a/b", pids: new Uint8Array(4 * 65_536) }],
  });
  assert.throws(
    () => encodePayload(budgetReportPayload, { ...largest, leaves: [...full, leaf] }),
    /^encode budget report: a field is missing or out of range/,
  );
});

test("leaves are rows on the wire, and a row of a newer sender may be longer", () => {
  const row = ["pool:app/web", 3, 5, 4, 17, 0, false, 0];
  const bytes = encodePayload(budgetReportPayload, report);
  assert.equal(bytes, encode({ v: 1, ...report, leaves: [row] }));
  const newer = encode({ v: 1, ...report, leaves: [[...row, "later", 1]], later: 1 });
  assert.equal(decodePayload(budgetReportPayload, newer), { ok: true, message: report });
});

test("rows of a sender that knows nothing of polls are taken", () => {
  const older = encode({ v: 1, ...report, leaves: [["pool:app/web", 3, 5, 4, 17, 0]] });
  assert.equal(decodePayload(budgetReportPayload, older), { ok: true, message: report });
  const granted = encode({ v: 1, ...grant, leaves: [["clients", 4, 4, true]] });
  const leaves = [{ ...grant.leaves[0]!, poll: false, usedUp: 0 }];
  assert.equal(decodePayload(budgetGrantPayload, granted), {
    ok: true,
    message: { ...grant, leaves },
  });
});

test("an age is in whole milliseconds, and one of less than a millisecond is not none", () => {
  for (const [idleMs, expected] of [[0.2, 1], [1, 1], [1.5, 2]] as const) {
    const bytes = encodePayload(budgetReportPayload, {
      ...report,
      leaves: [{ ...leaf, idleMs }],
    });
    const decoded = decodePayload(budgetReportPayload, bytes);
    assert.is(decoded.ok && decoded.message.leaves[0]?.idleMs, expected);
  }
});

test("decodePayload() refuses wrong types, huge numbers and rows that are none", () => {
  const numbers = [-1, 0.5, NaN, Infinity, -Infinity, 2 ** 53, 2 ** 63, "1", null, true, [1], {}];
  const row = ["clients", 1, 1, 1, 1, 0];
  const grantRow = ["clients", 2, 1, false];
  const bad: [Payload<object>, unknown][] = [];
  for (const value of numbers) {
    for (const field of ["worker", "incarnation", "epoch", "seq", "report"]) {
      if (field !== "report") {
        bad.push([budgetReportPayload, { ...report, leaves: [], [field]: value }]);
      }
      bad.push([budgetGrantPayload, { ...grant, leaves: [], [field]: value }]);
    }
    for (let column = 1; column < row.length; column += 1) {
      // An age may be a fraction.
      if (column === 5 && value === 0.5) continue;
      bad.push([budgetReportPayload, { ...report, leaves: [row.with(column, value as number)] }]);
    }
    for (const column of [1, 2]) {
      const leaves = [grantRow.with(column, value as number)];
      bad.push([budgetGrantPayload, { ...grant, leaves }]);
    }
    bad.push([goneWorkerPayload, { worker: 1, incarnation: value }]);
    bad.push([goneWorkerPayload, { worker: value, incarnation: 1 }]);
    bad.push([budgetLeaderPayload, { epoch: value, name: "a" }]);
  }
  for (const name of ["", "x".repeat(1001), 1, null, ["clients"], new Uint8Array(3), "\ud800"]) {
    bad.push([budgetReportPayload, { ...report, leaves: [row.with(0, name as string)] }]);
    bad.push([budgetGrantPayload, { ...grant, leaves: [grantRow.with(0, name as string)] }]);
    bad.push([budgetBackendsPayload, { ...report, leaves: [[name, new Uint8Array(4)]] }]);
  }
  for (
    const leaves of [undefined, null, 1, "rows", {}, [1], [null], ["clients"], [{}], [[]], [leaf], [
      row.slice(1),
    ]]
  ) {
    bad.push([budgetReportPayload, { ...report, leaves }]);
    bad.push([budgetGrantPayload, { ...grant, leaves }]);
    bad.push([budgetBackendsPayload, { ...report, leaves }]);
  }
  bad.push([budgetReportPayload, { ...report, worker: 32768 }]);
  bad.push([budgetReportPayload, { ...report, leaves: [row.with(1, 2 ** 31)] }]);
  bad.push([budgetReportPayload, { ...report, leaves: Array(201).fill(row) }]);
  bad.push([budgetGrantPayload, { ...grant, leaves: Array(201).fill(grantRow) }]);
  bad.push([budgetGrantPayload, { ...grant, leaves: [["clients", 1, 2, false]] }]);
  bad.push([budgetGrantPayload, { ...grant, leaves: [["clients", 1, 1, 1]] }]);
  bad.push([budgetReportPayload, { ...report, leaves: [[...row, 1, 0]] }]);
  bad.push([budgetReportPayload, { ...report, leaves: [[...row, false, -1]] }]);
  bad.push([budgetGrantPayload, { ...grant, leaves: [[...grantRow, 1, 0]] }]);
  bad.push([budgetGrantPayload, { ...grant, leaves: [[...grantRow, true, -1]] }]);
  bad.push([budgetLeaderPayload, { epoch: 1, name: "x".repeat(301) }]);
  for (const pids of [[1, 2], "abcd", new Uint8Array(3), new Uint8Array(4 * 65_537), null]) {
    bad.push([budgetBackendsPayload, { ...report, leaves: [["clients", pids]] }]);
  }
  for (const [kind, value] of bad) {
    const bytes = encode({ v: 1, ...value as object });
    assert.equal(
      decodePayload(kind, bytes),
      { ok: false, refusal: "malformed" },
      `${kind.name}: ${JSON.stringify(value)?.slice(0, 300)}`,
    );
  }
});

test("hostile payloads of the largest size are refused in bounded memory", () => {
  // The decoder makes an array of the length that is declared before it reads an item: these made it
  // take hundreds of megabytes each.
  const size = 256 * 1024;
  const repeated = (head: number[]): Buffer => Buffer.alloc(size - 3, Buffer.from(head));
  const inLeaves = (items: Buffer): Buffer =>
    Buffer.concat([Buffer.from([0x82, 0xa1, 0x76, 0x01, 0xa6]), Buffer.from("leaves"), items]);
  const rows = [
    repeated([0xdc, 0x1f, 0xff]),
    repeated([0xdc, 0xff, 0xff]),
    repeated([0xdd, 0x00, 0xff, 0xff, 0xff]),
    repeated([0x9f]),
    repeated([0x81, 0xa1, 0x61]),
    repeated([0x90]),
    inLeaves(repeated([0xdc, 0x1f, 0xff])),
    inLeaves(repeated([0x91])),
    inLeaves(Buffer.concat([Buffer.from([0xdd, 0x00, 0x03, 0x00, 0x00]), Buffer.alloc(3 << 16)])),
    inLeaves(
      Buffer.concat([Buffer.from([0xdd, 0x00, 0x03, 0x00, 0x00]), Buffer.alloc(3 << 16, 0x90)]),
    ),
  ];
  const before = process.memoryUsage().rss;
  for (let round = 0; round < 20; round += 1) {
    for (const [at, bytes] of rows.entries()) {
      const shown = bytes.subarray(0, size);
      for (
        const kind of [budgetReportPayload, budgetGrantPayload, budgetBackendsPayload] as Payload<
          object
        >[]
      ) {
        assert.equal(decodePayload(kind, shown), { ok: false, refusal: "malformed" }, `row ${at}`);
      }
    }
  }
  assert.ok(process.memoryUsage().rss - before < 128 * 1024 * 1024);
  assert.equal(decodePayload(budgetReportPayload, new Uint8Array(size + 1)), {
    ok: false,
    refusal: "too_large",
  });
});

test.run();
