// Every subject of the mesh, in one place: what is on it, who sends it, how often, and what happens
// when it is lost; the payloads of budgets and of the store are in files of their own. Checks are
// written by hand and build a clean copy: unknown fields are left behind, so that a newer sender may
// add some. Pure.
// Invariants: all subjects begin with `pgweir.<mesh>.`; a cancel key is only ever in a payload.

import type { Answer } from "../console/mod.ts";
import type { Grant, Report } from "../ledger/mod.ts";
import {
  type BudgetBackends,
  budgetBackendsPayload,
  budgetGrantPayload,
  type BudgetLeader,
  budgetLeaderPayload,
  budgetReportPayload,
  type GoneWorker,
  goneWorkerPayload,
  heardPayload,
} from "./budget_messages.ts";
import { isCount, isOneOf, isText, isWorkerId } from "./checks.ts";
import { type GroupUses, groupUsesPayload, groupUsesRequestPayload } from "./group_uses.ts";
import {
  consoleAnswerPayload,
  type ConsoleRequest,
  consoleRequestPayload,
  type WorkerTask,
  workerTaskPayload,
  type WorkerTaskReply,
  workerTaskReplyPayload,
} from "./console_messages.ts";
import { BusError } from "./errors.ts";
import {
  type GroupBackends,
  groupBackendsPayload,
  type GroupMemory,
  groupMemoryPayload,
} from "./group_messages.ts";
import {
  type OverloadDecision,
  overloadDecisionPayload,
  type OverloadWarnings,
  overloadWarningsPayload,
} from "./overload_messages.ts";
import type { Payload } from "./payload.ts";
import {
  type StoreReply,
  storeReplyPayload,
  type StoreRequest,
  storeRequestPayload,
} from "./store_messages.ts";

/** What can be subscribed to: one subject, or a pattern with wildcards. */
export interface Pattern<M, R = null> {
  readonly subject: string;
  readonly message: Payload<M>;
  /** The kind of answer a request on this subject gets; null for what nobody answers. */
  readonly reply: Payload<R> | null;
  /** Whether this message may come from this subject; one that may not is dropped as malformed. */
  readonly accepts?: (subject: string, message: M) => boolean;
  /**
   * For requests that do harm when they are carried out late: one that was asked for longer ago is
   * dropped. It costs a round trip more, and such a subject takes requests only.
   */
  readonly freshMs?: number;
}

/** One subject, without wildcards: can be published to. */
export interface Subject<M, R = null> extends Pattern<M, R> {
  readonly wildcard: false;
}

export type WorkerState = "starting" | "ready" | "draining" | "gone";

/** What a worker says about itself. */
export interface Presence {
  /** Worker id, unique in the mesh. */
  readonly id: number;
  /** Differs at each start of the worker. */
  readonly incarnation: number;
  readonly host: string;
  /** Differs at each boot of the host; "" from a worker of a version that did not say. */
  readonly boot: string;
  readonly pid: number;
  readonly state: WorkerState;
  /** Where it listens: `127.0.0.1:6432`, `[::1]:6432`, `/tmp/.s.PGSQL.6432`. */
  readonly addresses: readonly string[];
  /** Client connections now. */
  readonly clients: number;
  /** Server connections now. */
  readonly servers: number;
  /** Which configuration it goes by: equal on all workers of a host that go by the same reading of it. */
  readonly configMark: string;
  /** `bun 1.4.5`. */
  readonly runtime: string;
  /** The name of its supervisor on the bus; "" or none: it has none, or its version does not say. */
  readonly supervisor?: string;
}

/** A cancel request that reached a worker which does not own its key. */
export interface CancelRequest {
  /** The process id of the client's cancel key, as an unsigned 32-bit number. */
  readonly processId: number;
  /** The secret of the cancel key: 4 bytes in protocol 3.0, up to 256 in 3.2. Never log it. */
  readonly secret: Uint8Array;
  /** The worker that got the request from the client. */
  readonly source: number;
}

/**
 * sent: the owner passed the cancel on to the server. unknown: the owner has no such key. idle: the
 * client runs nothing now. busy: the owner's bound on cancel connections is reached.
 */
export type CancelOutcome = "sent" | "unknown" | "idle" | "busy";

export interface CancelReply {
  readonly outcome: CancelOutcome;
}

const maxAddresses = 64;
const maxAddressCharacters = 300;
const maxHostCharacters = 255;
const maxWordCharacters = 128;
const cancelFreshMs = 2000;
const consoleFreshMs = 3000;
const minSecretBytes = 4;
const maxSecretBytes = 256;

