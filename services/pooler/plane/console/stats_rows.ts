// Rows of SHOW STATS, STATS_TOTALS, STATS_AVERAGES and TOTALS, and the line of statistics in the log.
// Counters of pools are summed by database; times are milliseconds inside and microseconds here.

import { CONSOLE_DATABASE } from "../../../../shared/config/mod.ts";
import { Counter, counterCount, type PoolStats } from "../stats.ts";
import { columnsOf, type Row } from "./encode.ts";
import type { PlaneView } from "./view.ts";

/** Names in the order of `Counter`; each statement of the console has its own for some. */
const totalNames = [
  "server_assignment_count",
  "xact_count",
  "query_count",
  "bytes_received",
  "bytes_sent",
  "xact_time",
  "query_time",
  "wait_time",
  "client_parse_count",
  "server_parse_count",
  "bind_count",
  "client_login_count",
];

function renamed(names: readonly string[], changes: Readonly<Record<string, string>>): string[] {
  return names.map((name) => changes[name] ?? name);
}

const prefixed = (prefix: string, names: readonly string[]) => names.map((name) => prefix + name);
const numeric = (names: readonly string[]) => names.map((name) => `, ${name} N`).join("");

const shown = { total: { bytes_received: "received", bytes_sent: "sent" } };
const shownAverage = { bytes_received: "recv", bytes_sent: "sent" };

export const statsColumns = columnsOf(
  `database s${numeric(prefixed("total_", renamed(totalNames, shown.total)))}${
    numeric(prefixed("avg_", renamed(totalNames, shownAverage)))
  }`,
);

export const statsTotalsColumns = columnsOf(`database s${numeric(totalNames)}`);

export const statsAveragesColumns = columnsOf(
  `database s${
    numeric(totalNames.map((name, index) => index < Counter.clientParses ? name : `avg_${name}`))
  }`,
);

export const totalsColumns = columnsOf("name s, value N");

const rowNames = renamed(totalNames, {
  bytes_received: "client_bytes",
  bytes_sent: "server_bytes",
  client_parse_count: "ps_client_parse_count",
  server_parse_count: "ps_server_parse_count",
  bind_count: "ps_bind_count",
});

/** What a time is counted per: see PoolStats. */
const itemOf: Readonly<Record<number, number>> = {
  [Counter.transactionTime]: Counter.transactions,
  [Counter.queryTime]: Counter.queries,
  [Counter.waitTime]: Counter.assignments,
};

export function sumOfTotals(all: Iterable<PoolStats>): Float64Array {
  const sum = new Float64Array(counterCount);
  for (const { totals } of all) for (let i = 0; i < counterCount; i++) sum[i]! += totals[i]!;
  return sum;
}

/** Averages of several pools as one: rates add up, times per item are weighted by the items. */
export function jointAverages(all: Iterable<PoolStats>): Float64Array {
  const joint = new Float64Array(counterCount);
  for (const { averages } of all) {
    for (let i = 0; i < counterCount; i++) {
      const item = itemOf[i];
      joint[i]! += averages[i]! * (item === undefined ? 1 : averages[item]!);
    }
  }
  for (const [time, item] of Object.entries(itemOf)) {
    joint[Number(time)] = joint[item]! > 0 ? joint[Number(time)]! / joint[item]! : 0;
  }
  return joint;
}

/** Whole numbers, times in microseconds. */
function shownValues(counters: Float64Array): number[] {
  return [...counters].map((value, index) => Math.round(index in itemOf ? value * 1000 : value));
}

/** The statistics of each database; the console is one, and the last. */
function byDatabase(plane: PlaneView): Map<string, PoolStats[]> {
  const databases = new Map<string, PoolStats[]>();
  for (const { database, stats } of plane.pools.values()) {
    const known = databases.get(database.name);
    if (known === undefined) databases.set(database.name, [stats]);
    else known.push(stats);
  }
  for (const [name, stats] of plane.formerStats) {
    const known = databases.get(name);
    if (known === undefined) databases.set(name, [stats]);
    else known.push(stats);
  }
  databases.set(CONSOLE_DATABASE, [plane.consoleStats]);
  return databases;
}

export function* statsRows(
  plane: PlaneView,
  which: "both" | "totals" | "averages",
): Generator<Row> {
  for (const [name, all] of byDatabase(plane)) {
    const totals = which === "averages" ? [] : shownValues(sumOfTotals(all));
    const averages = which === "totals" ? [] : shownValues(jointAverages(all));
    yield [name, ...totals, ...averages];
  }
}

/** All pools as one. The console is left out: its commands take no time, and would lower the averages. */
export function* totalsRows(plane: PlaneView): Generator<Row> {
  const all = [...plane.pools.values()].map(({ stats }) => stats);
  all.push(...plane.formerStats.values());
  const totals = shownValues(sumOfTotals(all));
  const averages = shownValues(jointAverages(all));
  for (const [index, name] of rowNames.entries()) yield [`total_${name}`, totals[index]!];
  for (const [index, name] of rowNames.entries()) yield [`avg_${name}`, averages[index]!];
}

/** The log line of a period that has just ended, as PgBouncer writes it; the console is left out. */
export function statsLine(all: Iterable<PoolStats>): string {
  const values = shownValues(jointAverages(all));
  const value = (counter: number) => values[counter] as number;
  return `stats: ${value(Counter.transactions)} xacts/s, ${value(Counter.queries)} queries/s, ` +
    `${value(Counter.clientParses)} client parses/s, ` +
    `${value(Counter.serverParses)} server parses/s, ${value(Counter.binds)} binds/s, ` +
    `in ${value(Counter.bytesReceived)} B/s, out ${value(Counter.bytesSent)} B/s, ` +
    `xact ${value(Counter.transactionTime)} us, query ${value(Counter.queryTime)} us, ` +
    `wait ${value(Counter.waitTime)} us`;
}
