// What is done on a server between two clients, so that nothing of the one reaches the other: what the first
// has left running is cancelled and rolled back, reset queries run, what its mode does not keep is wiped.
// Bounded in time; what does not come clean is closed.

import type { Timer } from "../../../shared/sys/mod.ts";
import { copyFailMessage, type ParsedError, syncMessage } from "../../../shared/wire/mod.ts";
import type { ClientSession } from "./client.ts";
import { failingBind } from "./prepared.ts";
import { Request } from "./requests.ts";
import { Wipe } from "./residue.ts";
import type { ServerConnection } from "./server.ts";
import type { OwnQuery } from "./server_owner.ts";
import { ServerState, statusIdle } from "./server_state.ts";
import { Tag } from "./tags.ts";

const sync = syncMessage();
const endOfCopy = copyFailMessage("client has gone");

/** What a client has left behind is stopped and rolled back in this time, or the server is closed. */
const recoverMs = 1000;
/** A query that cleans the session may take this long. */
const choreMs = 10_000;
/** Undoes what SET, SET ROLE and SET SESSION AUTHORIZATION have done. */
export const wipeSettings = "SET SESSION AUTHORIZATION DEFAULT;RESET ROLE;RESET ALL";
const wipeEverything = "DISCARD ALL";
const findLocks = "SELECT 1 FROM pg_catalog.pg_locks WHERE locktype='advisory' AND " +
  "pid=pg_catalog.pg_backend_pid() LIMIT 1";

export class Upkeep {
  readonly #server: ServerConnection;
  /** server_reset_query has to run. */
  #resetDue = false;
  #rolledBack = false;
  #timer: Timer | null = null;
  /** All it is asked is whether it answers. */
  isTest = false;

  constructor(server: ServerConnection) {
    this.#server = server;
  }

  /**
   * Its client left in the middle of something: what runs is cancelled, and rolled back. The server is
   * kept if that succeeds in time.
   */
  recover(client: ClientSession | null, reason: string): void {
    const server = this.#server;
    // A COPY fails by what is sent. If a cancel fails it before the server has read all of the client's, a Sync among
    // that ends the cycle, and what is sent here is answered by itself.
    const { copyIn } = server;
    const unsure = copyIn && (server.cancels > 0 || server.copyCancelled);
    const busy = !copyIn && server.requests.count > (server.isAsked ? 1 : 0);
    if (client === null || !client.sentWhole || unsure || (busy && server.secret === null)) {
      this.#giveUp(reason);
      return;
    }
    if (busy) server.plane.cancels.abandon(server);
    server.untie(client);
    server.move(ServerState.tested);
    this.#limit(recoverMs, reason);
    if (server.stream.paused) server.stream.resume();
    this.endInput();
    this.tidy();
  }

  /** Whether a transaction block is open, and all in it will be rolled back if its client sends nothing more. */
  get isDoomed(): boolean {
    const { status, residue } = this.#server;
    return status !== statusIdle && !residue.mayEnd && !residue.keepsEnding;
  }

  /** The server is closed. */
  end(): void {
    this.#timer?.cancel();
    this.#timer = null;
  }

