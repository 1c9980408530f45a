// The session parameters of one server connection: what it has now, what its linked client is to have, and
// what either is told of a change. The rules are parameters.ts.

import {
  parameterStatus,
  type ParsedError,
  parseParameterStatus,
} from "../../../shared/wire/mod.ts";
import type { ClientSession } from "./client.ts";
import {
  type Extra,
  noExtras,
  type ParameterSet,
  type ServerParameters,
  setAll,
} from "./parameters.ts";
import { Request } from "./requests.ts";
import type { ServerConnection } from "./server.ts";
import type { OwnQuery } from "./server_owner.ts";
import { statusIdle } from "./server_state.ts";
import { hasReset, type Resets } from "./setting_changes.ts";

export class SessionSettings implements ServerParameters {
  values: (string | null)[] = [];
  defaults: readonly (string | null)[] = [];
  extras: readonly Extra[] = noExtras;
  extrasUnsure = false;
  syncedFor: ParameterSet | null = null;
  /** Current values of what else it reports. */
  reported = new Map<string, string>();
  /** A backslash in a text of SQL is one character that means nothing. */
  isPlain = true;
  readonly #server: ServerConnection;
  /** What the last query of the pooler's for parameters asks for. */
  #asked: ParameterSet | null = null;
  /** What the request that ends has led back to the server's defaults. */
  #resets: Resets | null = null;
  /** SQL that leads it on to what its client asked for at its login. */
  #owed = "";
  #told: Uint8Array[] = [];

  constructor(server: ServerConnection) {
    this.#server = server;
  }

  /** What the server reported at its login. */
  start(reported: Map<string, string>): void {
    const { tracker } = this.#server.plane;
    this.values = [...tracker.none.values];
    for (const [name, value] of reported) {
      const index = tracker.indexOf(name);
      if (index >= 0) this.values[index] = value;
    }
    this.defaults = tracker.intern(this.values).values;
    this.reported = reported;
    this.isPlain = tracker.isPlain(this.values);
  }

  /** Whether it is certain to be as after the login. */
  get isPristine(): boolean {
    const { values, defaults } = this;
    return this.extras.length === 0 && !this.extrasUnsure &&
      values.every((value, index) => value === defaults[index]);
  }

