// Cancel keys: layout, routing, uniqueness of what is random, comparison.

import { Buffer } from "node:buffer";
import { randomBytes } from "node:crypto";
import { assert, seededRandom, suite } from "../support/harness.ts";
import {
  backendFrameProblem,
  backendKeyData,
  cancelKeyIncarnation,
  cancelKeyWorker,
  cancelRequest,
  makeCancelKey,
  parseInitialPacket,
  sameSecret,
} from "../../shared/wire/mod.ts";
import { hex } from "./samples.ts";

const test = suite("wire/cancel_key");

const fixed = (byte: number) => (n: number) => new Uint8Array(n).fill(byte);

test("makeCancelKey() lays out keys of both protocols as documented", () => {
  const short = makeCancelKey(0x1234, 0, 99, fixed(0xab));
  assert.is(short.processId, 0x1234abab);
  assert.is(hex(short.secret), "abababab");
  const long = makeCancelKey(0x1234, 2, 0x0123456789ab, fixed(0xab));
  assert.is(long.processId, 0x1234abab);
  assert.is(hex(long.secret), "01" + "1234" + "0123456789ab" + "ab".repeat(23));
});

test("cancelKeyWorker() and cancelKeyIncarnation() find the owner, from a cancel packet too", () => {
  for (const worker of [0, 1, 17, 0x7ffe, 0x7fff]) {
    for (const incarnation of [0, 1, 0xffffffff, 2 ** 32, Date.now(), 2 ** 48 - 1]) {
      for (const minor of [0, 1, 2, 3]) {
        const { processId, secret } = makeCancelKey(worker, minor, incarnation, randomBytes);
        assert.is(secret.length, minor < 2 ? 4 : 32);
        assert.ok(processId > 0 && processId <= 0x7fffffff);
        const packet = cancelRequest(processId, secret);
        const parsed = parseInitialPacket(packet, 0, packet.length);
        assert.ok(parsed.kind === "cancel");
        assert.is(cancelKeyWorker(parsed.processId, parsed.secret), worker);
        assert.is(cancelKeyIncarnation(parsed.secret), minor < 2 ? null : incarnation);
        const message = backendKeyData(processId, secret);
        assert.is(backendFrameProblem(message[0]!, message.length - 1), null);
      }
    }
  }
});

test("makeCancelKey() never gives process id 0", () => {
  assert.is(makeCancelKey(0, 0, 0, fixed(0)).processId, 1);
  assert.is(cancelKeyWorker(1, new Uint8Array(4)), 0);
});

test("makeCancelKey() owns its bytes, also when random() lends a Buffer", () => {
  const pool = Buffer.alloc(64, 7);
  const { secret } = makeCancelKey(1, 0, 0, (n) => pool.subarray(0, n));
  pool.fill(0);
  assert.is(hex(secret), "07070707");
});

test("makeCancelKey() throws for a worker or an incarnation out of range", () => {
  for (const worker of [-1, 0x8000, 1.5, NaN]) {
    assert.throws(() => makeCancelKey(worker, 0, 0, fixed(0)), /worker id/);
  }
  for (const incarnation of [-1, 2 ** 48, 0.5, NaN]) {
    assert.throws(() => makeCancelKey(1, 2, incarnation, fixed(0)), /incarnation/);
  }
});

test("cancelKeyWorker() gives -1 for keys that no worker can have made", () => {
  const { processId, secret } = makeCancelKey(17, 2, 5, fixed(1));
  const version2 = secret.slice();
  version2[0] = 2;
  const rows: [processId: number, secret: Uint8Array][] = [
    [0, new Uint8Array(4)],
    [-1, new Uint8Array(4)],
    [0x80000000, new Uint8Array(4)],
    [processId, new Uint8Array(0)],
    [processId, new Uint8Array(5)],
    [processId, new Uint8Array(32)],
    [processId, secret.slice(0, 31)],
    [processId, new Uint8Array(33)],
    [processId, version2],
    [processId + 0x10000, secret],
  ];
  for (const [id, bytes] of rows) assert.is(cancelKeyWorker(id, bytes), -1);
  assert.is(cancelKeyIncarnation(version2), null);
});

test("sameSecret() is true for equal bytes only", () => {
  const random = seededRandom(1);
  for (const size of [0, 1, 4, 32, 256]) {
    const a = Uint8Array.from({ length: size }, () => random() * 256);
    assert.ok(sameSecret(a, a.slice()));
    for (let at = 0; at < size; at++) {
      const b = a.slice();
      b[at]! ^= 1;
      assert.not.ok(sameSecret(a, b));
      assert.not.ok(sameSecret(a, a.subarray(0, at)));
    }
  }
});

test.run();
