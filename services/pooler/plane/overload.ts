// Refuses new work while something is overloaded: transactions where they begin, connections before anything is spent
// on their login. Which probability holds is shedding.ts; here is whom it concerns, what they are answered, and the
// counts. A transaction that runs is never touched, and nothing here is called while all probabilities are 0, but
// for clients whose BEGIN was refused.
// Bounds: what is counted is named by the entries of [databases] and [groups] only, so strangers can't add to it.

import { entryNameOf, lookupDatabase, type OverloadBounds } from "../../../shared/config/mod.ts";
import type { Group } from "../../../shared/groups/mod.ts";
import type { OverloadDecision, OverloadWarnings } from "../../../shared/bus/mod.ts";
import { OwnBounds } from "../../../shared/overload/mod.ts";
import { Backend, Frontend } from "../../../shared/wire/mod.ts";
import type { Timer } from "../../../shared/sys/mod.ts";
import type { ClientSession } from "./client.ts";
import { EventLoopLag } from "./event_loop_lag.ts";
import type { Plane } from "./plane.ts";
import type { Pool } from "./pool.ts";
import { zeroAt } from "./prepared.ts";
import { type Answers, answersOf, overloaded, readyIdle, type Refusal } from "./refusals.ts";
import { answersBehind, endsTransaction, holdBack } from "./refused_begin.ts";
import type { ServerConnection } from "./server.ts";
import { type Risk, Shedding, type Source, type Work } from "./shedding.ts";

/** A monitor says its warnings every five seconds. */
const warningsValidMs = 15_000;
/** An interval and a sweep: until the next one is there. */
const lagSlackMs = 1000;

/** Hosts of monitors may come and go. */
const countsMax = 5000;

const closeComplete = Uint8Array.of(Backend.closeComplete, 0, 0, 0, 4);

/** What was refused for one source to the clients of one database, and of one group that has bounds of its own. */
export interface Shed {
  readonly scope: Source["scope"];
  readonly name: string;
  readonly database: string;
  /** "": all others. */
  readonly group: string;
  transactions: number;
  connections: number;
}

/** What holds for new transactions of one database and group, and its answers once there was a refusal. */
interface Judgement {
  readonly risk: Risk | null;
  answers: Answers | null;
}

export class Overload {
  readonly shedding: Shedding;
  readonly shed = new Map<string, Shed>();
  /** Of each monitor that was heard of lately. */
  readonly warnings = new Map<
    string,
    { readonly said: OverloadWarnings; readonly until: number }
  >();
  readonly #plane: Plane;
  /** null until there is a timer. */
  #lag: EventLoopLag | null = null;
  #lagTakenAt: number;
  /** Bounds of databases and groups. */
  #own: OwnBounds;
  /** What was made of all that is known, by database and group, until something else is. */
  readonly #judged = new Map<string, Map<string | null, Judgement>>();
  /** What was said in the log: new work is refused. */
  #isShedding = false;
  #shedBefore = 0;

  constructor(plane: Plane) {
    this.#plane = plane;
    this.shedding = new Shedding(Math.random);
    this.#own = new OwnBounds(plane.config);
    this.#lagTakenAt = plane.reactor.now;
  }

  // --- what is known

