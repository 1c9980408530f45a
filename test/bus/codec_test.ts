// Payloads to bytes and back, and everything that must not get through: wrong shapes, newer
// versions, hostile encodings, random bytes.

import { Buffer } from "node:buffer";
import { encode } from "@msgpack/msgpack";
import { decodePayload, encodePayload, maxPayloadBytes } from "../../shared/bus/codec.ts";
import {
  cancelPayload,
  cancelReplyPayload,
  type CancelRequest,
  type Presence,
  presencePayload,
} from "../../shared/bus/subjects.ts";
import type { Payload } from "../../shared/bus/payload.ts";
import { assert, seededRandom, suite } from "../support/harness.ts";

const presence: Presence = {
  id: 32767,
  incarnation: Number.MAX_SAFE_INTEGER,
  host: "höst",
  boot: "ab5f3c2e-0000-4000-8000-000000000000",
  pid: 4711,
  state: "draining",
  addresses: ["127.0.0.1:6432", "/tmp/.s.PGSQL.6432"],
  clients: 0,
  servers: 70_000,
  configMark: "f".repeat(64),
  runtime: "deno 2.9.6",
  supervisor: "up-a",
};

const cancel: CancelRequest = {
  processId: 0xffff_ffff,
  secret: Uint8Array.from({ length: 32 }, (_, i) => i * 8),
  source: 0,
};

const wire = { v: 1, ...presence };

const codec = suite("codec");

function roundTrip<M extends object>(kind: Payload<M>, message: M): void {
  assert.equal(decodePayload(kind, encodePayload(kind, message)), { ok: true, message });
}

codec("decodePayload() undoes encodePayload()", () => {
  roundTrip(presencePayload, presence);
  roundTrip(presencePayload, { ...presence, id: 0, addresses: [], host: "", state: "gone" });
  roundTrip(cancelPayload, cancel);
  roundTrip(cancelPayload, { ...cancel, secret: new Uint8Array(4), processId: 0 });
  roundTrip(cancelPayload, { ...cancel, secret: new Uint8Array(256) });
  for (const outcome of ["sent", "unknown", "idle", "busy"] as const) {
    roundTrip(cancelReplyPayload, { outcome });
  }
});

codec("encodePayload() puts the version beside the fields and nothing else", () => {
  const extra = { outcome: "sent", password: "x" } as const;
  assert.equal(
    encodePayload(cancelReplyPayload, extra),
    encode({ v: 1, outcome: "sent" }),
  );
});

codec("encodePayload() throws for what the receiver would drop, and names no value", () => {
  const rows: [Payload<Presence>, unknown][] = [
    [presencePayload, { ...presence, id: 32768 }],
    [presencePayload, { ...presence, addresses: Array.from({ length: 65 }, () => "a") }],
  ];
  for (const [kind, message] of rows) {
    assert.throws(
      () => encodePayload(kind, message as Presence),
      (error: Error) => error.message === "encode presence: a field is missing or out of range",
    );
  }
  assert.throws(
    () => encodePayload(cancelPayload, { ...cancel, secret: new Uint8Array(3) }),
    (error: Error) => error.message === "encode cancel: a field is missing or out of range",
  );
});

codec("decodePayload() refuses what has not the shape of its kind", () => {
  const bad: [Payload<object>, unknown][] = [
    [presencePayload, null],
    [presencePayload, 1],
    [presencePayload, "presence"],
    [presencePayload, [1, 2]],
    [presencePayload, {}],
    [presencePayload, { ...wire, v: undefined }],
    [presencePayload, { ...wire, v: "1" }],
    [presencePayload, { ...wire, v: 0 }],
    [presencePayload, { ...wire, v: 1.5 }],
    [presencePayload, { ...wire, v: -1 }],
    [presencePayload, { ...wire, id: -1 }],
    [presencePayload, { ...wire, id: 1.5 }],
    [presencePayload, { ...wire, id: "1" }],
    [presencePayload, { ...wire, id: 32768 }],
    [presencePayload, { ...wire, incarnation: NaN }],
    [presencePayload, { ...wire, incarnation: 2 ** 53 }],
    [presencePayload, { ...wire, host: 7 }],
    [presencePayload, { ...wire, host: "h".repeat(256) }],
    [presencePayload, { ...wire, boot: 7 }],
    [presencePayload, { ...wire, boot: "b".repeat(129) }],
    [presencePayload, { ...wire, state: "dead" }],
    [presencePayload, { ...wire, state: "__proto__" }],
    [presencePayload, { ...wire, addresses: "127.0.0.1" }],
    [presencePayload, { ...wire, addresses: [1] }],
    [presencePayload, { ...wire, addresses: ["a".repeat(301)] }],
    [presencePayload, { ...wire, clients: null }],
    [presencePayload, { ...wire, configMark: new Uint8Array(4) }],
    [presencePayload, { ...wire, runtime: undefined }],
    [cancelPayload, { v: 1, ...cancel, secret: "abcd" }],
    [cancelPayload, { v: 1, ...cancel, secret: [1, 2, 3, 4] }],
    [cancelPayload, { v: 1, ...cancel, secret: new Uint8Array(3) }],
    [cancelPayload, { v: 1, ...cancel, secret: new Uint8Array(257) }],
    [cancelPayload, { v: 1, ...cancel, processId: 2 ** 32 }],
    [cancelPayload, { v: 1, ...cancel, source: 99_999 }],
    [cancelReplyPayload, { v: 1, outcome: "SENT" }],
    [cancelReplyPayload, { v: 1 }],
  ];
  for (const [kind, value] of bad) {
    assert.equal(
      decodePayload(kind, encode(value)),
      { ok: false, refusal: "malformed" },
      JSON.stringify(value),
    );
  }
});

