// From samples to ratios, verdicts and Markdown.

import { assert, suite } from "../support/harness.ts";
import { CONTENDERS } from "./options.ts";
import { groupThousands, renderComparison, renderReport, renderTable } from "./report.ts";
import { type BenchResult, type Cell, cellRatio, parseResult, type Sample } from "./results.ts";
import { judge } from "./targets.ts";

const test = suite("bench report");

function sample(tps: number, cpuMicros: number, p99Ms: number, slow = 0): Sample {
  return {
    transactions: tps * 2,
    slow,
    tps,
    p50Ms: p99Ms / 2,
    p99Ms,
    cpuMicros,
    residentBytes: 10e6,
    otherShare: 0.01,
  };
}

function cell(contender: string, kind: Cell["kind"], clients: number, samples: Sample[]): Cell {
  return { contender, kind, clients, samples, note: null };
}

function result(cells: Cell[], idle: BenchResult["idle"] = []): BenchResult {
  return {
    format: 1,
    date: "2026-11-29T12:00:00.000Z",
    machine: { cpu: "Some CPU", cores: 2, memoryBytes: 8 * 2 ** 30, kernel: "6.18" },
    versions: { PostgreSQL: "15.18", PgBouncer: "1.18.0" },
    rounds: 2,
    seconds: 2,
    poolSize: 20,
    contenders: CONTENDERS.filter((c) => cells.some((one) => one.contender === c.id)),
    cells,
    idle,
  };
}

const BUN = CONTENDERS.find((c) => c.id === "pgweir-bun")!;

const good = result([
  cell("pgbouncer", "simple", 8, [sample(10_000, 20, 1), sample(20_000, 10, 0.5)]),
  cell("pgweir-bun", "simple", 8, [sample(12_000, 12, 0.8), sample(24_000, 6, 0.4)]),
]);

test("cellRatio() compares with PgBouncer of the same shape round by round", () => {
  const ratio = cellRatio(good, { kind: "simple", clients: 8 }, BUN, "cpuMicros");
  assert.equal(ratio, { median: 0.6, low: 0.6, high: 0.6 });
});

test("cellRatio() is null when only PgBouncer of the other shape ran", () => {
  const fleetOnly = result([
    cell("pgbouncer-fleet", "simple", 8, [sample(1, 1, 1)]),
    cell("pgweir-bun", "simple", 8, [sample(1, 1, 1)]),
  ]);
  assert.is(cellRatio(fleetOnly, { kind: "simple", clients: 8 }, BUN, "tps"), null);
});

test("judge() finds all targets reached when the ratios are good", () => {
  const verdicts = judge(good);
  assert.equal(verdicts.map((v) => [v.what, v.reached]), [
    ["CPU per transaction, simple", true],
    ["throughput at 8 clients", true],
    ["p99 latency", true],
    ["transactions over 50 ms", true],
  ]);
});

test("judge() goes by the worst workload and says how many reach the target", () => {
  const verdicts = judge(result([
    cell("pgbouncer", "simple", 8, [sample(100, 10, 1)]),
    cell("pgbouncer", "simple", 32, [sample(100, 10, 1, 1)]),
    cell("pgweir-bun", "simple", 8, [sample(120, 7, 0.9)]),
    cell("pgweir-bun", "simple", 32, [sample(90, 8, 1.2, 2)]),
  ]));
  const find = (what: string) => verdicts.find((v) => v.what === what);
  assert.is(
    find("CPU per transaction, simple")?.got,
    "0.80 ×, rounds 0.80 to 0.80 (worst: simple, 32 clients; 1 of 2 reach it)",
  );
  assert.is(find("CPU per transaction, simple")?.reached, false);
  // Throughput is asked for at 8 and 256 clients only: the loss at 32 is no verdict.
  assert.is(find("throughput at 8 clients")?.reached, true);
  assert.is(find("p99 latency")?.reached, false);
  assert.equal(find("transactions over 50 ms"), {
    contender: "pgweir-bun",
    what: "transactions over 50 ms",
    wanted: "at most PgBouncer's 1",
    got: "2",
    reached: false,
  });
});

test("judge() asks less of prepared statements and of Deno", () => {
  const cells = ["pgweir-bun", "pgweir-deno"].map((id) =>
    cell(id, "prepared", 32, [sample(100, 8.2, 1)])
  );
  const verdicts = judge(
    result([cell("pgbouncer", "prepared", 32, [sample(100, 10, 1)]), ...cells]),
  );
  const cpu = verdicts.filter((v) => v.what.startsWith("CPU"));
  assert.equal(cpu.map((v) => [v.contender, v.wanted, v.reached]), [
    ["pgweir-bun", "at most 0.80 × PgBouncer", false],
    ["pgweir-deno", "at most 0.85 × PgBouncer", true],
  ]);
});

