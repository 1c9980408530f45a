// What PostgreSQL shows of the workers that have fallen silent: how many of their server connections are
// still there. Asks every server of [databases] that matters, at all of its addresses.
// Counted for a worker are the backends it named itself, and those nobody names that it may have opened
// after it spoke last: too many rather than too few. What cannot be asked is not counted at all: unknown.

import { isIP } from "node:net";
import {
  type BudgetAuth,
  type Config,
  type DatabaseConfig,
  lookupDatabase,
  requiresTls,
  serverTlsPlan,
} from "../../shared/config/mod.ts";
import type { Resolver } from "../../shared/host/mod.ts";
import {
  directLeaf,
  parseServerLeaf,
  poolLeaf,
  reserveLeaf,
  type ServerLeaf,
} from "../../shared/ledger/mod.ts";
import { addressText, type Login, queryOnce, type ServerAddress } from "./query_client.ts";
import type { ServerTls } from "./server_tls.ts";

/** A backend as pg_stat_activity shows it. */
export interface ShownBackend {
  readonly pid: number;
  /** null: physical replication, which is of no database. */
  readonly database: string | null;
  readonly user: string;
  /** It sends WAL to a replication client. */
  readonly isWalSender: boolean;
  /** Since it was started; null: this login may not see it. */
  readonly ageMs: number | null;
}

/** Who is asked about. Times are ages, in milliseconds. */
export interface Suspect {
  /** Leaves it is charged for. */
  readonly leaves: Iterable<string>;
  /** The backends it named last. */
  readonly pids: ReadonlyMap<string, ReadonlySet<number>>;
  /** Since it named them; Infinity: it never did. */
  readonly namedAgoMs: number;
  /** Since it last was in contact. */
  readonly heardAgoMs: number;
}

export interface LeafCount {
  /** Backends shown that the suspect named. */
  readonly named: number;
  /** Backends shown that nobody named, and that may be the suspect's. */
  readonly unnamed: number;
}

/** The backends of one server, or why they are not known. */
export type Answer = readonly ShownBackend[] | Error;
/** By database of the configuration: the answers of all addresses of its servers. */
export type Answers = ReadonlyMap<string, readonly Answer[]>;
/** Process ids that workers in contact name as theirs, by the group they are of. */
export type NamedBackends = ReadonlyMap<string, ReadonlySet<number>>;

const timeoutMs = 4000;
/** Between what was opened and its naming, and between the clocks of one machine. */
const marginMs = 2000;

// A login without pg_monitor sees the type and the start of its own sessions only, but all WAL senders. What
// else has no database, and a user maybe, is no client's.
const sql = "SELECT pid, datname, usename, " +
  "(extract(epoch FROM clock_timestamp() - backend_start) * 1000)::bigint, walsender " +
  "FROM (SELECT *, coalesce(backend_type = 'walsender', false) " +
  "OR pid IN (SELECT pid FROM pg_catalog.pg_stat_replication) AS walsender " +
  "FROM pg_catalog.pg_stat_activity) AS activity " +
  "WHERE usename IS NOT NULL AND (walsender OR datname IS NOT NULL " +
  "AND coalesce(backend_type, 'client backend') = 'client backend') " +
  "AND pid <> pg_catalog.pg_backend_pid()";

/**
 * Groups of the backends that a leaf may have: those of one user, and of one database or of none. Two entries
 * of [databases] may lead to the same. None: no leaf of server connections, or its database is not configured.
 */
export function groupsOf(config: Config, leaf: string): readonly string[] {
  const parsed = parseServerLeaf(leaf);
  const database = parsed === null ? null : lookupDatabase(config, parsed.database);
  if (parsed === null || database === null) return [];
  const group = groupOf(database.dbname, parsed.user);
  return parsed.kind === "direct" ? [group, groupOf(null, parsed.user)] : [group];
}

function groupOf(database: string | null, user: string): string {
  return `${database ?? ""}/${user}`;
}

/** The other leaves of the same database and user. */
function siblingsOf({ kind, database, user }: ServerLeaf): string[] {
  return Object.entries({ pool: poolLeaf, reserve: reserveLeaf, direct: directLeaf })
    .filter(([other]) => other !== kind).map(([, leafOf]) => leafOf(database, user));
}

/** One look at all the servers of some databases. */
export class BackendView {
  readonly #config: Config;
  readonly #answers: Answers;
  readonly #named: NamedBackends;

