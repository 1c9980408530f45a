// The protocol of a console session: messages in, bytes out, in turns of bounded work. Simple queries,
// and the extended protocol without parameters. It knows no socket and no clock.
// Invariants: every simple query and every Sync is answered with exactly one ReadyForQuery, always
// idle, since the console has no transactions; after an error in the extended protocol everything up
// to the next Sync is skipped; nothing is read while a result is being sent.

import {
  Backend,
  commandComplete,
  emptyQueryResponse,
  Frontend,
  message,
  noticeResponse,
} from "../../../../shared/wire/mod.ts";
import { type Command, type Outcome, silentNotice } from "../../../../shared/console/mod.ts";
import type { Gathered } from "../../group_gather.ts";
import { error, readyIdle, type Refusal, refusals } from "../refusals.ts";
import { BodyReader } from "./body_reader.ts";
import { describeRows, type Formats, Output, type Row } from "./encode.ts";
import { type Frame, Frames } from "./frames.ts";
import type { Effect, Plan } from "./plan.ts";
import type { Moment } from "./view.ts";

export interface ConsoleHost {
  /** What a query asks for. Must have no effect. */
  plan(text: string): Plan | Refusal;
  moment(): Moment;
  /**
   * Called once for each execution of a command for all workers. It ends later: by `settle()`, once. Returns the
   * way to give up on it.
   */
  command(command: Command): () => void;
  /** Asks the other workers for what a plan of the kind "gather" shows. It comes later: by `show()`, once. */
  gather(): () => void;
  /** Called for each error that a request is answered with. */
  refused(refusal: Refusal): void;
}

/** How it ended: the client said good-bye, or broke the protocol. */
export type End = { kind: "terminate" } | { kind: "fatal"; refusal: Refusal };

/** A turn ends after as many bytes, rows or messages. */
const turnBytes = 32 * 1024;
const turnRows = 200;
const turnMessages = 64;

const statementsMax = 256;
const portalsMax = 64;
const nameMax = 256;

interface Portal {
  readonly plan: Plan;
  readonly formats: Formats;
  /** What is left of its rows; null until it is executed. */
  rows: Iterator<Row> | null;
}

interface Running {
  readonly portal: Portal;
  /** Rows until the portal is suspended. */
  left: number;
  readonly simple: boolean;
}

const parseComplete = message(Backend.parseComplete);
const bindComplete = message(Backend.bindComplete);
const closeComplete = message(Backend.closeComplete);
const noData = message(Backend.noData);
const noParameters = message(Backend.parameterDescription, new Uint8Array(2));
const portalSuspended = message(Backend.portalSuspended);

const isRefusal = (plan: Plan | Refusal): plan is Refusal => "code" in plan;
const protocol = (text: string): Refusal => ({ code: "08P01", message: text });
const parameters: Refusal = {
  code: "0A000",
  message: "parameters are not supported by the admin console",
};
const functionCalls: Refusal = {
  code: "0A000",
  message: "function calls are not supported by the admin console",
};

export class Conversation {
  readonly #host: ConsoleHost;
  readonly #frames = new Frames();
  readonly #output = new Output();
  readonly #statements = new Map<string, Plan>();
  readonly #portals = new Map<string, Portal>();
  #running: Running | null = null;
  /** What gives up on the command whose outcome #running waits for. */
  #abandon: (() => void) | null = null;
  /** An error in the extended protocol: messages are skipped up to a Sync. */
  #skipping = false;
  #starved = true;
  #end: End | null = null;
  /** Commands carried out. */
  commands = 0;

  constructor(host: ConsoleHost) {
    this.#host = host;
  }

  /** Not null once nothing more will be read or sent. */
  get end(): End | null {
    return this.#end;
  }

  /** Nothing is left to do before more input comes. */
  get needsInput(): boolean {
    return this.#running === null && this.#starved;
  }

  /** Nothing can be done before the outcome of a command is there. */
  get isWaiting(): boolean {
    return this.#abandon !== null;
  }

  /** The outcome of the command that is waited for. */
  settle({ refusal, notice }: Outcome): void {
    this.#abandon = null;
    if (notice !== null) {
      this.#output.put(noticeResponse({ severity: "NOTICE", code: "00000", message: notice }));
    }
    if (refusal === null) return;
    const isSimple = this.#running?.simple ?? true;
    this.#running = null;
    if (isSimple) this.#failQuery(refusal);
    else this.#fail(refusal);
  }

