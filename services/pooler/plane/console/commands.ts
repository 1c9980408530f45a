// Every command of the console in one table, with who may give it: the permission check and SHOW HELP
// come from it, so that no command can be without the check its neighbours have. Pure.

import type { DatabaseCommand } from "../../../../shared/console/mod.ts";
import type { GroupUse } from "../../../../shared/groups/mod.ts";
import { columnsOf, type ConsoleColumn, type Row } from "./encode.ts";
import { featureColumns, featureRows } from "./feature_rows.ts";
import { groupColumns, groupRows } from "./group_rows.ts";
import { leaseColumns, leaseRows } from "./lease_rows.ts";
import { listenerColumns, listenerRows } from "./listener_rows.ts";
import { overloadColumns, overloadRows, warningColumns, warningRows } from "./overload_rows.ts";
import {
  databaseColumns,
  databaseRows,
  hostColumns,
  hostRows,
  listColumns,
  listRows,
  memoryColumns,
  memoryRows,
  poolColumns,
  poolRows,
  userColumns,
  userRows,
  workerColumns,
  workerRows,
} from "./pool_rows.ts";
import {
  clientRows,
  detailRows,
  serverRows,
  socketColumns,
  socketDetailColumns,
} from "./socket_rows.ts";
import {
  statsAveragesColumns,
  statsColumns,
  statsRows,
  statsTotalsColumns,
  totalsColumns,
  totalsRows,
} from "./stats_rows.ts";
import { showConfigRows } from "../../../../shared/config/mod.ts";
import type { Moment } from "./view.ts";

/** Who may: "stats" is users of stats_users and of admin_users, "admin" those of admin_users alone. */
export type Access = "stats" | "admin";

export interface Show {
  readonly access: Access;
  /** null = not available. */
  readonly result:
    | {
      readonly columns: readonly ConsoleColumn[];
      /** `others`: what other workers have in use of groups, if it `gathers`. */
      rows(moment: Moment, others?: readonly GroupUse[]): Iterable<Row>;
      /** It shows sums over the mesh. */
      readonly gathers: boolean;
    }
    | "help"
    | null;
}

function show(
  columns: readonly ConsoleColumn[],
  rows: (moment: Moment) => Iterable<Row>,
): Show {
  return { access: "stats", result: { columns, rows, gathers: false } };
}

const nothing = () => [];

function configRows({ plane }: Moment): Row[] {
  return showConfigRows(plane.config).map((row) => {
    return [row.key, row.value, row.default, row.changeable];
  });
}

/** What may follow SHOW (or SELECT). */
export const showTable: ReadonlyMap<string, Show> = new Map<string, Show>([
  ["help", { access: "stats", result: "help" }],
  ["config", show(columnsOf("key s, value s, default s, changeable s"), configRows)],
  ["databases", show(databaseColumns, databaseRows)],
  ["pools", show(poolColumns, poolRows)],
  ["clients", show(socketColumns, clientRows)],
  ["servers", show(socketColumns, serverRows)],
  ["users", show(userColumns, userRows)],
  ["version", show(columnsOf("version s"), ({ plane }) => [[`pgweir ${plane.version}`]])],
  ["peers", show(columnsOf("peer_id i, host s, port i, pool_size i"), nothing)],
  [
    "peer_pools",
    show(
      columnsOf(
        "peer_id i, cl_active_cancel_req i, cl_waiting_cancel_req i, sv_active_cancel i, " +
          "sv_login i",
      ),
      nothing,
    ),
  ],
  // It hands over descriptors and secrets, so it is the one that statistics users may not see.
  ["fds", { access: "admin", result: null }],
  ["sockets", show(socketDetailColumns, (moment) => detailRows(moment, false))],
  ["active_sockets", show(socketDetailColumns, (moment) => detailRows(moment, true))],
  ["lists", show(listColumns, listRows)],
  ["mem", show(memoryColumns, memoryRows)],
  [
    "state",
    show(columnsOf("key s, value s"), ({ plane }) => [
      ["active", plane.operator.paused || plane.operator.suspended ? "no" : "yes"],
      ["paused", plane.operator.paused ? "yes" : "no"],
      ["suspended", plane.operator.suspended ? "yes" : "no"],
    ]),
  ],
  ["dns_hosts", show(hostColumns, hostRows)],
  ["dns_zones", show(columnsOf("zonename s, serial q, count i"), nothing)],
  ["stats", show(statsColumns, ({ plane }) => statsRows(plane, "both"))],
  ["stats_totals", show(statsTotalsColumns, ({ plane }) => statsRows(plane, "totals"))],
  ["stats_averages", show(statsAveragesColumns, ({ plane }) => statsRows(plane, "averages"))],
  ["totals", show(totalsColumns, ({ plane }) => totalsRows(plane))],
  ["worker", show(workerColumns, workerRows)],
  ["leases", show(leaseColumns, leaseRows)],
  ["groups", {
    access: "stats",
    result: { columns: groupColumns, rows: groupRows, gathers: true },
  }],
  ["features", show(featureColumns, featureRows)],
  ["listeners", show(listenerColumns, listenerRows)],
  ["overload", show(overloadColumns, overloadRows)],
  ["warnings", show(warningColumns, warningRows)],
]);