test("judge() has a target of its own for clients by TLS", () => {
  const verdicts = judge({ ...good, tls: true });
  const cpu = verdicts.find((verdict) => verdict.what === "CPU per transaction by TLS, simple");
  assert.match(cpu?.wanted ?? "", "at most 0.85");
  assert.match(renderReport({ ...good, tls: true }, verdicts), "clients by TLS");
  assert.not.match(renderReport(good, judge(good)), "clients by TLS");
});

test("judge() judges new connections, and memory of a single worker only", () => {
  const verdicts = judge(result(
    [
      cell("pgbouncer", "connect", 8, [sample(5000, 60, 1)]),
      cell("pgweir-bun", "connect", 8, [sample(6500, 50, 1)]),
      cell("pgweir-bun-fleet", "connect", 8, [sample(1, 1, 1)]),
    ],
    ["pgweir-bun", "pgweir-bun-fleet"].map((contender) => ({
      contender,
      restBytes: 85e6,
      clients: 2000,
      bytesPerClient: 2048,
    })),
  ));
  assert.equal(verdicts.map((v) => [v.what, v.got, v.reached]), [
    [
      "new connections per second",
      "1.30 ×, rounds 1.30 to 1.30 (new connections, 8 clients)",
      true,
    ],
    ["memory at rest", "85 MB", true],
    ["memory per idle client", "2.00 KB", false],
  ]);
});

test("judge() has nothing to say when only PgBouncer ran", () => {
  assert.equal(judge(result([cell("pgbouncer", "simple", 8, [sample(1, 1, 1)])])), []);
});

test("renderReport() prints medians, ratios in brackets, and notes", () => {
  const noted = result(
    [
      { ...cell("pgbouncer", "prepared", 1, [sample(12_345, 20, 1)]), note: "session pooling" },
      cell("pgweir-deno", "prepared", 1, [sample(15_431.25, 10, 2)]),
    ],
    [{ contender: "pgbouncer", restBytes: 8e6, clients: 2000, bytesPerClient: 1023.6 }],
  );
  const text = renderReport(noted, judge(noted));
  assert.match(text, "2026-11-29, Some CPU, 2 cores, 8 GiB, Linux 6.18. PostgreSQL 15.18,");
  assert.match(
    text,
    "| one process: prepared, 1 client | PgBouncer (session pooling) | 12,345 | 0.500 | 1.000 | 20.0 | 10 |",
  );
  assert.match(
    text,
    "|  | pgweir, Deno | 15,431 (1.25) | 1.000 (2.00) | 2.000 (2.00) | 10.0 (0.50) | 10 (1.00) |",
  );
  assert.match(text, "| PgBouncer, one process | 8.0 | 1,024 |");
  assert.match(text, /\| p99 latency \| .* \| \*\*missed\*\* \|/);
});

test("renderReport() warns when other work took much of the CPU", () => {
  const quiet = result([cell("pgbouncer", "simple", 8, [sample(1, 1, 1)])]);
  assert.match(renderReport(quiet, []), "Other work took 1 % of the CPU (median), 1 % at most.");
  const noisy = result([cell("pgbouncer", "simple", 8, [{ ...sample(1, 1, 1), otherShare: 0.4 }])]);
  assert.match(renderReport(noisy, []), "40 % at most: **the machine was not quiet");
});

test("renderReport() leaves the other tables out when there is nothing for them", () => {
  const text = renderReport(result([cell("pgbouncer", "simple", 8, [sample(1, 1, 1)])]), []);
  assert.not.match(text, "Targets");
  assert.not.match(text, "idle client");
});

test("renderComparison() shows how ratios moved, and says when runs have nothing in common", () => {
  const later = result([
    cell("pgbouncer", "simple", 8, [sample(10_000, 20, 1)]),
    cell("pgweir-bun", "simple", 8, [sample(12_000, 15, 0.8)]),
  ]);
  assert.match(renderComparison(later, good), "0.60 → 0.75 (+25 %)");
  assert.match(renderComparison(later, good), "1.20 → 1.20 (+0 %)");
  const other = result([cell("pgbouncer", "simple", 8, [sample(1, 1, 1)])]);
  assert.match(renderComparison(other, good), /no workload in common/);
});

test("renderTable() aligns every column but the first to the right", () => {
  assert.is(renderTable(["a", "b"], [["1", "2"]]), "| a | b |\n| --- | ---: |\n| 1 | 2 |");
});

test("groupThousands() groups the whole part only", () => {
  assert.is(groupThousands("1234567.1234"), "1,234,567.1234");
  assert.is(groupThousands("999"), "999");
  assert.is(groupThousands("-1000"), "-1,000");
});

test("parseResult() reads back what was written, and refuses anything else", () => {
  assert.equal(parseResult(JSON.stringify(good), "a.json"), good);
  assert.throws(() => parseResult("{", "a.json"), /read "a.json": .* JSON wanted/);
  assert.throws(() => parseResult('{"format":0}', "a.json"), /format "0", format "1"/);
  assert.throws(() => parseResult("null", "a.json"), /format "undefined"/);
});

test.run();