/** Tables or views of a database, by the name clients use, were changed by a client of a worker. */
export interface TableChange {
  readonly worker: number;
  readonly database: string;
}

const maxDatabaseCharacters = 512;

export const tableChangePayload: Payload<TableChange> = {
  name: "table change",
  version: 1,
  check({ worker, database }) {
    return isWorkerId(worker) && isText(database, maxDatabaseCharacters)
      ? { worker, database }
      : null;
  },
};

const workerStates: readonly WorkerState[] = ["starting", "ready", "draining", "gone"];
const cancelOutcomes: readonly CancelOutcome[] = ["sent", "unknown", "idle", "busy"];

export const presencePayload: Payload<Presence> = {
  name: "presence",
  version: 1,
  check(raw) {
    const {
      id,
      incarnation,
      host,
      boot = "",
      pid,
      state,
      clients,
      servers,
      configMark,
      runtime,
      supervisor = "",
    } = raw;
    const addresses = checkAddresses(raw.addresses);
    if (
      !isWorkerId(id) || !isCount(incarnation) || !isText(host, maxHostCharacters) ||
      !isText(boot, maxWordCharacters) || !isCount(pid) || !isOneOf(state, workerStates) ||
      addresses === null ||
      !isCount(clients) || !isCount(servers) || !isText(configMark, maxWordCharacters) ||
      !isText(runtime, maxWordCharacters) || !isText(supervisor, maxWordCharacters)
    ) return null;
    return {
      id,
      incarnation,
      host,
      boot,
      pid,
      state,
      addresses,
      clients,
      servers,
      configMark,
      runtime,
      supervisor,
    };
  },
};

function checkAddresses(raw: unknown): string[] | null {
  if (!Array.isArray(raw) || raw.length > maxAddresses) return null;
  return raw.every((address) => isText(address, maxAddressCharacters)) ? [...raw] : null;
}

export const cancelPayload: Payload<CancelRequest> = {
  name: "cancel",
  version: 1,
  check({ processId, secret, source }) {
    if (
      !isCount(processId, 0xffff_ffff) || !(secret instanceof Uint8Array) ||
      secret.length < minSecretBytes || secret.length > maxSecretBytes || !isWorkerId(source)
    ) return null;
    // A copy: what was decoded is a view of the client's receive buffer.
    return { processId, secret: Uint8Array.from(secret), source };
  },
};

export const cancelReplyPayload: Payload<CancelReply> = {
  name: "cancel reply",
  version: 1,
  check({ outcome }) {
    return isOneOf(outcome, cancelOutcomes) ? { outcome } : null;
  },
};

/** Names that become a part of a subject: meshes and clients of the bus. */
const token = /^[A-Za-z0-9_-]{1,32}$/;

export function isMeshName(value: unknown): value is string {
  return typeof value === "string" && token.test(value);
}

function checkedToken(what: string, value: string): string {
  if (token.test(value)) return value;
  throw new BusError(
    "INVALID",
    `build subject: ${what} is ${JSON.stringify(value)}, ` +
      "wanted 1 to 32 letters, digits, underscores or hyphens",
  );
}

function checkedWorkerId(id: number): number {
  if (isWorkerId(id)) return id;
  throw new BusError(
    "INVALID",
    `build subject: worker id is "${id}", wanted 0 to 32767`,
  );
}

/** What a client of the bus may do: patterns of subjects. */
export interface Rights {
  readonly publish: readonly string[];
  readonly subscribe: readonly string[];
}

