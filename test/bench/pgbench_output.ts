// Reads what pgbench prints (versions 12 to 18) and its per-transaction log. Pure text to numbers.
// It does not run pgbench (measure.ts does), and it refuses a report that lacks the throughput
// rather than guess.

import { quantileOfSorted } from "./stats.ts";

export interface PgbenchReport {
  /** Transactions that ended well. */
  readonly transactions: number;
  readonly failed: number;
  /** Transactions slower than the limit given with -L, or 0 without one. */
  readonly slow: number;
  readonly tps: number;
  readonly latencyAverageMs: number | null;
}

export function parsePgbenchOutput(text: string): PgbenchReport {
  const transactions = firstNumber(text, /number of transactions actually processed: (\d+)/);
  // Since 14 there is one line, "(without initial connection time)" or, with -C, "(including
  // reconnection times)"; before, two, of which "excluding" is the comparable one but for -C.
  const tps = firstNumber(text, /^tps = ([\d.]+) \(without initial connection time\)/m) ??
    firstNumber(text, /^tps = ([\d.]+) \(including reconnection times\)/m) ??
    firstNumber(text, /^tps = ([\d.]+) \(excluding connections establishing\)/m);
  if (transactions === null || tps === null) {
    throw new Error(
      `read pgbench's report: no transactions and tps in it, the text is "${
        text.trim().slice(-500)
      }"`,
    );
  }
  return {
    transactions,
    failed: firstNumber(text, /number of failed transactions: (\d+)/) ?? 0,
    slow: firstNumber(text, /transactions above the [\d.]+ ms latency limit: (\d+)/) ?? 0,
    tps,
    latencyAverageMs: firstNumber(text, /latency average = ([\d.]+) ms/),
  };
}

/** "pgbench (PostgreSQL) 15.18 (Debian ...)" or "PgBouncer 1.18.0" -> [15, 18] or [1, 18, 0]. */
export function parseVersion(text: string): number[] {
  const found = /\b(\d+(?:\.\d+)+)/.exec(text);
  if (found === null) throw new Error(`read a version: none in "${text.trim().slice(0, 200)}"`);
  return (found[1] as string).split(".").map(Number);
}

/** Whether a version is `wanted` or later. */
export function atLeast(version: readonly number[], wanted: readonly number[]): boolean {
  for (let i = 0; i < wanted.length; i++) {
    const difference = (version[i] ?? 0) - (wanted[i] as number);
    if (difference !== 0) return difference > 0;
  }
  return true;
}

export interface LatencySummary {
  readonly samples: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
}

/** Of the clock, from one moment on and before another. */
export interface Span {
  readonly fromMs: number;
  readonly toMs: number;
}

/**
 * Summarises the logs of all pgbench threads: lines of "client transaction microseconds script
 * second microsecond", the last two being when it ended; of those that ended in `span` if one is given. A
 * transaction that failed has a word where the time would be: no latency.
 */
export function summariseLatencies(logs: readonly string[], span?: Span): LatencySummary | null {
  const micros: number[] = [];
  for (const log of logs) {
    for (const line of log.split("\n")) {
      const fields = line.split(" ");
      const value = Number(fields[2] ?? "");
      if (line === "" || !Number.isFinite(value)) continue;
      if (span !== undefined) {
        const endMs = Number(fields[4]) * 1000 + Number(fields[5]) / 1000;
        if (!(endMs >= span.fromMs && endMs < span.toMs)) continue;
      }
      micros.push(value);
    }
  }
  if (micros.length === 0) return null;
  const sorted = Float64Array.from(micros).sort();
  return {
    samples: sorted.length,
    p50Ms: quantileOfSorted(sorted, 0.5) / 1000,
    p99Ms: quantileOfSorted(sorted, 0.99) / 1000,
  };
}

function firstNumber(text: string, pattern: RegExp): number | null {
  const found = pattern.exec(text);
  return found === null ? null : Number(found[1]);
}
