// Integers and frame bounds: every message type at, below and above its limits.

import { assert, suite } from "../support/harness.ts";
import {
  Backend,
  backendFrameProblem,
  Frontend,
  frontendFrameProblem,
  readInt16,
  readInt32,
  writeInt16,
  writeInt32,
} from "../../shared/wire/mod.ts";

const test = suite("wire/frame");

test("readInt32() reads back what writeInt32() wrote, signed, at any offset", () => {
  const bytes = new Uint8Array(16);
  for (const value of [0, 1, -1, 4, 255, 256, 0x01020304, 0x7fffffff, -0x80000000, 0x3fffffff]) {
    for (let at = 0; at <= 12; at++) {
      writeInt32(bytes, at, value);
      assert.is(readInt32(bytes, at), value);
      assert.is(new DataView(bytes.buffer).getInt32(at), value);
    }
  }
  writeInt32(bytes, 0, 0xfffffff0);
  assert.is(readInt32(bytes, 0), -16, "an unsigned value comes back signed");
});

test("readInt16() reads back what writeInt16() wrote, signed", () => {
  const bytes = new Uint8Array(2);
  for (const value of [0, 1, -1, 127, 128, 255, 256, 32767, -32768]) {
    writeInt16(bytes, 0, value);
    assert.is(readInt16(bytes, 0), value);
    assert.is(new DataView(bytes.buffer).getInt16(0), value);
  }
  writeInt16(bytes, 0, 65535);
  assert.is(readInt16(bytes, 0), -1);
});

const large = 0x3ffffffe;
const largeBackend = 0x40000001;

test("frontendFrameProblem() takes PostgreSQL's bounds and nothing else", () => {
  const { password, sync, flush, terminate, copyDone } = Frontend;
  const limits = new Map<number, [least: number, most: number]>([
    ...[Frontend.query, Frontend.parse, Frontend.bind, Frontend.functionCall, Frontend.copyData]
      .map((type) => [type, [4, large]] as [number, [number, number]]),
    ...[Frontend.describe, Frontend.execute, Frontend.close, Frontend.copyFail]
      .map((type) => [type, [4, 10_000]] as [number, [number, number]]),
    ...[sync, flush, terminate, copyDone]
      .map((type) => [type, [4, 4]] as [number, [number, number]]),
    [password, [4, 65_540]],
  ]);
  assert.is(limits.size, Object.keys(Frontend).length);
  checkBounds(frontendFrameProblem, limits);
});

test("backendFrameProblem() takes exact, libpq's or PostgreSQL's bounds by type", () => {
  const limits = new Map<number, [least: number, most: number]>();
  const set = (least: number, most: number, ...types: number[]) => {
    for (const type of types) limits.set(type, [least, most]);
  };
  const b = Backend;
  set(4, 4, b.parseComplete, b.bindComplete, b.closeComplete, b.noData, b.emptyQuery);
  set(4, 4, b.portalSuspended, b.copyDone);
  set(5, 5, b.readyForQuery);
  set(12, 264, b.backendKeyData);
  set(8, 30_000, b.authentication);
  set(4, 30_000, b.commandComplete);
  set(7, 30_000, b.copyIn, b.copyOut, b.copyBoth);
  set(12, 30_000, b.negotiateProtocolVersion);
  set(4, 1 << 20, b.parameterStatus);
  set(4, largeBackend, b.errorResponse, b.noticeResponse, b.notification, b.copyData);
  set(6, largeBackend, b.parameterDescription, b.rowDescription, b.dataRow);
  set(8, largeBackend, b.functionCallResponse);
  assert.is(limits.size, Object.keys(Backend).length);
  checkBounds(backendFrameProblem, limits);
});

function checkBounds(
  problem: (type: number, length: number) => string | null,
  limits: Map<number, [least: number, most: number]>,
): void {
  for (let type = 0; type < 256; type++) {
    const limit = limits.get(type);
    if (limit) {
      assert.is(problem(type, limit[0]), null);
      assert.is(problem(type, limit[1]), null);
    }
    const bad = limit
      ? [-0x80000000, -1, 0, 3, limit[0] - 1, limit[1] + 1, 0x40000002, 0x7fffffff]
      : [4, 5, 100, 0, -1];
    for (const length of bad) {
      const text = problem(type, length);
      assert.ok(text, `type ${type} length ${length}`);
      assert.ok(text.startsWith(limit ? "bad packet header: '" : "unknown pkt"), text);
    }
  }
}

test("frontendFrameProblem() names header, message, length and what was wanted", () => {
  assert.is(
    frontendFrameProblem(0x51, -1),
    "bad packet header: '51ffffffff', Query of length -1, wanted 4 to 1073741822",
  );
  assert.is(
    frontendFrameProblem(0x53, 20_000),
    "bad packet header: '5300004e20', Sync of length 20000, wanted 4",
  );
  assert.is(frontendFrameProblem(0, 4), "unknown pkt: message type 0x00");
});

test.run();