  /** The value of a tracked parameter; null: it is not reported. */
  valueOf(name: string): string | null {
    return this.values[this.#server.plane.tracker.indexOf(name)] ?? null;
  }

  /** Whether there is nothing to do for this client. */
  isFor(client: ClientSession): boolean {
    return this.syncedFor === client.parameters && this.defaults === client.defaults;
  }

  /** The SQL that sets a client's parameters; if there is nothing to do, that is noted. */
  sqlFor(client: ClientSession): string {
    this.#asked = client.parameters;
    this.syncedFor = null;
    const sql = this.#server.plane.tracker.setStatement(client.parameters, this);
    if (sql !== "") return sql;
    const told = this.settle();
    if (told !== null) client.stream.sendBytes(told);
    return "";
  }

  /** Brings the linked client's parameters up to date; false if there is nothing to do. */
  resync(client: ClientSession): boolean {
    const sql = this.sqlFor(client);
    if (sql !== "") this.#server.ask(sql, this.query);
    return sql !== "";
  }

  /** The server has what was asked for. Returns the messages that tell its client where it differs from that. */
  settle(): Uint8Array | null {
    const { plane, client } = this.#server;
    const asked = this.#asked ?? plane.tracker.none;
    const spelled = plane.tracker.settle(this, asked);
    if (client === null) return null;
    client.parameters = spelled;
    if (asked === client.initial) client.initial = spelled;
    if (client.login !== null || client.isUntried) {
      client.isUntried = false;
      this.#server.pool.welcome.onAccepted(this, asked, spelled);
      if (client.login !== null) return null;
    }
    const told = client.defaults;
    client.defaults = this.defaults;
    if (asked === spelled && told === this.defaults) return null;
    return plane.tracker.reports(asked, told, spelled, this.defaults);
  }

  /** A query of the pooler's changes the session; with `all`, nothing of what was set is left. */
  forget(all: boolean): void {
    if (all) this.extras = noExtras;
    this.extrasUnsure = true;
    this.syncedFor = null;
  }

  /** Its client gives it back. */
  onLeft(): void {
    this.#resets = null;
    this.#owed = "";
  }

  /** The body of a ParameterStatus. */
  onReport(body: Uint8Array): void {
    const parameter = parseParameterStatus(body);
    if (parameter === null) return;
    const { plane, client, requests } = this.#server;
    const index = plane.tracker.indexOf(parameter.name);
    if (index < 0) {
      this.reported.set(parameter.name, parameter.value);
      return;
    }
    this.values[index] = parameter.value;
    this.isPlain = plane.tracker.isPlain(this.values);
    this.syncedFor = null;
    if (client === null || requests.front() === Request.ownQuery) return;
    client.parameters = plane.tracker.with(client.parameters, index, parameter.value);
    this.syncedFor = client.parameters;
  }

  /** A message for the client, before its next ReadyForQuery. */
  tell(message: Uint8Array): void {
    this.#told.push(message);
  }

  /** Whether there is something to do before the client's next ReadyForQuery. */
  get hasNews(): boolean {
    return this.#resets !== null || this.#told.length > 0;
  }

  /** Before the client's ReadyForQuery. */
  tellNews(): void {
    const resets = this.#resets;
    this.#resets = null;
    const { plane, client } = this.#server;
    if (resets !== null && client !== null) this.#leadBack(client, resets);
    for (const message of this.#told) plane.outlet.put(message);
    this.#told = [];
  }

  onResets(resets: Resets | null): void {
    this.#resets = resets;
  }

  /** A RESET has led to the server's defaults: what its client asked for at its login is the client's own. */
  #leadBack(client: ClientSession, resets: Resets): void {
    const { plane, status, residue } = this.#server;
    const { tracker, outlet } = plane;
    const again: Extra[] = [];
    for (const [index, name] of tracker.names.entries()) {
      const asked = client.initial.values[index] ?? null;
      const value = this.values[index] ?? null;
      if (asked === null || asked === value || value !== this.defaults[index]) continue;
      if (!hasReset(resets, name.toLowerCase())) continue;
      client.parameters = tracker.with(client.parameters, index, asked);
      this.syncedFor = null;
      outlet.put(parameterStatus(name, asked));
      again.push([name, asked]);
    }
    const extras = client.initial.extras.filter(([name]) => hasReset(resets, name.toLowerCase()));
    const isSession = client.mode === "session";
    const follows = client.parameters.extras !== client.initial.extras;
    if (!isSession && follows) residue.settings.isDue = true;
    // In a transaction as a part of it. Else whatever server it gets next is told; but if this one is asked what
    // it has, it is to have these first.
    if (isSession || status !== statusIdle) this.#owed = setAll([...again, ...extras]);
    else if (residue.settings.isDue) this.#owed = setAll(extras);
  }

  /** The SQL of a lead back that is due, once. */
  takeOwed(): string {
    const owed = this.#owed;
    this.#owed = "";
    return owed;
  }

  /** Leads it back, if that is due and can be done: then what its client sends has to wait. */
  leadsBack(client: ClientSession): boolean {
    const server = this.#server;
    if (this.#owed === "" || server.requests.count > 0 || !server.synced) return false;
    if (client.output === null || client.isSending) return false;
    client.holdInput();
    server.ask(this.takeOwed(), this.#leading);
    return true;
  }

  /** What becomes of the query that sets parameters: the client goes on, or is told why not. */
  readonly query: OwnQuery = {
    onTag: null,
    onEnd: (failure: ParsedError | null) => {
      const server = this.#server;
      const { client } = server;
      if (client === null) return;
      if (failure !== null) return this.#fail(client, failure);
      if (client.login !== null) client.awaitsSync = false;
      else if (client.awaitsSync) client.resumeLinked();
    },
  };

  readonly #leading: OwnQuery = {
    onTag: null,
    onEnd: (failure: ParsedError | null) => {
      const { client } = this.#server;
      if (client === null) return;
      if (failure === null) client.resumeLinked();
      else this.#fail(client, failure);
    },
  };

  #fail(client: ClientSession, failure: ParsedError): void {
    const server = this.#server;
    server.plane.logServer(server, `var change failed: ${failure.message}`);
    // If nothing of the client's has been sent, the server can go to another.
    client.awaitsSync = false;
    const { code, hint } = failure;
    const message = failure.message || "var change failed";
    const logged = unsupportedText(client, failure);
    client.fail({
      code,
      message,
      ...(hint === "" ? {} : { hint }),
      ...(logged === "" ? {} : { logged }),
    });
  }
}

/** A startup parameter that PostgreSQL does not know, in PgBouncer's words; "" if it is something else. */
function unsupportedText({ login, parameters }: ClientSession, failure: ParsedError): string {
  if (login === null || failure.code !== "42704") return "";
  const unknown = parameters.extras.find(([name]) => failure.message.includes(`"${name}"`));
  return unknown === undefined ? "" : `unsupported startup parameter: ${unknown[0]}`;
}