export interface MeshSubjects {
  /**
   * `presence.<worker>`: a worker announces itself to everybody, at start, each second, when its
   * state changes and after a reconnect. Lost: the next one says the same; a worker is suspect when
   * silent for 3 s and counted as silent after 10 s.
   */
  presence(workerId: number): Subject<Presence>;
  /** `presence.*`: the presence of all workers. One under another worker's subject is dropped. */
  readonly allPresence: Pattern<Presence>;
  /**
   * `cancel.<owner>`: the worker that got a CancelRequest asks the owner of its key to carry it out,
   * once per request of a client. Lost, or no answer: counted, logged and dropped; the client sees
   * what it always sees, a closed connection, and may cancel again. One that comes late, as when its
   * owner was stopped for a while, is dropped: the client may run another query by then.
   */
  cancel(ownerId: number): Subject<CancelRequest, CancelReply>;
  /**
   * `budget.report.<worker>`: a worker tells the coordinator what it holds and wants, on change at
   * most every 50 ms, each second, and in full after a reconnect. Lost: the next one says more.
   */
  budgetReport(workerId: number): Subject<Report>;
  /** `budget.report.*`: those of all workers. One under another worker's subject is dropped. */
  readonly allBudgetReports: Pattern<Report>;
  /**
   * `budget.grant.<worker>`: the leading coordinator answers each report, and tells a worker what
   * changed. Lost: said again in the answers until the worker's reports show it.
   */
  budgetGrant(workerId: number): Subject<Grant>;
  /**
   * `budget.leader`: the leading coordinator announces itself when it is elected, and each second.
   * Lost: the next one says the same.
   */
  readonly budgetLeader: Subject<BudgetLeader>;
  /**
   * `budget.gone`: a supervisor reports a worker whose process has ended; only the leading
   * coordinator listens and answers. Lost, or no answer: asked again until there is one.
   */
  readonly budgetGone: Subject<GoneWorker, Record<never, never>>;
  /**
   * `budget.backends.<worker>`: a worker names its server connections, on change at most each
   * second. Lost: the next one says the same; until then the coordinator counts what it knew.
   */
  budgetBackends(workerId: number): Subject<BudgetBackends>;
  /** `budget.backends.*`: those of all workers. One under another worker's subject is dropped. */
  readonly allBudgetBackends: Pattern<BudgetBackends>;
  /**
   * `console.host.<supervisor>`: a worker has a command of its console carried out by all workers of a host, and
   * asks what is left of it. Lost, or no answer: the operator is told which workers did not answer. One that comes
   * late is dropped: the operator has been told so.
   */
  consoleHost(supervisor: string): Subject<ConsoleRequest, Answer>;
  /**
   * `console.worker.<worker>`: a supervisor has a worker do its part of a command. Lost, or no answer: it is named
   * to the operator; what the command makes of the pooler reaches it otherwise, too.
   */
  consoleWorker(workerId: number): Subject<WorkerTask, WorkerTaskReply>;
  /**
   * `groups.uses.<worker>`: a worker whose console shows resource groups asks another one what it has in use of them. Lost,
   * or no answer: it is named to the operator, and what it has is not in the sums.
   */
  groupUses(workerId: number): Subject<Record<never, never>, GroupUses>;
  /**
   * `tables.<worker>`: a client of a worker has changed tables or views of a database, told at once and then at most
   * every 50 ms. Lost: who prepares a statement on another worker may get "cached plan must not change result type",
   * once for each server connection.
   */
  tableChanges(workerId: number): Subject<TableChange>;
  /** `tables.*`: those of all workers. One under another worker's subject is dropped. */
  readonly allTableChanges: Pattern<TableChange>;
  /**
   * `overload.host.<supervisor>`: the monitor of a supervisor's workers tells them, each overload_interval, how
   * much of new work is to be refused. Lost: the next one says what holds then; after three intervals
   * without one nothing is refused.
   */
  overloadHost(supervisor: string): Subject<OverloadDecision>;
  /** `overload.database.<monitor>`: the same, from a monitor on a database host, for all workers. */
  overloadDatabase(monitor: string): Subject<OverloadDecision>;
  /** `overload.database.*`: those of all databases. */
  readonly allOverloadDatabases: Pattern<OverloadDecision>;
  /**
   * `overload.warnings.<monitor>`: its warnings, whenever one is raised or cleared, and every five seconds.
   * Lost: the next one says the same; a monitor that is silent for 15 s is forgotten.
   */
  overloadWarnings(monitor: string): Subject<OverloadWarnings>;
  /** `overload.warnings.*`: those of all monitors. One under another monitor's subject is dropped. */
  readonly allOverloadWarnings: Pattern<OverloadWarnings>;
  /**
   * `groups.backends.<worker>`: a worker names the backends of its resource groups to the monitors of database hosts,
   * when that changes at most each overload_interval, and every two seconds. Lost: the next one says all again; a
   * worker that is silent for 10 s has no backends any more.
   */
  groupBackends(workerId: number): Subject<GroupBackends>;
  /** `groups.backends.*`: those of all workers. One under another worker's subject is dropped. */
  readonly allGroupBackends: Pattern<GroupBackends>;
  /**
   * `groups.memory.<worker>`: a monitor on a database host tells each worker that has named backends there, each
   * overload_interval, what they were measured to have and what the groups have elsewhere. Lost: the next one says
   * what is then; after three intervals without one a worker goes by estimates.
   */
  groupMemory(workerId: number): Subject<GroupMemory>;
  /**
   * `store`: on the embedded bus, requests to the store that its supervisor keeps. Lost, or no
   * answer: the caller is told that it does not know.
   */
  readonly store: Subject<StoreRequest, StoreReply>;
  /** `inbox.<client>`: the prefix of the subjects a client gets its answers on. */
  inboxPrefix(client: string): string;
  /** The least rights a worker needs; `client` is the name it connects with. */
  workerRights(workerId: number, client: string): Rights;
  /** The least rights a coordinator needs, beside `storeRights` where JetStream keeps the store. */
  coordinatorRights(client: string): Rights;
  /** The least rights the overload monitor of a supervisor's workers needs; `client`: its name. */
  monitorRights(supervisor: string, client: string): Rights;
  /** The bucket, as NATS names it, that the store is kept in. */
  readonly bucket: string;
  /** What `openStore()` needs on a nats-server. */
  readonly storeRights: Rights;
}