/**
 * Settings of a PostgreSQL session that drivers ask for or set unasked: they are shown, and setting
 * them does nothing. A null is only set, never asked for.
 */
export const sessionSettings: ReadonlyMap<string, string | null> = new Map([
  ["client_encoding", "UTF-8"],
  ["default_transaction_isolation", "read committed"],
  ["standard_conforming_strings", "on"],
  ["datestyle", "ISO"],
  ["timezone", "GMT"],
  ["extra_float_digits", "2"],
  ["application_name", null],
]);

export interface CommandRow {
  readonly access: Access;
  readonly does:
    | "show"
    | "set"
    | "shutdown"
    | "reload"
    | "suspend"
    | "killClient"
    /** Of one database, or of all of them. */
    | DatabaseCommand["kind"]
    /** Of a PostgreSQL session, not of a console; answered so that drivers work, and nothing happens. */
    | "ignored"
    /** As `ignored`, but the session's prepared statements go. */
    | "forgetsStatements";
  /** CommandComplete's text. */
  readonly tag: string;
}

const ignored = (tag: string): CommandRow => ({ access: "stats", does: "ignored", tag });
const forgets = (tag: string): CommandRow => ({
  access: "stats",
  does: "forgetsStatements",
  tag,
});

export const commandTable: ReadonlyMap<string, CommandRow> = new Map<string, CommandRow>([
  ["show", { access: "stats", does: "show", tag: "SHOW" }],
  ["select", { access: "stats", does: "show", tag: "SHOW" }],
  ["set", { access: "admin", does: "set", tag: "SET" }],
  ["shutdown", { access: "admin", does: "shutdown", tag: "SHUTDOWN" }],
  ["reload", { access: "admin", does: "reload", tag: "RELOAD" }],
  ["pause", { access: "admin", does: "pause", tag: "PAUSE" }],
  ["resume", { access: "admin", does: "resume", tag: "RESUME" }],
  ["disable", { access: "admin", does: "disable", tag: "DISABLE" }],
  ["enable", { access: "admin", does: "enable", tag: "ENABLE" }],
  ["reconnect", { access: "admin", does: "reconnect", tag: "RECONNECT" }],
  ["kill", { access: "admin", does: "kill", tag: "KILL" }],
  ["kill_client", { access: "admin", does: "killClient", tag: "KILL_CLIENT" }],
  ["suspend", { access: "admin", does: "suspend", tag: "SUSPEND" }],
  ["wait_close", { access: "admin", does: "wait_close", tag: "WAIT_CLOSE" }],
  ["begin", ignored("BEGIN")],
  ["start", ignored("START TRANSACTION")],
  ["commit", ignored("COMMIT")],
  ["end", ignored("COMMIT")],
  ["rollback", ignored("ROLLBACK")],
  ["abort", ignored("ROLLBACK")],
  ["discard", forgets("DISCARD ALL")],
  ["deallocate", forgets("DEALLOCATE ALL")],
]);

export function allows(access: Access, admin: boolean): boolean {
  return admin || access === "stats";
}

/** The detail of SHOW HELP's notice. */
export function helpText(): string {
  const shows = [...showTable].filter(([, { result }]) => result !== null)
    .map(([name]) => name.toUpperCase());
  return [
    "",
    `\tSHOW ${shows.join("|")}`,
    "\tSET key = arg",
    "\tRELOAD",
    "\tPAUSE [<db>]",
    "\tRESUME [<db>]",
    "\tDISABLE <db>",
    "\tENABLE <db>",
    "\tRECONNECT [<db>]",
    "\tKILL [<db>]",
    "\tKILL_CLIENT <client_id>",
    "\tSUSPEND",
    "\tWAIT_CLOSE [<db>]",
    "\tSHUTDOWN",
    "\tSHUTDOWN WAIT_FOR_SERVERS|WAIT_FOR_CLIENTS",
    "Not available: SHOW FDS",
  ].join("\n");
}