  /** Closes it, and cancels what it runs. */
  #giveUp(reason: string): void {
    const server = this.#server;
    if (server.requests.count > 0) server.plane.cancels.abandon(server);
    server.close(reason);
  }

  #limit(ms: number, reason: string): void {
    this.#timer?.cancel();
    this.#timer = this.#server.plane.reactor.after(ms, () => this.#giveUp(reason));
  }

  /**
   * Says what a client that has gone has still to say: that nothing more of it comes. A Sync would
   * commit what stands before it, so something that fails goes first.
   */
  endInput(): void {
    const server = this.#server;
    const { requests, stream } = server;
    let result = 0;
    if (server.copyIn) {
      server.copyIn = false;
      result = stream.sendBytes(endOfCopy);
    }
    if (!requests.endsCycle && (requests.count > 0 || !server.synced)) {
      if (!server.skipping) {
        requests.push(Request.bind);
        stream.sendBytes(failingBind);
      }
      requests.push(Request.sync);
      server.journal.group++;
      server.skipping = false;
      result = stream.sendBytes(sync);
    }
    if (result < 0) server.onSendFailed(-result);
  }

  /** A client has given the server back. */
  onLeft(client: ClientSession): void {
    const { plane, residue } = this.#server;
    const { serverResetQuery, serverResetQueryAlways } = plane.settings;
    // At its login a client has sent nothing yet.
    const isSession = client.mode === "session" && client.login === null;
    this.#resetDue = serverResetQuery !== "" && (isSession || serverResetQueryAlways);
    if (!isSession && (client.pinned || residue.locksUnsure)) residue.wipe = Wipe.everything;
    residue.listen.forget();
    residue.settings.forget();
    residue.hears = residue.mayLock = false;
  }

  /** Without a client: does what there is to do before it is idle, one thing after the other. */
  tidy(): void {
    const server = this.#server;
    if (server.isClosed || server.requests.count > 0 || !server.synced) return;
    if (server.cancels > 0) {
      if (server.state !== ServerState.beingCanceled) server.move(ServerState.beingCanceled);
      return;
    }
    const sql = server.closeNeeded ? null : this.#chore();
    if (sql === null) {
      this.end();
      this.#rolledBack = false;
      server.residue.endCycles(true);
      server.toIdle();
      return;
    }
    if (server.state !== ServerState.tested) server.move(ServerState.tested);
    server.ask(sql, this.#tidying);
  }

  /** The next query that brings the session nearer to what it was after the login; null = it is. */
  #chore(): string | null {
    const { status, residue, session, plane } = this.#server;
    if (status !== statusIdle) {
      if (this.#rolledBack) this.#server.closeNeeded = true;
      this.#rolledBack = true;
      return "ROLLBACK";
    }
    let sql: string;
    if (this.#resetDue) {
      this.#resetDue = false;
      sql = plane.settings.serverResetQuery;
      if (sql === wipeEverything) residue.clear();
    } else if (residue.due !== Wipe.nothing) {
      sql = residue.due === Wipe.everything ? wipeEverything : wipeSettings;
      residue.clear();
    } else {
      return null;
    }
    session.forget(sql === wipeEverything || sql === wipeSettings);
    this.#limit(choreMs, "reset query failed: timeout");
    return sql;
  }

  readonly #tidying: OwnQuery = {
    onTag: null,
    onEnd: (failure) => {
      if (failure !== null) this.#server.close(`reset query failed: ${failure.message}`);
    },
  };

  /** Whether its client, which has used session locks, has any left. */
  checkLocks(client: ClientSession): void {
    const server = this.#server;
    let locked = false;
    // Nothing of its next transaction may come before what this one has left is wiped.
    client.holdInput();
    server.ask(findLocks, {
      onTag: (tag) => locked = tag === Tag.oneRow,
      onEnd: (failure) => {
        // Who has left meanwhile has left it unsure.
        if (server.client !== client) return;
        server.residue.locksUnsure = false;
        client.pin(locked || failure !== null);
        client.resumeLinked();
      },
    });
  }

  /** Asks an idle server for an answer; closes it if there is none. */
  test(sql: string): void {
    const server = this.#server;
    server.move(ServerState.tested);
    this.isTest = true;
    this.#limit(choreMs, "test query failed: timeout");
    server.ask(sql, {
      onTag: null,
      onEnd: (failure) => {
        this.isTest = false;
        if (failure !== null) server.close(`test query failed: ${failure.message}`);
      },
    });
  }

  /** Runs connect_query before the first client gets the server; closes it if that fails. */
  prime(sql: string, onFailed: (failure: ParsedError) => void): void {
    const what = "exec_on_connect query failed";
    this.#server.move(ServerState.tested);
    this.#limit(choreMs, `${what}: timeout`);
    this.#server.ask(sql, {
      onTag: null,
      onEnd: (failure) => {
        if (failure === null) return;
        onFailed(failure);
        this.#server.close(`${what}: ${failure.message}`);
      },
    });
  }
}