  constructor(config: Config, answers: Answers, named: NamedBackends) {
    this.#config = config;
    this.#answers = answers;
    this.#named = named;
  }

  /** What is shown of a suspect, by leaf of server connections; one that is missing is not known. */
  count(suspect: Suspect, leaseMs: number): Map<string, LeafCount> {
    const counts = new Map<string, LeafCount>();
    for (const leaf of suspect.leaves) {
      const parsed = parseServerLeaf(leaf);
      if (parsed === null) continue;
      const groups = groupsOf(this.#config, leaf);
      const answers = this.#answers.get(parsed.database) ?? [];
      if (groups.length === 0 || answers.length === 0) continue;
      if (answers.some((answer) => answer instanceof Error)) continue;
      const own = suspect.pids.get(leaf);
      const siblings = siblingsOf(parsed).map((sibling) => suspect.pids.get(sibling));
      const isSiblings = (pid: number) => siblings.some((pids) => pids?.has(pid) === true);
      let named = 0;
      let unnamed = 0;
      for (const backend of (answers as readonly (readonly ShownBackend[])[]).flat()) {
        const { pid, database, user, isWalSender } = backend;
        const group = groupOf(database, user);
        if (!groups.includes(group) || (isWalSender && parsed.kind !== "direct")) continue;
        if (own?.has(pid) === true) named += 1;
        else if (isSiblings(pid) || this.#named.get(group)?.has(pid) === true) continue;
        else if (mayHaveOpened(suspect, backend, leaseMs)) unnamed += 1;
      }
      counts.set(leaf, { named, unnamed });
    }
    return counts;
  }
}

/** Opened after it named its backends, and before it was bound to its floor. */
function mayHaveOpened(suspect: Suspect, { ageMs }: ShownBackend, leaseMs: number): boolean {
  if (ageMs === null) return true;
  return ageMs <= suspect.namedAgoMs + marginMs &&
    ageMs >= suspect.heardAgoMs - leaseMs - marginMs;
}

/** Asks the servers of these databases, within a few seconds. `report` is told of each that gave no answer. */
export async function lookAtBackends(
  config: Config,
  auth: BudgetAuth,
  databases: Iterable<string>,
  resolver: Resolver,
  report: (error: Error) => void,
): Promise<Answers> {
  const asked = new Map<string, Promise<Answer>>();
  const ask = (address: ServerAddress, database: DatabaseConfig): Promise<Answer> => {
    const key = addressText(address);
    const known = asked.get(key);
    if (known !== undefined) return known;
    const { user, password, dbname } = auth;
    const login = { user, password, database: dbname ?? database.dbname };
    const answer = askServer(address, login, tlsOf(config)).catch((error: Error) => {
      report(error);
      return error;
    });
    asked.set(key, answer);
    return answer;
  };
  const answers = new Map<string, readonly Answer[]>();
  await Promise.all([...databases].map(async (name) => {
    const database = lookupDatabase(config, name);
    if (database === null) return;
    try {
      const addresses = (await Promise.all(database.hosts.map((host) =>
        addressesOf(host, database.port, resolver)
      ))).flat();
      answers.set(
        name,
        await Promise.all(addresses.map((address) =>
          ask(address, database)
        )),
      );
    } catch (error) {
      report(error as Error);
    }
  }));
  return answers;
}

async function addressesOf(
  host: string,
  port: number,
  resolver: Resolver,
): Promise<ServerAddress[]> {
  if (host.startsWith("/") || host.startsWith("@")) {
    return [{ host: `${host}/.s.PGSQL.${port}`, port: 0 }];
  }
  if (isIP(host) !== 0) return [{ host, port }];
  const { addresses, reason } = await resolver.resolve(host);
  if (addresses.length === 0) throw new Error(`resolve "${host}": ${reason}`);
  return addresses.map((address) => ({ host: address, port, name: host }));
}

/** As workers have it. */
function tlsOf({ settings }: Config): ServerTls | null {
  const plan = serverTlsPlan(settings);
  return plan === null ? null : { plan, required: requiresTls(settings.serverTlsSslmode) };
}

async function askServer(
  address: ServerAddress,
  login: Login,
  tls: ServerTls | null,
): Promise<ShownBackend[]> {
  const rows = await queryOnce(address, login, sql, timeoutMs, tls);
  return rows.map(([pid, database, user, age, walSender]) => ({
    pid: Number(pid),
    database: database ?? null,
    user: user ?? "",
    isWalSender: walSender === "t",
    ageMs: age === null || age === undefined ? null : Number(age),
  }));
}