  /** What the other workers have of what is to be shown. */
  show({ uses, silent }: Gathered): void {
    this.#abandon = null;
    const notice = silentNotice(silent);
    if (notice !== null) {
      this.#output.put(noticeResponse({ severity: "NOTICE", code: "00000", message: notice }));
    }
    const { portal } = this.#running as Running;
    portal.rows = portal.plan.rows(this.#host.moment(), uses)[Symbol.iterator]();
  }

  /** Gives up on the command that is waited for, if one is. */
  abandon(): void {
    this.#abandon?.();
    this.#abandon = null;
  }

  /** Adds received bytes. */
  push(bytes: Uint8Array, at: number, end: number): void {
    this.#frames.push(bytes, at, end);
    this.#starved = false;
  }

  /** Does a bounded part of what there is to do; returns what to send. */
  turn(): Uint8Array {
    let rows = turnRows;
    let messages = turnMessages;
    while (this.#end === null && this.#abandon === null && this.#output.size < turnBytes) {
      if (this.#running !== null) {
        if (rows-- === 0) break;
        this.#sendRow(this.#running);
        continue;
      }
      if (messages-- === 0) break;
      const frame = this.#frames.next();
      if (frame === null) {
        this.#starved = true;
        break;
      }
      this.#onFrame(frame);
    }
    return this.#output.take();
  }

  #onFrame(frame: Frame): void {
    switch (frame.kind) {
      case "problem":
        this.#end = { kind: "fatal", refusal: protocol(`bad packet header: ${frame.text}`) };
        return;
      case "tooLong":
        if (this.#skipping) return;
        if (frame.type === Frontend.query) this.#failQuery(refusals.consoleCommandTooLong);
        else this.#fail(refusals.consoleCommandTooLong);
        return;
      case "message":
        this.#onMessage(frame.type, frame.body);
    }
  }

  #onMessage(type: number, body: Uint8Array): void {
    if (type === Frontend.terminate) {
      this.#end = { kind: "terminate" };
      return;
    }
    if (type === Frontend.sync) {
      this.#skipping = false;
      this.#portals.clear();
      this.#output.put(readyIdle);
      return;
    }
    if (this.#skipping) return;
    switch (type) {
      case Frontend.query:
        return this.#onQuery(body);
      case Frontend.parse:
        return this.#onParse(body);
      case Frontend.bind:
        return this.#onBind(body);
      case Frontend.describe:
        return this.#onDescribe(body);
      case Frontend.execute:
        return this.#onExecute(body);
      case Frontend.close:
        return this.#onClose(body);
      case Frontend.functionCall:
        return this.#failQuery(functionCalls);
      case Frontend.flush:
      // Late parts of a copy: PostgreSQL ignores them too.
      case Frontend.copyData:
      case Frontend.copyDone:
      case Frontend.copyFail:
        return;
      default: {
        const { code, message } = refusals.consoleBadMessage;
        const refusal = { code, message: `${message}: ${type}` };
        this.#end = { kind: "fatal", refusal };
      }
    }
  }

  /** An error in the extended protocol. */
  #fail(refusal: Refusal): void {
    this.#host.refused(refusal);
    this.#output.put(error(refusal));
    this.#skipping = true;
  }

