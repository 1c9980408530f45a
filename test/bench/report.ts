// Renders a result as Markdown: the machine, the table, the memory, the verdicts, the comparison with
// an earlier run. Pure. Absolute figures are medians over the rounds; what follows in brackets
// is the median of the per-round ratios to PgBouncer of the same shape.

import type { ContenderName } from "./options.ts";
import {
  baseOf,
  type BenchResult,
  cellMedian,
  cellRatio,
  findCell,
  type Metric,
  otherWork,
  QUIET_SHARE,
  type Workload,
  workloadName,
  workloads,
} from "./results.ts";
import { NOT_MEASURED, type Verdict } from "./targets.ts";

const SHAPES = ["single", "fleet"] as const;

/** A Markdown table; columns from the second on are aligned to the right. */
export function renderTable(
  head: readonly string[],
  rows: readonly (readonly string[])[],
  left = 1,
): string {
  const line = (cells: readonly string[]) => `| ${cells.join(" | ")} |`;
  return [
    line(head),
    line(head.map((_, column) => column < left ? "---" : "---:")),
    ...rows.map(line),
  ].join("\n");
}

export function renderReport(result: BenchResult, verdicts: readonly Verdict[]): string {
  return [
    renderHeader(result),
    renderMeasurements(result),
    ...(result.idle.length > 0 ? [renderMemory(result)] : []),
    ...(verdicts.length > 0 ? [renderVerdicts(result, verdicts)] : []),
  ].join("\n\n");
}

function renderHeader(result: BenchResult): string {
  const { machine } = result;
  const other = otherWork(result);
  const percent = (share: number) => `${(share * 100).toFixed(0)} %`;
  const versions = Object.entries(result.versions).map(([name, version]) => `${name} ${version}`);
  return `${result.date.slice(0, 10)}, ${machine.cpu}, ${machine.cores} cores, ` +
    `${(machine.memoryBytes / 2 ** 30).toFixed(0)} GiB, Linux ${machine.kernel}. ` +
    `${versions.join(", ")}. \`pgbench -S\`, scale 10, a pool of ${result.poolSize}, ` +
    (result.tls === true ? "clients by TLS, " : "") +
    `${result.rounds} round${
      result.rounds === 1 ? "" : "s"
    } of ${result.seconds} s; medians, and in brackets the median ratio to ` +
    `PgBouncer in the same round. TPS: more is better; the rest: less is better. ` +
    `Other work took ${percent(other.median)} of the CPU (median), ${percent(other.most)} at most` +
    (other.median > QUIET_SHARE
      ? ": **the machine was not quiet, do not trust these figures**."
      : ".");
}

function shapeName(shape: ContenderName["shape"], cores: number): string {
  return shape === "single" ? "one process" : `${cores} processes`;
}

function renderMeasurements(result: BenchResult): string {
  const rows: string[][] = [];
  for (const shape of SHAPES) {
    for (const workload of workloads(result)) {
      let first = true;
      for (const contender of result.contenders.filter((c) => c.shape === shape)) {
        const cell = findCell(result, workload, contender.id);
        if (cell === null) continue;
        const value = (metric: Metric, digits: number, divisor = 1) =>
          renderValue(result, workload, contender, metric, digits, divisor);
        rows.push([
          first ? `${shapeName(shape, result.machine.cores)}: ${workloadName(workload)}` : "",
          contender.label + (cell.note === null ? "" : ` (${cell.note})`),
          value("tps", 0),
          value("p50Ms", 3),
          value("p99Ms", 3),
          value("cpuMicros", 1),
          value("residentBytes", 0, 1e6),
        ]);
        first = false;
      }
    }
  }
  return renderTable(
    ["workload", "pooler", "TPS", "p50 ms", "p99 ms", "CPU µs per transaction", "memory MB"],
    rows,
    2,
  );
}

