// Rows about overload: what new work is refused for now, with the counts of what was refused for it to the clients of
// each database, and apart from those to the clients of each resource group that has bounds of its own; and the
// warnings of monitors.

import { type Share, shareOf, type Source, valueOf } from "../shedding.ts";
import { columnsOf, type Row } from "./encode.ts";
import { timestamp } from "./socket_rows.ts";
import type { Moment, PlaneView } from "./view.ts";

export const overloadColumns = columnsOf(
  "scope s, name s, database s, reason s, value s, min_to_throw s, max_to_throw s, " +
    "throw_probability s, min_to_drop s, max_to_drop s, drop_probability s, expires_ms q, " +
    "shed_transactions q, shed_connections q, group_name s",
);

const shown = (number: number) => String(Number(number.toFixed(4)));
const cellsOf = ({ min, max, probability }: Share) => [min, max, probability].map(shown);
const unknown = [null, null, null];
const idOf = (scope: string, name: string, database: string, group: string) =>
  `${scope}\0${name}\0${database}\0${group}`;

export function* overloadRows({ plane, now }: Moment): Generator<Row> {
  const { overload } = plane;
  const told = new Set<string>();
  for (const source of overload.shedding.sources) {
    const { scope, name, reason, until } = source;
    for (const [database, group] of concerned(plane, source)) {
      const id = idOf(scope, name, database ?? "", group ?? "");
      told.add(id);
      const shed = overload.shed.get(id);
      const bounds = overload.boundsOf(database ?? "", group);
      const isSpared = database !== null && overload.isExempt(database) ||
        plane.config.groups.find((each) => each.name === group)?.shed === "never";
      const inForce = (share: Share) => isSpared ? { ...share, probability: 0 } : share;
      yield [
        scope,
        name,
        database,
        reason,
        shown(valueOf(source, bounds)),
        ...cellsOf(inForce(shareOf(source, "transactions", bounds))),
        ...cellsOf(inForce(shareOf(source, "connections", bounds))),
        Math.max(0, Math.round(until - now)),
        shed?.transactions ?? 0,
        shed?.connections ?? 0,
        group,
      ];
    }
  }
  // What was refused for something that is not said any more.
  for (
    const { scope, name, database, group, transactions, connections } of overload.shed.values()
  ) {
    if (told.has(idOf(scope, name, database, group))) continue;
    const cells = [null, null, ...unknown, ...unknown, null];
    yield [scope, name, database, ...cells, transactions, connections, group || null];
  }
}

/** What a source is shown for: databases, alone and with each group that has bounds. */
function concerned(plane: PlaneView, source: Source): (readonly [string | null, string | null])[] {
  return databasesOf(plane, source).flatMap((database) =>
    [null, ...plane.overload.boundGroups].map((group) => [database, group] as const)
  );
}

/** null where it concerns all and none is in use. */
function databasesOf(plane: PlaneView, source: Source): (string | null)[] {
  if (source.database !== null) return [source.database];
  const names = new Set<string>();
  for (const { database } of plane.pools.values()) names.add(database.name);
  for (const { scope, name, database } of plane.overload.shed.values()) {
    if (scope === source.scope && name === source.name) names.add(database);
  }
  return names.size === 0 ? [null] : [...names];
}

export const warningColumns = columnsOf(
  "time T, host s, kind s, value s, warn_ratio s, clear_ratio s, cleared T, monitor s",
);

export function* warningRows({ plane }: Moment): Generator<Row> {
  const all = [...plane.overload.warnings.values()].flatMap((
    { said: { host, monitor, warnings } },
  ) => warnings.map((warning) => ({ host, monitor, ...warning })));
  for (const { host, monitor, kind, raisedAt, clearedAt, value, warn, clear } of all.sort(byTime)) {
    const cleared = clearedAt === null ? null : timestamp(clearedAt);
    const figures = [value, warn, clear].map(shown);
    yield [timestamp(raisedAt), host, kind, ...figures, cleared, monitor];
  }
}

function byTime(a: { readonly raisedAt: number }, b: { readonly raisedAt: number }): number {
  return a.raisedAt - b.raisedAt;
}