  /** An error that ends a request of its own. */
  #failQuery(refusal: Refusal): void {
    this.#host.refused(refusal);
    this.#output.put(error(refusal));
    this.#output.put(readyIdle);
  }

  // --- the simple protocol

  #onQuery(body: Uint8Array): void {
    this.#statements.delete("");
    this.#portals.clear();
    const reader = new BodyReader(body);
    const text = reader.text();
    if (!reader.complete) {
      this.#failQuery(protocol("broken Query packet"));
      return;
    }
    const plan = this.#host.plan(text);
    if (isRefusal(plan)) {
      this.#failQuery(plan);
      return;
    }
    if (plan.columns !== null) this.#output.put(describeRows(plan.columns, []));
    this.#start({ plan, formats: [], rows: null }, 0, true);
  }

  // --- the extended protocol

  #onParse(body: Uint8Array): void {
    const reader = new BodyReader(body);
    const name = reader.name();
    const text = reader.text();
    const types = reader.int16();
    reader.skip(4 * types);
    if (!reader.complete) return this.#fail(refusals.brokenParse);
    if (types !== 0) return this.#fail(parameters);
    if (name !== "" && this.#statements.has(name)) {
      return this.#fail({ code: "42P05", message: "prepared statement already exists" });
    }
    if (name.length > nameMax || this.#statements.size >= statementsMax) {
      return this.#fail({
        code: "54000",
        message: "too many prepared statements, or too long a name",
      });
    }
    const plan = this.#host.plan(text);
    if (isRefusal(plan)) return this.#fail(plan);
    this.#statements.set(name, plan);
    this.#output.put(parseComplete);
  }

  #onBind(body: Uint8Array): void {
    const reader = new BodyReader(body);
    const name = reader.name();
    const statement = reader.name();
    const parameterFormats = reader.int16();
    reader.skip(2 * parameterFormats);
    const values = reader.int16();
    for (let i = 0; i < values; i++) reader.skip(Math.max(0, reader.int32()));
    const formats: number[] = [];
    for (let left = reader.int16(); left > 0; left--) formats.push(reader.int16());
    if (!reader.complete) return this.#fail(refusals.brokenBind);
    const plan = this.#statements.get(statement);
    if (plan === undefined) return this.#fail(statementMissing);
    if (values !== 0) return this.#fail(parameters);
    const count = plan.columns?.length ?? 0;
    if (formats.some((format) => format !== 0 && format !== 1)) {
      return this.#fail(protocol("unsupported format code, wanted 0 or 1"));
    }
    if (formats.length > 1 && formats.length !== count) {
      const text =
        `bind message has ${formats.length} result formats but query has ${count} columns`;
      return this.#fail(protocol(text));
    }
    if (name !== "" && this.#portals.has(name)) {
      return this.#fail({ code: "42P03", message: "portal already exists" });
    }
    if (name.length > nameMax || this.#portals.size >= portalsMax) {
      return this.#fail({ code: "54000", message: "too many portals, or too long a name" });
    }
    this.#portals.set(name, { plan, formats, rows: null });
    this.#output.put(bindComplete);
  }

  #onDescribe(body: Uint8Array): void {
    const target = this.#target(body);
    if (target === null) return this.#fail(refusals.brokenDescribe);
    let plan: Plan;
    let formats: Formats = [];
    if (target.kind === "statement") {
      const found = this.#statements.get(target.name);
      if (found === undefined) return this.#fail(statementMissing);
      plan = found;
      this.#output.put(noParameters);
    } else {
      const portal = this.#portals.get(target.name);
      if (portal === undefined) return this.#fail(portalMissing);
      ({ plan, formats } = portal);
    }
    this.#output.put(plan.columns === null ? noData : describeRows(plan.columns, formats));
  }

  #onExecute(body: Uint8Array): void {
    const reader = new BodyReader(body);
    const portal = this.#portals.get(reader.name());
    const limit = reader.int32();
    if (!reader.complete) return this.#fail(protocol("broken Execute packet"));
    if (portal === undefined) return this.#fail(portalMissing);
    this.#start(portal, limit, false);
  }

  #onClose(body: Uint8Array): void {
    const target = this.#target(body);
    if (target === null) return this.#fail(refusals.brokenClose);
    if (target.kind === "statement") this.#statements.delete(target.name);
    else this.#portals.delete(target.name);
    this.#output.put(closeComplete);
  }

  /** What Describe and Close name; null if the message is broken. */
  #target(body: Uint8Array): { kind: "statement" | "portal"; name: string } | null {
    const reader = new BodyReader(body);
    const kind = reader.byte();
    const name = reader.name();
    if (!reader.complete || (kind !== 0x53 && kind !== 0x50)) return null;
    return { kind: kind === 0x53 ? "statement" : "portal", name };
  }

  // --- execution

  /** Begins to run a portal, or goes on with it. `limit` 0 is all rows. */
  #start(portal: Portal, limit: number, simple: boolean): void {
    const { plan } = portal;
    if (portal.rows === null) {
      this.commands++;
      if (plan.notice !== null) {
        const notice = { severity: "NOTICE", code: "00000", ...plan.notice };
        this.#output.put(noticeResponse(notice));
      }
      if (plan.effect.kind !== "gather") {
        portal.rows = plan.rows(this.#host.moment())[Symbol.iterator]();
      }
      this.#perform(plan.effect);
    }
    this.#running = { portal, left: limit > 0 ? limit : Infinity, simple };
  }

  #perform(effect: Effect): void {
    switch (effect.kind) {
      case "forget":
        this.#statements.clear();
        return;
      case "command":
        this.#abandon = this.#host.command(effect.command);
        return;
      case "gather":
        this.#abandon = this.#host.gather();
        return;
      case "none":
        return;
    }
  }

  /** Sends one row, or the end of the result. */
  #sendRow(running: Running): void {
    const { portal, simple } = running;
    const { plan } = portal;
    const output = this.#output;
    const next = portal.rows?.next();
    if (next !== undefined && next.done !== true) {
      output.putRow(plan.columns ?? [], portal.formats, next.value);
      if (--running.left > 0) return;
      // As in PostgreSQL: whether there are more rows is for the next Execute to find out.
      this.#running = null;
      output.put(portalSuspended);
      return;
    }
    this.#running = null;
    output.put(plan.tag === null ? emptyQueryResponse() : commandComplete(plan.tag));
    if (simple) output.put(readyIdle);
  }
}

const statementMissing: Refusal = {
  code: "26000",
  message: "prepared statement does not exist",
};
const portalMissing: Refusal = { code: "34000", message: "portal does not exist" };