function renderValue(
  result: BenchResult,
  workload: Workload,
  contender: ContenderName,
  metric: Metric,
  digits: number,
  divisor: number,
): string {
  const cell = findCell(result, workload, contender.id);
  const value = cell === null ? null : cellMedian(cell, metric);
  if (value === null) return "";
  const ratio = cellRatio(result, workload, contender, metric);
  const text = groupThousands((value / divisor).toFixed(digits));
  return ratio === null ? text : `${text} (${ratio.median.toFixed(2)})`;
}

/** "12345.6" -> "12,345.6" */
export function groupThousands(text: string): string {
  const [whole = "", fraction] = text.split(".");
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, ",");
  return fraction === undefined ? grouped : `${grouped}.${fraction}`;
}

function renderMemory(result: BenchResult): string {
  const rows = result.idle.flatMap((idle) => {
    const contender = result.contenders.find((c) => c.id === idle.contender);
    if (contender === undefined) return [];
    return [[
      `${contender.label}, ${shapeName(contender.shape, result.machine.cores)}`,
      (idle.restBytes / 1e6).toFixed(1),
      groupThousands(idle.bytesPerClient.toFixed(0)),
    ]];
  });
  const clients = result.idle[0]?.clients ?? 0;
  return renderTable(
    [
      "memory of a fresh pooler",
      "MB at rest",
      `bytes per idle client (of ${groupThousands(String(clients))})`,
    ],
    rows,
  );
}

function renderVerdicts(result: BenchResult, verdicts: readonly Verdict[]): string {
  const rows = verdicts.map((verdict) => {
    const contender = result.contenders.find((c) => c.id === verdict.contender);
    const shape = contender === undefined ? "" : shapeName(contender.shape, result.machine.cores);
    return [
      `${contender?.label ?? verdict.contender}, ${shape}`,
      verdict.what,
      verdict.wanted,
      verdict.got,
      verdict.reached ? "reached" : "**missed**",
    ];
  });
  const reached = verdicts.filter((verdict) => verdict.reached).length;
  return [
    `Targets: ${reached} of ${verdicts.length} reached. Not measured here: ${NOT_MEASURED}.`,
    renderTable(["contender", "target", "wanted", "measured", "verdict"], rows, 5),
  ].join("\n\n");
}

const COMPARED: readonly { metric: Metric; name: string }[] = [
  { metric: "tps", name: "TPS" },
  { metric: "p99Ms", name: "p99" },
  { metric: "cpuMicros", name: "CPU" },
];

/**
 * How the ratios to PgBouncer moved since an earlier run. Ratios, not absolute figures: those change
 * with the machine and its other work, which PgBouncer's own figures of either run absorb.
 */
export function renderComparison(now: BenchResult, then: BenchResult): string {
  const rows: string[][] = [];
  for (const contender of now.contenders.filter((c) => baseOf(now, c) !== null)) {
    for (const workload of workloads(now)) {
      const cells = COMPARED.map(({ metric }) => {
        const after = cellRatio(now, workload, contender, metric);
        const before = cellRatio(then, workload, contender, metric);
        if (after === null || before === null) return "";
        const change = (after.median / before.median - 1) * 100;
        return `${before.median.toFixed(2)} → ${after.median.toFixed(2)} ` +
          `(${change < 0 ? "" : "+"}${change.toFixed(0)} %)`;
      });
      if (cells.every((cell) => cell === "")) continue;
      rows.push([
        `${contender.label}, ${shapeName(contender.shape, now.machine.cores)}`,
        workloadName(workload),
        ...cells,
      ]);
    }
  }
  const title = `Ratios to PgBouncer, from the run of ${then.date.slice(0, 10)} to this one:`;
  if (rows.length === 0) return `${title} the two runs have no workload in common.`;
  const head = ["contender", "workload", ...COMPARED.map(({ name }) => name)];
  return `${title}\n\n${renderTable(head, rows, 2)}`;
}
