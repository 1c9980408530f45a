// What one run of the benchmark found, as it is written with --json, and the ratios derived from it.
// Pure. Ratios are never stored: they are taken anew from the samples, so an old file stays comparable.

import type { ContenderName, Protocol } from "./options.ts";
import { medianOrNull, medianRatio } from "./stats.ts";

export const FORMAT = 1;

/** One run of pgbench against one contender. */
export interface Sample {
  readonly transactions: number;
  /** Transactions that took over SLOW_MS; all are looked at, not only the sampled ones. */
  readonly slow: number;
  readonly tps: number;
  readonly p50Ms: number | null;
  readonly p99Ms: number | null;
  /** CPU of the pooler's processes per transaction, logins of the clients included. */
  readonly cpuMicros: number;
  /** Resident memory of the pooler's processes, right after the run. */
  readonly residentBytes: number;
  /** The part of the machine's CPU, 0 to 1, that work other than the benchmark took meanwhile. */
  readonly otherShare: number;
}

export type Metric = "tps" | "p50Ms" | "p99Ms" | "cpuMicros" | "residentBytes";

export const SLOW_MS = 50;

/** `connect`: every transaction makes a new connection (pgbench -C). */
export interface Workload {
  readonly kind: Protocol | "connect";
  readonly clients: number;
}

export interface Cell extends Workload {
  readonly contender: string;
  /** What makes this cell different from its row, e.g. session pooling. */
  readonly note: string | null;
  /** By round. */
  readonly samples: readonly Sample[];
}

/** Memory of a fresh contender: at rest, and with idle clients. */
export interface IdleResult {
  readonly contender: string;
  readonly restBytes: number;
  readonly clients: number;
  readonly bytesPerClient: number;
}

export interface Machine {
  readonly cpu: string;
  readonly cores: number;
  readonly memoryBytes: number;
  readonly kernel: string;
}

export interface BenchResult {
  readonly format: typeof FORMAT;
  readonly date: string;
  readonly machine: Machine;
  /** Program -> version, in the order to print them. */
  readonly versions: Readonly<Record<string, string>>;
  readonly rounds: number;
  readonly seconds: number;
  readonly poolSize: number;
  /** Whether clients came by TLS; not in files of before there was a choice. */
  readonly tls?: boolean;
  readonly contenders: readonly ContenderName[];
  readonly cells: readonly Cell[];
  readonly idle: readonly IdleResult[];
}

export function sameWorkload(a: Workload, b: Workload): boolean {
  return a.kind === b.kind && a.clients === b.clients;
}

export function workloadName(workload: Workload): string {
  const clients = `${workload.clients} client${workload.clients === 1 ? "" : "s"}`;
  return `${workload.kind === "connect" ? "new connections" : workload.kind}, ${clients}`;
}

/** The workloads of a result, in the order they were measured. */
export function workloads(result: BenchResult): Workload[] {
  const found: Workload[] = [];
  for (const { kind, clients } of result.cells) {
    if (!found.some((known) => sameWorkload(known, { kind, clients }))) {
      found.push({ kind, clients });
    }
  }
  return found;
}

export function findCell(result: BenchResult, workload: Workload, contender: string): Cell | null {
  return result.cells.find((cell) =>
    cell.contender === contender && sameWorkload(cell, workload)
  ) ?? null;
}

/** The PgBouncer of the same shape; null for PgBouncer itself or when it did not run. */
export function baseOf(result: BenchResult, contender: ContenderName): ContenderName | null {
  if (contender.product === "pgbouncer") return null;
  return result.contenders.find((other) =>
    other.product === "pgbouncer" && other.shape === contender.shape
  ) ?? null;
}

export function cellMedian(cell: Cell, metric: Metric): number | null {
  return medianOrNull(cell.samples.map((sample) => sample[metric]));
}

/** Median of the per-round ratios to PgBouncer of the same shape. */
export function cellRatio(
  result: BenchResult,
  workload: Workload,
  contender: ContenderName,
  metric: Metric,
): { median: number; low: number; high: number } | null {
  const base = baseOf(result, contender);
  const cell = findCell(result, workload, contender.id);
  const baseCell = base === null ? null : findCell(result, workload, base.id);
  if (cell === null || baseCell === null) return null;
  return medianRatio(
    cell.samples.map((sample) => sample[metric]),
    baseCell.samples.map((sample) => sample[metric]),
  );
}

/** Reads the text of a --json file. */
export function parseResult(text: string, name: string): BenchResult {
  let value: Partial<BenchResult>;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new Error(`read "${name}": ${(error as Error).message}, JSON wanted`);
  }
  if (value?.format !== FORMAT || !Array.isArray(value.cells) || !Array.isArray(value.contenders)) {
    throw new Error(
      `read "${name}": format "${value?.format}", format "${FORMAT}" of this benchmark wanted`,
    );
  }
  return value as BenchResult;
}

/** A share of other work above which the figures are not to be trusted. */
export const QUIET_SHARE = 0.05;

/** How much of the machine's CPU other work took: the median and the most over all samples. */
export function otherWork(result: BenchResult): { median: number; most: number } {
  const shares = result.cells.flatMap((cell) => cell.samples.map((sample) => sample.otherShare));
  return { median: medianOrNull(shares) ?? 0, most: Math.max(0, ...shares) };
}
