// The session parameters of one server connection: what it has now, what its linked client is to have, and
// what either is told of a change. The rules are parameters.ts.

import {
  parameterStatus,
  type ParsedError,
  parseParameterStatus,
} from "../../../shared/wire/mod.ts";
import type { ClientSession } from "./client.ts";
import { type Extra, noExtras, type ParameterSet, type ServerParameters } from "./parameters.ts";
import { Request } from "./requests.ts";
import type { ServerConnection } from "./server.ts";
import type { OwnQuery } from "./server_owner.ts";

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
  /** Tracked parameters that were reported since the last ReadyForQuery, and whether by a RESET. */
  #changed: number[] = [];
  #wasReset = false;
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
      this.#server.pool.onAccepted(this, asked, spelled);
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

  /** The client has reset something. */
  onReset(): void {
    this.#wasReset = true;
    this.forget(false);
  }

  /** The client has reset everything. */
  onDiscard(): void {
    this.onReset();
    this.#changed = this.#server.plane.tracker.names.map((_, index) => index);
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
    this.#changed.push(index);
  }

  /** A message for the client, before its next ReadyForQuery. */
  tell(message: Uint8Array): void {
    this.#told.push(message);
  }

  /** Whether the client is to be told something before its next ReadyForQuery. */
  get hasChanges(): boolean {
    return this.#wasReset || this.#changed.length > 0 || this.#told.length > 0;
  }

  /**
   * Before the ReadyForQuery behind changes. What a RESET has led back to the server's default is, for a
   * client that asked for a value at its login, that value.
   */
  endOfChanges(): void {
    const { plane, client } = this.#server;
    if (this.#wasReset && client !== null) {
      const { tracker, outlet } = plane;
      for (const index of this.#changed) {
        const asked = client.initial.values[index] ?? null;
        const value = this.values[index] ?? null;
        if (asked === null || asked === value || value !== this.defaults[index]) continue;
        client.parameters = tracker.with(client.parameters, index, asked);
        this.syncedFor = null;
        outlet.put(parameterStatus(tracker.names[index] as string, asked));
      }
    }
    for (const message of this.#told) plane.outlet.put(message);
    this.#wasReset = false;
    this.#changed = [];
    this.#told = [];
  }

  /** What becomes of the query that sets parameters: the client goes on, or is told why not. */
  readonly query: OwnQuery = {
    onTag: null,
    onEnd: (failure: ParsedError | null) => {
      const server = this.#server;
      const { client } = server;
      if (client === null) return;
      if (failure === null) {
        if (client.login !== null) client.awaitsSync = false;
        else if (client.awaitsSync) client.resumeLinked();
        return;
      }
      server.plane.logServer(server, `var change failed: ${failure.message}`);
      // If nothing of the client's has been sent, the server can go to another.
      client.awaitsSync = false;
      const { code, hint } = failure;
      const message = failure.message || "var change failed";
      client.fail(hint === "" ? { code, message } : { code, message, hint });
    },
  };
}
