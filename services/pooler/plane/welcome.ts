// What the servers of a pool have reported at their logins and accepted from clients since, and the greeting of
// clients that is made of it: who asks for what a server is known to take needs none to log in.

import {
  authenticationOk,
  backendKeyData,
  concatBytes,
  parameterStatus,
  readyForQuery,
  writeInt32,
} from "../../../shared/wire/mod.ts";
import type { ClientSession } from "./client.ts";
import { loginNotice } from "./notices.ts";
import { Dialects, type Extra, type ParameterSet, sameValues, spelledName } from "./parameters.ts";
import type { Plane } from "./plane.ts";
import type { SessionSettings } from "./session_settings.ts";

/** Greetings kept, one per set of client parameters. */
const greetingsMax = 100;
/** What stands behind the key in a greeting: ReadyForQuery. */
const behindKey = 6;
/** Values of parameters that are remembered as accepted. */
const spellingsMax = 1000;

export class Welcome {
  readonly dialects: Dialects;
  /** What the last server to log in reported; null until one has. */
  reported: ReadonlyMap<string, string> | null = null;
  /** Of that the tracked parameters. */
  defaults: readonly (string | null)[];
  readonly #plane: Plane;
  /** With room for keys of 3.0, and for those of 3.2. */
  readonly #greetings = new Map<ParameterSet, Uint8Array>();
  readonly #longGreetings = new Map<ParameterSet, Uint8Array>();
  /** login_notify_message in them. */
  #greetingNotice = "";
  /** Parameter sets that a server of this pool has accepted, and how it spells them. */
  #accepted = new WeakMap<ParameterSet, ParameterSet>();
  /** The same for single values of tracked parameters, by index and value. */
  readonly #spellings = new Map<string, string>();
  /** What a server reports that has these extras. */
  readonly #reports = new WeakMap<readonly Extra[], ReadonlyMap<string, string>>();

  constructor(plane: Plane) {
    this.#plane = plane;
    this.defaults = plane.tracker.none.values;
    this.dialects = new Dialects(plane.tracker);
  }

  /** A server has logged in, and reported these parameters. */
  onLogin(session: SessionSettings, parameters: ReadonlyMap<string, string>): void {
    // One object for equal ones: links compare them by identity.
    if (sameValues(session.defaults, this.defaults)) session.defaults = this.defaults;
    const before = this.reported;
    const isSame = before !== null && before.size === parameters.size &&
      [...parameters].every(([name, value]) => before.get(name) === value);
    if (isSame) return;
    // With other defaults the same words may be spelled differently: a DateStyle without an order.
    this.#accepted = new WeakMap();
    this.#spellings.clear();
    this.#forgetGreetings();
    this.reported = new Map(parameters);
    this.defaults = session.defaults;
    this.dialects.renew(session.defaults);
  }

  /** How servers of this pool spell what a client asks for; null = it has to be tried. */
  accepted(asked: ParameterSet): ParameterSet | null {
    const { tracker } = this.#plane;
    if (asked === tracker.none) return asked;
    const known = this.#accepted.get(asked);
    if (known !== undefined) return known;
    if (asked.extras.length > 0 && !this.#reports.has(asked.extras)) return null;
    const values: (string | null)[] = [];
    for (const [index, value] of asked.values.entries()) {
      const spelled = value === null ? null : this.#spelling(index, value);
      if (spelled === null && value !== null) return null;
      values.push(spelled);
    }
    const spelled = tracker.intern(values, asked.extras);
    this.#accepted.set(asked, spelled);
    return spelled;
  }

  /** How servers spell a value of a tracked parameter; null = none of them was asked yet. */
  #spelling(index: number, value: string): string | null {
    const preset = this.defaults[index] ?? null;
    if (preset === null || preset.toLowerCase() === value.toLowerCase()) return preset;
    if (index === this.#plane.tracker.applicationName) return spelledName(value);
    return this.#spellings.get(`${index} ${value}`) ?? null;
  }

  /** A server has taken what a client asked for. */
  onAccepted(session: SessionSettings, asked: ParameterSet, spelled: ParameterSet): void {
    this.#accepted.set(asked, spelled);
    this.#accepted.set(spelled, spelled);
    if (this.#spellings.size > spellingsMax) this.#spellings.clear();
    for (const [index, value] of asked.values.entries()) {
      const now = spelled.values[index] ?? null;
      if (value !== null && now !== null) this.#spellings.set(`${index} ${value}`, now);
    }
    if (spelled.extras.length > 0) this.#reports.set(spelled.extras, new Map(session.reported));
  }

  /**
   * What a client is greeted with after its login: valid until the next call. The bytes are made once
   * per set of parameters; only the cancel key differs.
   */
  greetingFor(client: ClientSession): Uint8Array {
    const { secret } = client;
    const { loginNotifyMessage } = this.#plane.settings;
    if (loginNotifyMessage !== this.#greetingNotice) {
      this.#greetingNotice = loginNotifyMessage;
      this.#forgetGreetings();
    }
    const greetings = secret.length > 4 ? this.#longGreetings : this.#greetings;
    let greeting = greetings.get(client.parameters);
    if (greeting === undefined) {
      const messages: Uint8Array[] = [];
      const reports = this.#reports.get(client.parameters.extras);
      for (const [name, value] of this.reported ?? []) {
        const index = this.#plane.tracker.indexOf(name);
        const own = index < 0 ? reports?.get(name) : client.parameters.values[index];
        messages.push(parameterStatus(name, own ?? value));
      }
      messages.push(loginNotice(loginNotifyMessage), backendKeyData(0, secret));
      greeting = concatBytes(authenticationOk(), ...messages, readyForQuery("I"));
      if (greetings.size >= greetingsMax) greetings.clear();
      greetings.set(client.parameters, greeting);
    }
    const secretAt = greeting.length - behindKey - secret.length;
    writeInt32(greeting, secretAt - 4, client.processId);
    greeting.set(secret, secretAt);
    return greeting;
  }

  #forgetGreetings(): void {
    this.#greetings.clear();
    this.#longGreetings.clear();
  }
}
