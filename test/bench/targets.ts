// The numbers pgweir wants to reach against PgBouncer, and whether a result reaches them.
// Pure. A target that spans several workloads is judged by the worst of them; what this benchmark
// does not measure is named by NOT_MEASURED rather than left out silently.

import type { ContenderName, Runtime } from "./options.ts";
import {
  baseOf,
  type BenchResult,
  cellRatio,
  findCell,
  type Metric,
  SLOW_MS,
  type Workload,
  workloadName,
  workloads,
} from "./results.ts";

export interface Verdict {
  readonly contender: string;
  readonly what: string;
  readonly wanted: string;
  readonly got: string;
  readonly reached: boolean;
}

export const NOT_MEASURED =
  "TLS to servers, a bare C forwarder, cancel across workers, moving a slot, a coordinator of 1,000 workers";

const CPU_LIMITS: Readonly<Record<Runtime, { plain: number; prepared: number; tls: number }>> = {
  bun: { plain: 0.75, prepared: 0.8, tls: 0.85 },
  deno: { plain: 0.8, prepared: 0.85, tls: 0.9 },
};
const TPS_RATIO = 1.1;
const TPS_CLIENTS = [8, 256];
const P99_RATIO = 1;
const CONNECT_RATIO = 1.2;
const REST_MEGABYTES = 90;
const IDLE_KILOBYTES = 1.5;

/** The verdicts on every target that the result has numbers for. */
export function judge(result: BenchResult): Verdict[] {
  return result.contenders
    .filter((contender) => contender.product === "pgweir")
    .flatMap((contender) => [
      ...judgeCpu(result, contender),
      ...TPS_CLIENTS.flatMap((clients) =>
        judgeRatio(result, contender, {
          what: `throughput at ${clients} clients`,
          metric: "tps",
          include: (w) => w.kind !== "connect" && w.clients === clients,
          limit: TPS_RATIO,
          want: "at least",
        })
      ),
      ...judgeRatio(result, contender, {
        what: "p99 latency",
        metric: "p99Ms",
        include: (w) => w.kind !== "connect",
        limit: P99_RATIO,
        want: "at most",
      }),
      ...judgeStalls(result, contender),
      ...judgeRatio(result, contender, {
        what: "new connections per second",
        metric: "tps",
        include: (w) => w.kind === "connect",
        limit: CONNECT_RATIO,
        want: "at least",
      }),
      ...judgeMemory(result, contender),
    ]);
}

function judgeCpu(result: BenchResult, contender: ContenderName): Verdict[] {
  const limits = CPU_LIMITS[contender.runtime as Runtime];
  return (["simple", "extended", "prepared"] as const).flatMap((protocol) =>
    judgeRatio(result, contender, {
      what: `CPU per transaction${result.tls === true ? " by TLS" : ""}, ${protocol}`,
      metric: "cpuMicros",
      include: (w) => w.kind === protocol,
      limit: result.tls === true
        ? limits.tls
        : protocol === "prepared"
        ? limits.prepared
        : limits.plain,
      want: "at most",
    })
  );
}

interface RatioTarget {
  readonly what: string;
  readonly metric: Metric;
  readonly include: (workload: Workload) => boolean;
  readonly limit: number;
  readonly want: "at least" | "at most";
}

function judgeRatio(
  result: BenchResult,
  contender: ContenderName,
  target: RatioTarget,
): Verdict[] {
  const found = workloads(result).filter(target.include).flatMap((workload) => {
    const ratio = cellRatio(result, workload, contender, target.metric);
    return ratio === null ? [] : [{ workload, ...ratio }];
  });
  if (found.length === 0) return [];
  const ok = (ratio: number) =>
    target.want === "at least" ? ratio >= target.limit : ratio <= target.limit;
  const ascending = found.sort((a, b) => a.median - b.median);
  const worst = (target.want === "at least" ? ascending[0] : ascending.at(-1)) as typeof found[0];
  const reached = found.filter((one) => ok(one.median)).length;
  const where = found.length === 1
    ? workloadName(worst.workload)
    : `worst: ${workloadName(worst.workload)}; ${reached} of ${found.length} reach it`;
  const range = result.rounds === 1
    ? ""
    : `, rounds ${worst.low.toFixed(2)} to ${worst.high.toFixed(2)}`;
  return [{
    contender: contender.id,
    what: target.what,
    wanted: `${target.want} ${target.limit.toFixed(2)} × PgBouncer`,
    got: `${worst.median.toFixed(2)} ×${range} (${where})`,
    reached: ok(worst.median),
  }];
}

function judgeStalls(result: BenchResult, contender: ContenderName): Verdict[] {
  const base = baseOf(result, contender);
  if (base === null) return [];
  let own = 0;
  let theirs = 0;
  let seen = false;
  for (const workload of workloads(result).filter((w) => w.kind !== "connect")) {
    const cell = findCell(result, workload, contender.id);
    const baseCell = findCell(result, workload, base.id);
    if (cell === null || baseCell === null) continue;
    seen = true;
    for (const sample of cell.samples) own += sample.slow;
    for (const sample of baseCell.samples) theirs += sample.slow;
  }
  if (!seen) return [];
  return [{
    contender: contender.id,
    what: `transactions over ${SLOW_MS} ms`,
    wanted: `at most PgBouncer's ${theirs}`,
    got: `${own}`,
    reached: own <= theirs,
  }];
}

/** Of one worker by itself: a fleet's memory includes its supervisor, for which there is no target. */
function judgeMemory(result: BenchResult, contender: ContenderName): Verdict[] {
  if (contender.shape !== "single") return [];
  const idle = result.idle.find((one) => one.contender === contender.id);
  if (idle === undefined) return [];
  const restMegabytes = idle.restBytes / 1e6;
  const kilobytes = idle.bytesPerClient / 1024;
  return [
    {
      contender: contender.id,
      what: "memory at rest",
      wanted: `at most ${REST_MEGABYTES} MB`,
      got: `${restMegabytes.toFixed(0)} MB`,
      reached: restMegabytes <= REST_MEGABYTES,
    },
    {
      contender: contender.id,
      what: "memory per idle client",
      wanted: `at most ${IDLE_KILOBYTES.toFixed(1)} KB`,
      got: `${kilobytes.toFixed(2)} KB`,
      reached: kilobytes <= IDLE_KILOBYTES,
    },
  ];
}