  onDecision(decision: OverloadDecision): void {
    // The last words of a monitor that is not wanted any more.
    if (decision.database === "" && !this.#own.isMonitored) return;
    this.shedding.decide(decision, this.#plane.reactor.now);
    this.#apply();
  }

  onWarnings(said: OverloadWarnings): void {
    this.warnings.set(said.monitor, { said, until: this.#plane.reactor.now + warningsValidMs });
  }

  /** Pools and exemptions may be others. */
  onConfig(): void {
    this.#own = new OwnBounds(this.#plane.config);
    if (!this.#own.isMonitored) this.shedding.forgetHost();
    this.#apply();
  }

  /** Called by a timer: how late that comes is the event loop's lag. */
  sweep(now: number, { dueMs, intervalMs }: Timer): void {
    this.#lag ??= new EventLoopLag(intervalMs, now);
    this.#lag.tick(now, dueMs);
    for (const [monitor, { until }] of this.warnings) {
      if (now >= until) this.warnings.delete(monitor);
    }
    const { overloadIntervalMs, minEventLoopLagToThrowMs, maxEventLoopLagToThrowMs } =
      this.#plane.settings;
    let isNew = this.shedding.expire(now);
    if (now - this.#lagTakenAt >= overloadIntervalMs) {
      this.#lagTakenAt = now;
      const bounds = { min: minEventLoopLagToThrowMs, max: maxEventLoopLagToThrowMs };
      const lag = this.#lag.take();
      const { limitsLag } = this.#own;
      const validMs = overloadIntervalMs + lagSlackMs;
      if (this.shedding.lag(lag, bounds, limitsLag, now, validMs)) isNew = true;
    }
    if (isNew) this.#apply();
  }

  /** The highest probability that a new transaction is refused to any client of a database. */
  probabilityOf(database: string): number {
    return this.#strongestOf(database)?.share.probability ?? 0;
  }

  #strongestOf(database: string): Risk | null {
    if (this.shedding.isUnwatched || this.isExempt(database)) return null;
    let found = this.#judge(database, null).risk;
    for (const group of this.#own.groups) {
      const { risk } = this.#judge(database, group);
      if (risk !== null && risk.share.probability > (found?.share.probability ?? 0)) found = risk;
    }
    return found;
  }

  #judge(database: string, group: string | null): Judgement {
    let judged = this.#judged.get(database);
    if (judged === undefined) this.#judged.set(database, judged = new Map());
    let judgement = judged.get(group);
    if (judgement === undefined) {
      const own = this.boundsOf(database, group);
      const entry = entryNameOf(this.#plane.config, database);
      const risk = this.shedding.risk("transactions", database, entry, own);
      judged.set(group, judgement = { risk, answers: null });
    }
    return judgement;
  }

  #apply(): void {
    this.#judged.clear();
    let strongest: Risk | null = null;
    for (const pool of this.#plane.pools.values()) {
      const risk = this.#strongestOf(pool.database.name);
      pool.shedding = risk?.share.probability ?? 0;
      if (pool.shedding > (strongest?.share.probability ?? 0)) strongest = risk;
    }
    this.#tellLog(
      strongest ?? this.shedding.strongest("transactions") ??
        this.shedding.strongest("connections"),
    );
  }

  #tellLog(strongest: Risk | null): void {
    if ((strongest !== null) === this.#isShedding) return;
    this.#isShedding = strongest !== null;
    const shed = [...this.shed.values()].reduce(
      (sum, { transactions, connections }) => sum + transactions + connections,
      0,
    );
    if (strongest !== null) {
      const { share, source, value } = strongest;
      const reason = source.scope === "worker"
        ? `${source.reason} of ${value.toFixed(0)} ms`
        : source.reason;
      const where = source.database ?? (source.name === "" ? "this worker" : source.name);
      this.#plane.control.log(
        "warning",
        `overload of ${where}: new work is refused with probability ${
          share.probability.toFixed(2)
        }: ${reason}`,
      );
    } else {
      const count = shed - this.#shedBefore;
      this.#plane.control.log("info", `overload is over: ${count} refused`);
    }
    this.#shedBefore = shed;
  }

  // --- whom it concerns

  /** Those that clients of a database and a group have for themselves; null: those of the settings. */
  boundsOf(database: string, group: string | null): OverloadBounds | null {
    return this.#own.of(database, group);
  }

  /** The groups that have bounds of their own, or of a group above. */
  get boundGroups(): readonly string[] {
    return this.#own.groups;
  }

  /** Whether nothing is refused to clients of a database. */
  isExempt(database: string): boolean {
    return lookupDatabase(this.#plane.config, database)?.shed === "never";
  }

  #isExemptUser(user: string): boolean {
    return this.#plane.config.users.get(user)?.shed === "never";
  }

  // --- transactions

  /**
   * A client without a server sends the message [at, next), which would get one. True: it was answered, and nothing
   * of it goes to a server.
   */
  refuses(client: ClientSession, at: number, next: number, end: number): boolean {
    const { bytes } = this.#plane.arena;
    if (bytes[at] === Frontend.close && next <= end && this.#closes(client, at, next)) return true;
    const answers = this.#draw(client, at, next, end);
    if (answers === null) return false;
    const isWhole = bytes[at] === Frontend.query || bytes[at] === Frontend.functionCall;
    client.skipsToSync = !isWhole;
    client.stream.sendBytes(isWhole ? answers.whole : answers.error);
    return true;
  }

  /**
   * The same where the client has a server, on which nothing is under way and no transaction is open; it hears nothing
   * of what is refused. When nothing is refused any more it is the server that answers the Sync. Who has a session
   * lock may need any statement to let go of it.
   */
  refusesKept(
    client: ClientSession,
    server: ServerConnection,
    at: number,
    next: number,
    end: number,
  ): boolean {
    const type = this.#plane.arena.bytes[at];
    if (server.skipping) {
      if (type === Frontend.sync) {
        server.skipping = false;
        client.stream.sendBytes(readyIdle);
      }
      return true;
    }
    const { residue } = server;
    if (client.pinned || residue.mayLock) {
      // Behind what is let in PostgreSQL is asked for its locks: with one it stays pinned. What a statement with a name
      // does is not known here.
      if (residue.mayLock || type === Frontend.bind) residue.locksUnsure = true;
      residue.mayLock = false;
      return false;
    }
    switch (type) {
      case Frontend.query:
      case Frontend.functionCall: {
        const answers = this.#draw(client, at, next, end);
        if (answers === null) return false;
        client.stream.sendBytes(answers.whole);
        return true;
      }
      case Frontend.parse:
      case Frontend.bind:
      case Frontend.execute:
      case Frontend.describe: {
        const answers = this.#draw(client, at, next, end);
        if (answers === null) return false;
        client.stream.sendBytes(answers.error);
        server.skipping = true;
        return true;
      }
      default:
        return client.behind !== null &&
          this.#refusesRest(client, server, at, next < end ? next : end);
    }
  }

  /**
   * Behind a BEGIN that was refused the server gets none of what else would be passed on: what came behind that before
   * its answer would go with it.
   */
  #refusesRest(
    client: ClientSession,
    server: ServerConnection,
    at: number,
    limit: number,
  ): boolean {
    switch (this.#plane.arena.bytes[at]) {
      case Frontend.sync:
        client.stream.sendBytes(readyIdle);
        return true;
      case Frontend.close: {
        const answers = answersBehind(client, at, limit);
        if (answers === null) return false;
        client.stream.sendBytes(answers.error);
        server.skipping = true;
        return true;
      }
      case Frontend.copyData:
      case Frontend.copyDone:
      case Frontend.copyFail:
        return true;
      default:
        return false;
    }
  }

  #draw(client: ClientSession, at: number, next: number, end: number): Answers | null {
    const limit = next < end ? next : end;
    const behind = answersBehind(client, at, limit);
    if (behind !== null) return behind;
    const { shedding, database: { name } } = client.pool as Pool;
    if (shedding === 0) return null;
    if (this.#isExemptUser(client.user) || endsTransaction(client, at, limit)) return null;
    const group = this.#plane.admission.groupOf(client, at, limit);
    if (group?.settings.shed === "never") return null;
    const judgement = this.#judge(name, group?.name ?? null);
    const { risk } = judgement;
    if (risk === null || !this.shedding.refuses(risk.share.probability)) return null;
    this.#count("transactions", risk.source, name, group);
    const { overloadSqlstate } = this.#plane.settings;
    judgement.answers ??= answersOf(overloaded("transactions", risk, overloadSqlstate));
    holdBack(client, this.#plane.arena.bytes, at, limit, judgement.answers.refusal);
    return judgement.answers;
  }

  /**
   * A Close begins no transaction, and is not to be lost: the client's name goes. Whether it is done; without a server
   * there is nothing else to close.
   */
  #closes(client: ClientSession, at: number, next: number): boolean {
    if (!client.tracksStatements) return false;
    const { bytes } = this.#plane.arena;
    if (zeroAt(bytes, at + 6, next) !== next - 1) return false;
    const isStatement = bytes[at + 5] === 0x53 && next - 1 > at + 6;
    const entry = isStatement ? client.names?.get(bytes, at + 6, next - 1) ?? null : null;
    if (entry !== null) client.names?.remove(entry);
    client.stream.sendBytes(closeComplete);
    return true;
  }

  // --- connections

  /** Why a client that has sent its startup packet is not let in; null = it goes on. */
  loginRefusal(client: ClientSession): Refusal | null {
    const { database: asked, user } = client;
    if (this.shedding.isUnwatched) return null;
    const { admission, config, strangers } = this.#plane;
    // Nobody is to learn by it which databases exist.
    const database = lookupDatabase(config, asked) === null
      ? strangers.standIn(asked, [...config.databases.keys()]) ?? asked
      : asked;
    if (this.isExempt(database) || this.#isExemptUser(user)) return null;
    const group = admission.groupAtLogin(client);
    if (group?.settings.shed === "never") return null;
    const own = this.boundsOf(database, group?.name ?? null);
    const entry = entryNameOf(this.#plane.config, database);
    const risk = this.shedding.risk("connections", database, entry, own);
    if (risk === null || !this.shedding.refuses(risk.share.probability)) return null;
    this.#count("connections", risk.source, database, group);
    return overloaded("connections", risk, "57P03");
  }

  #count(work: Work, { scope, name }: Source, asked: string, of: Group | null): void {
    const database = this.#plane.config.databases.has(asked) ? asked : "*";
    const group = of !== null && this.#own.has(of.name) ? of.name : "";
    const key = `${scope}\0${name}\0${database}\0${group}`;
    let shed = this.shed.get(key);
    if (shed === undefined) {
      if (this.shed.size >= countsMax) return;
      this.shed.set(key, shed = { scope, name, database, group, transactions: 0, connections: 0 });
    }
    shed[work]++;
  }
}