codec("decodePayload() keeps only the fields it knows", () => {
  const decoded = decodePayload(presencePayload, encode({ ...wire, later: 1, secret: "x" }));
  assert.equal(decoded, { ok: true, message: presence });
});

codec("a presence of a version that named no boot is taken", () => {
  const { boot: _, ...older } = wire;
  assert.equal(decodePayload(presencePayload, encode(older)), {
    ok: true,
    message: { ...presence, boot: "" },
  });
});

codec("decodePayload() gives a secret that is a copy of its own", () => {
  const bytes = encodePayload(cancelPayload, cancel);
  const decoded = decodePayload(cancelPayload, bytes);
  bytes.fill(0);
  assert.equal(decoded, { ok: true, message: cancel });
});

codec("decodePayload() tells newer versions, whatever else is in them, from malformed ones", () => {
  for (const value of [{ v: 2 }, { ...wire, v: 2 }, { v: 2 ** 40, anything: [{}] }]) {
    assert.equal(decodePayload(presencePayload, encode(value)), {
      ok: false,
      refusal: "newer_version",
    });
  }
});

codec("decodePayload() refuses what is too large without looking at it", () => {
  const bytes = new Uint8Array(maxPayloadBytes + 1);
  assert.equal(decodePayload(presencePayload, bytes), { ok: false, refusal: "too_large" });
});

function replaced(bytes: Uint8Array, text: string, by: readonly number[]): Buffer {
  const copy = Buffer.from(bytes);
  copy.set(by, copy.indexOf(text));
  return copy;
}

codec("decodePayload() refuses hostile encodings within bounded memory", () => {
  const nested = (head: number[]): Buffer =>
    Buffer.concat(
      Array.from({ length: Math.floor(60_000 / head.length) }, () => Buffer.from(head)),
    );
  const rows: [string, Uint8Array][] = [
    ["empty", new Uint8Array(0)],
    ["array of 4 G items", Buffer.from([0xdd, 0xff, 0xff, 0xff, 0xff])],
    ["map of 4 G items", Buffer.from([0xdf, 0xff, 0xff, 0xff, 0xff])],
    ["string of 4 GB", Buffer.from([0xdb, 0xff, 0xff, 0xff, 0xff])],
    ["bytes of 4 GB", Buffer.from([0xc6, 0xff, 0xff, 0xff, 0xff])],
    ["extension", Buffer.from([0xd4, 0x01, 0x00])],
    ["timestamp", encode(new Date(0))],
    ["arrays in arrays", nested([0xdc, 0x00, 0xff])],
    ["large arrays in arrays", nested([0xdc, 0xff, 0xff])],
    ["maps in maps", nested([0x81, 0xa1, 0x61])],
    ["bytes after the end", Buffer.concat([encode(wire), Buffer.from([0])])],
    [
      "half a surrogate pair",
      replaced(encode({ ...wire, host: "~~~" }), "~~~", [0xed, 0xa0, 0x80]),
    ],
    ["key __proto__", Buffer.from([0x81, 0xa9, ...Buffer.from("__proto__"), 0x80])],
    ["cut", encode(wire).subarray(0, 40)],
    ["reserved byte", Buffer.from([0xc1])],
  ];
  for (const [what, bytes] of rows) {
    assert.equal(
      decodePayload(presencePayload, bytes),
      { ok: false, refusal: "malformed" },
      what,
    );
  }
});

codec(
  "decodePayload() of random and of damaged bytes never throws, nor lets a wrong shape through",
  () => {
    const seed = Date.now() >>> 0;
    const random = seededRandom(seed);
    const good = [encodePayload(presencePayload, presence), encodePayload(cancelPayload, cancel)];
    for (let i = 0; i < 20_000; i += 1) {
      const bytes = i % 2 === 0
        ? Uint8Array.from({ length: Math.floor(random() * 80) }, () => Math.floor(random() * 256))
        : Uint8Array.from(good[i % 4 < 2 ? 0 : 1] ?? []);
      if (i % 2 === 1) {
        for (let n = 0; n < 1 + random() * 4; n += 1) {
          bytes[Math.floor(random() * bytes.length)] = Math.floor(random() * 256);
        }
      }
      for (
        const kind of [presencePayload, cancelPayload, cancelReplyPayload] as Payload<object>[]
      ) {
        const decoded = decodePayload(kind, bytes);
        // What gets through is well-formed: it can be encoded again, and comes back the same.
        if (decoded.ok) {
          const again = decodePayload(kind, encodePayload(kind, decoded.message));
          assert.equal(again, decoded, `seed ${seed}, round ${i}`);
        }
      }
    }
  },
);

codec.run();
