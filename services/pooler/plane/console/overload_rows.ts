// Rows about overload: what new work is refused for now, with the counts of what was refused for it to the clients of
// each database; and the warnings of monitors.

import { type Share, shareOf, type Source } from "../shedding.ts";
import { columnsOf, type Row } from "./encode.ts";
import { timestamp } from "./socket_rows.ts";
import type { Moment, OverloadView, PlaneView } from "./view.ts";

export const overloadColumns = columnsOf(
  "scope s, name s, database s, reason s, value s, min_to_throw s, max_to_throw s, " +
    "throw_probability s, min_to_drop s, max_to_drop s, drop_probability s, expires_ms q, " +
    "shed_transactions q, shed_connections q",
);

const shown = (number: number) => String(Number(number.toFixed(4)));
const cellsOf = ({ min, max, probability }: Share) => [min, max, probability].map(shown);
const unknown = [null, null, null];
const idOf = (scope: string, name: string, database: string) => `${scope}\0${name}\0${database}`;

export function* overloadRows({ plane, now }: Moment): Generator<Row> {
  const { overload } = plane;
  const told = new Set<string>();
  for (const source of overload.shedding.sources) {
    const { scope, name, reason, value, until } = source;
    for (const database of concerned(plane, source)) {
      const id = idOf(scope, name, database ?? "");
      told.add(id);
      const shed = overload.shed.get(id);
      yield [
        scope,
        name,
        database,
        reason,
        shown(value),
        ...cellsOf(inForce(overload, shareOf(source, "transactions", database ?? ""), database)),
        ...cellsOf(inForce(overload, shareOf(source, "connections", database ?? ""), database)),
        Math.max(0, Math.round(until - now)),
        shed?.transactions ?? 0,
        shed?.connections ?? 0,
      ];
    }
  }
  // What was refused for something that is not said any more.
  for (const { scope, name, database, transactions, connections } of overload.shed.values()) {
    if (told.has(idOf(scope, name, database))) continue;
    const cells = [null, null, ...unknown, ...unknown, null];
    yield [scope, name, database, ...cells, transactions, connections];
  }
}

/** The databases that a source is shown for; null where it concerns all and none is in use. */
function concerned(plane: PlaneView, source: Source): (string | null)[] {
  if (source.database !== null) return [source.database];
  const names = new Set<string>();
  for (const { database } of plane.pools.values()) names.add(database.name);
  for (const { scope, name, database } of plane.overload.shed.values()) {
    if (scope === source.scope && name === source.name) names.add(database);
  }
  return names.size === 0 ? [null] : [...names];
}

function inForce(overload: OverloadView, share: Share, database: string | null): Share {
  const isExempt = database !== null && overload.isExempt(database);
  return isExempt ? { ...share, probability: 0 } : share;
}

export const warningColumns = columnsOf(
  "time T, host s, kind s, value s, warn_ratio s, clear_ratio s, cleared T",
);

export function* warningRows({ plane }: Moment): Generator<Row> {
  const all = [...plane.overload.warnings.values()].flatMap(({ said: { host, warnings } }) =>
    warnings.map((warning) => ({ host, ...warning }))
  );
  for (const { host, kind, raisedAt, clearedAt, value, warn, clear } of all.sort(byTime)) {
    const cleared = clearedAt === null ? null : timestamp(clearedAt);
    yield [timestamp(raisedAt), host, kind, shown(value), shown(warn), shown(clear), cleared];
  }
}

function byTime(a: { readonly raisedAt: number }, b: { readonly raisedAt: number }): number {
  return a.raisedAt - b.raisedAt;
}
