// Seeded random input for what reads things from outside. `fuzz()` makes a test of many inputs; how many is its share
// of PGWEIR_FUZZ_INPUTS, the total over all fuzz tests (a run of a few seconds if it is not set):
//   PGWEIR_FUZZ_INPUTS=1000000 bun test/run.ts fuzz_test       also prints figures when a file is run by itself
// PGWEIR_SEED starts elsewhere. Looked for, beside what the test itself asserts: a throw, an input that takes too long,
// memory that grows. An input depends on the seed and its number alone, and both are in every failure.

import process from "node:process";
import { collectGarbage, processUsage } from "../../shared/sys/mod.ts";
import { seededRandom, type Test } from "./harness.ts";

/** What all shares are parts of. */
export const million = 1_000_000;
const quickInputs = 30_000;
const inputs = Number(process.env["PGWEIR_FUZZ_INPUTS"] ?? quickInputs);
const seed = Number(process.env["PGWEIR_SEED"] ?? 1);

/** An input may cost this much, at its best of a few times: whatever else the machine does. */
const slowMs = 2000;
const attempts = 4;
/** Enough for what takes the square of its length to be slow. */
const textMax = 40_000;
/** Garbage that waits for its collector is in it. */
const growthMaxBytes = 300 * 1024 * 1024;
const memoryEvery = 5000;

/** Random choices of one input. */
export class Dice {
  readonly random: () => number;

  constructor(number: number) {
    this.random = seededRandom(number);
  }

  below(limit: number): number {
    return Math.floor(this.random() * limit);
  }

  chance(share: number): boolean {
    return this.random() < share;
  }

  pick<T>(items: readonly T[]): T {
    return items[this.below(items.length)]!;
  }

  /** Fewer than `most` bytes. */
  bytes(most: number): Uint8Array {
    return Uint8Array.from({ length: this.below(most) }, () => this.below(256));
  }

  /** Most are short. */
  text(pieces: readonly string[], most = 40): string {
    let text = "";
    for (let n = Math.floor(this.random() ** 2 * most); n > 0; n--) text += this.pick(pieces);
    return text;
  }

  /** One to four changes to a text: a piece put in, left out, doubled, moved, or repeated many times. */
  mutateText(source: string, pieces: readonly string[]): string {
    let text = source;
    for (let changes = 1 + this.below(4); changes > 0; changes--) {
      const at = this.below(text.length + 1);
      const to = Math.min(text.length, at + 1 + this.below(this.chance(0.3) ? text.length : 8));
      const [head, part, tail] = [text.slice(0, at), text.slice(at, to), text.slice(to)];
      switch (this.below(this.chance(0.02) ? 6 : 5)) {
        case 0:
          text = head + this.pick(pieces) + part + tail;
          break;
        case 1:
          text = head + tail;
          break;
        case 2:
          text = head + part + part + tail;
          break;
        case 3:
          text = part + head + tail;
          break;
        case 4:
          text = head + this.pick(pieces) + tail;
          break;
        default:
          // What takes the square of its length shows here.
          text = head + this.pick([part, this.pick(pieces)]).repeat(1 + this.below(5000)) + tail;
      }
      if (text.length > textMax) text = text.slice(0, textMax);
    }
    return text;
  }

  /** One to four changes to bytes: a bit, a byte, a cut, an insertion, a repeated part, an awkward integer. */
  mutateBytes(source: Uint8Array): Uint8Array {
    let bytes: Uint8Array = source.slice();
    for (let changes = 1 + this.below(4); changes > 0; changes--) {
      const at = this.below(bytes.length + 1);
      switch (this.below(6)) {
        case 0:
          if (at < bytes.length) bytes[at]! ^= 1 << this.below(8);
          break;
        case 1:
          if (at < bytes.length) bytes[at] = this.pick([0, 0xff, 0x2c, 0x3d, this.below(256)]);
          break;
        case 2:
          bytes = bytes.slice(0, at);
          break;
        case 3:
          bytes = concat(bytes.subarray(0, at), this.bytes(8), bytes.subarray(at));
          break;
        case 4:
          bytes = concat(bytes, bytes.subarray(at));
          break;
        case 5:
          if (at + 4 > bytes.length) break;
          new DataView(bytes.buffer, bytes.byteOffset).setInt32(at, this.pick(awkward));
          break;
      }
    }
    return bytes;
  }

  /** Of samples, or of nothing. */
  input(samples: readonly Uint8Array[]): Uint8Array {
    return this.below(8) === 0 ? this.bytes(64) : this.mutateBytes(this.pick(samples));
  }
}

const awkward = [
  ...[0, 1, 3, 4, 5, -1, -2, -16],
  ...[0x7fffffff, -0x80000000, 0x3fffffff, 0x40000000, 65_536],
];

function concat(...parts: readonly Uint8Array[]): Uint8Array {
  const bytes = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}

export function residentBytes(): number {
  return processUsage(process.pid)?.residentBytes ?? 0;
}

/** A test of as many inputs as are its share of a million; `note` takes what a failure is to show. */
export function fuzz(
  test: Test,
  name: string,
  share: number,
  one: (dice: Dice, note: (input: Uint8Array | string) => void) => void,
): void {
  test(name, () => {
    const count = Math.max(20, Math.round(share * inputs / million));
    let last: Uint8Array | string = "";
    const note = (input: Uint8Array | string) => {
      last = input;
    };
    const run = (round: number): number => {
      const begun = performance.now();
      try {
        one(new Dice(Math.imul(seed, 0x9e3779b1) + Math.imul(round, 0x85ebca6b)), note);
      } catch (error) {
        throw new Error(`${place(round)}, ${shown(last)}: ${(error as Error).stack}`);
      }
      return performance.now() - begun;
    };
    const place = (round: number) => `PGWEIR_SEED=${seed}, input ${round} of ${count}`;
    // Compiled and grown to its size.
    for (let round = 0; round < Math.min(count / 4, 500); round++) run(round);
    collectGarbage();
    const before = residentBytes();
    const begun = performance.now();
    let slowest = 0;
    let most = 0;
    for (let round = 0; round < count; round++) {
      let ms = run(round);
      for (let again = 1; again < attempts && ms > slowMs; again++) ms = Math.min(ms, run(round));
      if (ms > slowMs) throw new Error(`${place(round)} takes ${ms} ms: ${shown(last)}`);
      slowest = Math.max(slowest, ms);
      if (round % memoryEvery > 0 && round < count - 1) continue;
      const growth = residentBytes() - before;
      most = Math.max(most, growth);
      if (growth > growthMaxBytes) {
        throw new Error(`${place(round)}: ${growth} bytes more are held`);
      }
    }
    if (inputs === quickInputs) return;
    const seconds = ((performance.now() - begun) / 1000).toFixed(1);
    console.log(
      `${name}: ${count} inputs in ${seconds} s, slowest ${slowest.toFixed(1)} ms, ` +
        `+${(most / 2 ** 20).toFixed(0)} MiB`,
    );
  });
}

function shown(input: Uint8Array | string): string {
  if (typeof input === "string") return JSON.stringify(input.slice(0, 2000));
  return Array.from(input, (byte) => byte.toString(16).padStart(2, "0")).join("").slice(0, 2000);
}
