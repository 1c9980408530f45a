// The writer of lines against a descriptor that blocks, tears lines and breaks, and the
// gate that keeps floods out of the log.

import { Buffer } from "node:buffer";
import { assert, suite } from "../support/harness.ts";
import { onceEvery } from "../../shared/telemetry/mod.ts";
import { LineWriter } from "../../shared/telemetry/line_writer.ts";

/** A descriptor that takes at most `room` bytes before it says `code`. */
function descriptor(): { room: number; code: string; taken: string; write(b: Uint8Array): number } {
  return {
    room: Infinity,
    code: "EAGAIN",
    taken: "",
    write(bytes) {
      if (this.room <= 0) throw Object.assign(new Error(this.code), { code: this.code });
      const count = Math.min(bytes.length, this.room, 5);
      this.taken += Buffer.from(bytes.subarray(0, count)).toString();
      this.room -= count;
      return count;
    },
  };
}

const writer = suite("LineWriter");

writer("write() goes on until the whole line is taken", () => {
  const fd = descriptor();
  const { write } = new LineWriter((bytes) => fd.write(bytes), "it was blocked");
  write("one line of text\n");
  write("two\n");
  assert.is(fd.taken, "one line of text\ntwo\n");
});

writer("write() finishes a torn line first, counts what it drops and reports it", () => {
  const fd = descriptor();
  const stderr = new LineWriter((bytes) => fd.write(bytes), "it was blocked");
  fd.room = 7;
  stderr.write("first line\n");
  stderr.write("dropped\n");
  stderr.write("dropped too\n");
  assert.is(fd.taken, "first l");
  assert.is(stderr.lost, 2);
  fd.room = Infinity;
  stderr.write("last\n");
  assert.is(
    fd.taken,
    "first line\n2 log lines lost: it was blocked\nlast\n",
  );
  assert.is(stderr.lost, 0);
});

writer("write() does not throw when the pipe is closed", () => {
  const fd = descriptor();
  const stderr = new LineWriter((bytes) => fd.write(bytes), "it was blocked");
  fd.room = 0;
  fd.code = "EPIPE";
  stderr.write("a\n");
  stderr.write("b\n");
  assert.is(fd.taken, "");
  assert.ok(stderr.lost > 0);
});

writer.run();

const gate = suite("onceEvery");

gate("onceEvery() runs once per interval and tells how many it refused", () => {
  let now = 0;
  const runs: [number, number][] = [];
  const open = onceEvery(1000, () => now);
  for (const at of [0, 1, 999, 1000, 1500, 1999, 2001, 9000]) {
    now = at;
    open((suppressed) => runs.push([at, suppressed]));
  }
  assert.equal(runs, [[0, 0], [1000, 2], [2001, 2], [9000, 0]]);
});

gate.run();