type Accepts<M> = (subject: string, message: M) => boolean;

/** One that nobody answers. */
function pattern<M>(subject: string, message: Payload<M>, accepts: Accepts<M>): Pattern<M> {
  return { subject, message, reply: null, accepts };
}

/** One that nobody answers. */
function single<M>(subject: string, message: Payload<M>, accepts?: Accepts<M>): Subject<M> {
  const more = accepts === undefined ? {} : { accepts };
  return { subject, message, reply: null, wildcard: false, ...more };
}

/** The subjects of one mesh; throws `INVALID` for a name that cannot be a part of a subject. */
export function meshSubjects(mesh: string): MeshSubjects {
  const root = `pgweir.${checkedToken("mesh", mesh)}`;
  const under = (kind: string) => (id: number | "*"): string => `${root}.${kind}.${id}`;
  const presenceOf = under("presence");
  const cancelOf = under("cancel");
  const reportOf = under("budget.report");
  const grantOf = under("budget.grant");
  const backendsOf = under("budget.backends");
  const consoleWorkerOf = under("console.worker");
  const tablesOf = under("tables");
  const groupsOf = under("groups.uses");
  const groupBackendsOf = under("groups.backends");
  const groupMemoryOf = under("groups.memory");
  const overloadHostOf = (supervisor: string): string =>
    `${root}.overload.host.${checkedToken("supervisor", supervisor)}`;
  const overloadDatabaseOf = (monitor: string): string => `${root}.overload.database.${monitor}`;
  const overloadWarningsOf = (monitor: string): string => `${root}.overload.warnings.${monitor}`;
  const leader = `${root}.budget.leader`;
  const gone = `${root}.budget.gone`;
  const store = `${root}.store`;
  const bucket = `pgweir_${mesh}`;
  const isOfWorker =
    (subjectOf: (id: number) => string) =>
    (subject: string, message: { worker: number }): boolean =>
      subject === subjectOf(message.worker);
  const speaksForItself = (subject: string, presence: Presence): boolean =>
    subject === presenceOf(presence.id);
  const isOfHost = (subject: string, { supervisor }: OverloadDecision): boolean =>
    supervisor !== "" && subject === `${root}.overload.host.${supervisor}`;
  const isOfDatabase = (subject: string, { database, monitor }: OverloadDecision): boolean =>
    database !== "" && subject === overloadDatabaseOf(monitor);
  const isOfWarner = (subject: string, { monitor }: OverloadWarnings): boolean =>
    subject === overloadWarningsOf(monitor);
  const inboxPrefix = (client: string): string =>
    `${root}.inbox.${checkedToken("client name", client)}`;
  return {
    presence: (workerId) =>
      single(presenceOf(checkedWorkerId(workerId)), presencePayload, speaksForItself),
    allPresence: pattern(presenceOf("*"), presencePayload, speaksForItself),
    cancel: (ownerId) => ({
      subject: cancelOf(checkedWorkerId(ownerId)),
      message: cancelPayload,
      reply: cancelReplyPayload,
      freshMs: cancelFreshMs,
      wildcard: false,
    }),
    budgetReport: (workerId) =>
      single(reportOf(checkedWorkerId(workerId)), budgetReportPayload, isOfWorker(reportOf)),
    allBudgetReports: pattern(reportOf("*"), budgetReportPayload, isOfWorker(reportOf)),
    budgetGrant: (workerId) =>
      single(grantOf(checkedWorkerId(workerId)), budgetGrantPayload, isOfWorker(grantOf)),
    budgetLeader: single(leader, budgetLeaderPayload),
    budgetGone: {
      subject: gone,
      message: goneWorkerPayload,
      reply: heardPayload,
      wildcard: false,
    },
    budgetBackends: (workerId) =>
      single(backendsOf(checkedWorkerId(workerId)), budgetBackendsPayload, isOfWorker(backendsOf)),
    allBudgetBackends: pattern(backendsOf("*"), budgetBackendsPayload, isOfWorker(backendsOf)),
    consoleHost: (supervisor) => ({
      subject: `${root}.console.host.${checkedToken("supervisor", supervisor)}`,
      message: consoleRequestPayload,
      reply: consoleAnswerPayload,
      freshMs: consoleFreshMs,
      wildcard: false,
    }),
    consoleWorker: (workerId) => ({
      subject: consoleWorkerOf(checkedWorkerId(workerId)),
      message: workerTaskPayload,
      reply: workerTaskReplyPayload,
      freshMs: consoleFreshMs,
      wildcard: false,
    }),
    groupUses: (workerId) => ({
      subject: groupsOf(checkedWorkerId(workerId)),
      message: groupUsesRequestPayload,
      reply: groupUsesPayload,
      wildcard: false,
    }),
    tableChanges: (workerId) =>
      single(tablesOf(checkedWorkerId(workerId)), tableChangePayload, isOfWorker(tablesOf)),
    allTableChanges: pattern(tablesOf("*"), tableChangePayload, isOfWorker(tablesOf)),
    overloadHost: (supervisor) =>
      single(overloadHostOf(supervisor), overloadDecisionPayload, isOfHost),
    overloadDatabase: (monitor) =>
      single(
        overloadDatabaseOf(checkedToken("monitor", monitor)),
        overloadDecisionPayload,
        isOfDatabase,
      ),
    allOverloadDatabases: pattern(overloadDatabaseOf("*"), overloadDecisionPayload, isOfDatabase),
    overloadWarnings: (monitor) =>
      single(
        overloadWarningsOf(checkedToken("monitor", monitor)),
        overloadWarningsPayload,
        isOfWarner,
      ),
    allOverloadWarnings: pattern(overloadWarningsOf("*"), overloadWarningsPayload, isOfWarner),
    groupBackends: (workerId) =>
      single(
        groupBackendsOf(checkedWorkerId(workerId)),
        groupBackendsPayload,
        isOfWorker(groupBackendsOf),
      ),
    allGroupBackends: pattern(
      groupBackendsOf("*"),
      groupBackendsPayload,
      isOfWorker(groupBackendsOf),
    ),
    groupMemory: (workerId) =>
      single(
        groupMemoryOf(checkedWorkerId(workerId)),
        groupMemoryPayload,
        isOfWorker(groupMemoryOf),
      ),
    store: {
      subject: store,
      message: storeRequestPayload,
      reply: storeReplyPayload,
      wildcard: false,
    },
    inboxPrefix,
    workerRights: (workerId, client) => ({
      publish: [
        presenceOf(checkedWorkerId(workerId)),
        cancelOf("*"),
        reportOf(workerId),
        backendsOf(workerId),
        tablesOf(workerId),
        groupsOf("*"),
        groupBackendsOf(workerId),
        `${root}.console.host.*`,
        `${root}.inbox.>`,
      ],
      subscribe: [
        presenceOf("*"),
        cancelOf(workerId),
        grantOf(workerId),
        consoleWorkerOf(workerId),
        groupsOf(workerId),
        tablesOf("*"),
        `${root}.overload.host.*`,
        overloadDatabaseOf("*"),
        overloadWarningsOf("*"),
        groupMemoryOf(workerId),
        leader,
        `${inboxPrefix(client)}.>`,
      ],
    }),
    coordinatorRights: (client) => ({
      publish: [grantOf("*"), leader, store, `${root}.inbox.>`],
      subscribe: [
        presenceOf("*"),
        reportOf("*"),
        backendsOf("*"),
        gone,
        leader,
        `${inboxPrefix(client)}.>`,
      ],
    }),
    monitorRights: (supervisor, client) => ({
      publish: [
        overloadHostOf(supervisor),
        overloadWarningsOf(checkedToken("client name", client)),
      ],
      subscribe: [presenceOf("*"), `${inboxPrefix(client)}.>`],
    }),
    bucket,
    storeRights: {
      publish: [
        "$JS.API.INFO",
        ...["INFO", "CREATE", "UPDATE", "PURGE", "DELETE", "MSG.GET"].map((call) =>
          `$JS.API.STREAM.${call}.KV_${bucket}`
        ),
        `$KV.${bucket}.>`,
      ],
      subscribe: [],
    },
  };
}
