// A client of the admin console (database `pgbouncer`): ties the conversation to the client's socket
// and to the plane it shows. Cold code on the thread that moves bytes, so it works in bounded turns,
// lets the loop run between two of them, and makes nothing that the client has not taken yet.

import process from "node:process";
import {
  errnoText,
  localAddress,
  peerCredentials,
  runtimeName,
  runtimeVersion,
} from "../../../shared/sys/mod.ts";
import {
  backendKeyData,
  concatBytes,
  parameterStatus,
  readyForQuery,
} from "../../../shared/wire/mod.ts";
import type { Outcome } from "../../../shared/console/mod.ts";
import type { ClientSession } from "./client.ts";
import { Conversation, type Moment, planQuery } from "./console/mod.ts";
import type { Plane } from "./plane.ts";
import { refusals } from "./refusals.ts";
import { Counter } from "./stats.ts";

const runtime = `${runtimeName} ${runtimeVersion()}`;

export class ConsoleSession {
  readonly admin: boolean;
  readonly #client: ClientSession;
  readonly #conversation: Conversation;
  /** Its input is not read: a turn is to come, or output is to be taken first. */
  #busy = false;

  constructor(client: ClientSession, admin: boolean) {
    this.#client = client;
    this.admin = admin;
    const { plane } = client;
    this.#conversation = new Conversation({
      plan: (text) => planQuery(text, this.admin),
      moment: () => momentOf(plane),
      command: (command) =>
        plane.control.command(command, client.user, (outcome) => this.#onOutcome(outcome)),
      gather: () =>
        plane.control.gatherGroups((gathered) => {
          this.#conversation.show(gathered);
          this.#turn();
        }),
      refused: ({ message }) => {
        plane.control.log("error", message);
        plane.logRefusal(client, message);
      },
    });
    plane.consoleStats.totals[Counter.logins]!++;
  }

  /** Takes all of [at, end), the beginning of an unfinished message too, and so returns `end`. */
  consume(bytes: Uint8Array, at: number, end: number): number {
    this.#client.plane.consoleStats.totals[Counter.bytesReceived]! += end - at;
    this.#conversation.push(bytes, at, end);
    if (!this.#busy) this.#turn();
    return end;
  }

  /** The client has taken everything that was sent. */
  onDrained(): void {
    if (this.#busy) this.#turn();
  }

  /** The client has gone. */
  onClosed(): void {
    this.#conversation.abandon();
  }

  /** Ends the command that is waited for, if one is; false: there is none. */
  cancel(): boolean {
    if (!this.#conversation.isWaiting) return false;
    this.#conversation.abandon();
    this.#onOutcome({ refusal: refusals.cancelledInQueue, notice: null });
    return true;
  }

  #onOutcome(outcome: Outcome): void {
    this.#conversation.settle(outcome);
    this.#turn();
  }

  #turn(): void {
    const client = this.#client;
    if (client.closed) return;
    const conversation = this.#conversation;
    const { totals } = client.plane.consoleStats;
    const before = conversation.commands;
    const bytes = conversation.turn();
    totals[Counter.queries]! += conversation.commands - before;
    totals[Counter.transactions]! += conversation.commands - before;
    totals[Counter.bytesSent]! += bytes.length;
    const pending = bytes.length === 0 ? client.stream.pending : client.stream.sendBytes(bytes);
    if (pending < 0) {
      client.close(`client connection lost: ${errnoText(-pending)}`);
      return;
    }
    const { end } = conversation;
    if (end !== null) {
      if (end.kind === "terminate") client.closeAfterFlush("client close request");
      else client.fail(end.refusal);
      return;
    }
    if (pending === 0 && conversation.needsInput) {
      if (this.#busy) client.stream.resume();
      this.#busy = false;
      return;
    }
    // While a command is waited for the client may leave.
    if (!this.#busy || conversation.isWaiting) client.stream.pause(conversation.isWaiting);
    this.#busy = true;
    if (pending === 0 && !conversation.isWaiting) client.plane.reactor.after(0, () => this.#turn());
  }
}

function momentOf(plane: Plane): Moment {
  return {
    plane,
    now: plane.reactor.now,
    wallNow: Date.now(),
    pid: process.pid,
    runtime,
    localAddress,
    peerPid: (fd) => peerCredentials(fd)?.pid ?? 0,
  };
}

/** What follows AuthenticationOk. */
export function consoleGreeting(client: ClientSession): Uint8Array {
  const { plane } = client;
  plane.giveKey(client);
  return concatBytes(
    parameterStatus("server_version", `${plane.version}/bouncer`),
    parameterStatus("client_encoding", "UTF8"),
    parameterStatus("server_encoding", "UTF8"),
    parameterStatus("DateStyle", "ISO"),
    parameterStatus("TimeZone", "GMT"),
    parameterStatus("standard_conforming_strings", "on"),
    parameterStatus("is_superuser", "on"),
    backendKeyData(client.processId, client.secret),
    readyForQuery("I"),
  );
}
