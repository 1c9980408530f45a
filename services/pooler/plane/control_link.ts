// The data plane's way to its control thread: questions with one answer each, and log records that
// are sent once per batch. Nothing here waits; answers come when the loop is woken for them.

import type { NameAnswer } from "../../../shared/host/mod.ts";
import type { CancelOutcome } from "../../../shared/bus/mod.ts";
import type { Command, Outcome } from "../../../shared/console/mod.ts";
import {
  Gauge,
  type LogLevelName,
  type LogRecord,
  type ToControl,
  type ToPlane,
} from "../messages.ts";
import { Asked } from "../asked.ts";
import type { Gathered } from "../group_gather.ts";
import type { PasswordProof } from "../password_checks.ts";
import { DerivedKeys } from "./derived_keys.ts";

/** Log records kept per batch; what comes beyond is counted and summed up in one line. */
const recordsMax = 1000;
/** Records on their way to the log: control writes them one by one, and nobody may read the log. */
const unwrittenMax = 10_000;

export class ControlLink {
  readonly #post: (message: ToControl) => void;
  readonly #salted = new Asked<Uint8Array | null>();
  readonly #named = new Asked<string | null>();
  readonly #resolved = new Asked<NameAnswer>();
  readonly #checked = new Asked<string | null>();
  readonly #routed = new Asked<CancelOutcome | null>();
  readonly #commanded = new Asked<Outcome>();
  readonly #gathered = new Asked<Gathered>();
  readonly #derived = new DerivedKeys((password, salt, iterations, done) => {
    const id = this.#salted.add(done);
    this.#post({ type: "salt", id, password, salt, iterations });
  });
  #records: LogRecord[] = [];
  #dropped = 0;
  #posted = 0;
  #gauges: Int32Array | null = null;

  constructor(post: (message: ToControl) => void) {
    this.#post = post;
  }

  /** Where control counts the log lines that it has written. */
  watch(gauges: Int32Array): void {
    this.#gauges = gauges;
  }

  post(message: ToControl): void {
    this.#post(message);
  }

  log(level: LogLevelName, message: string): void {
    const hasRoom = this.#records.length < recordsMax && this.#unwritten < unwrittenMax;
    if (hasRoom) this.#records.push({ level, message });
    else this.#dropped++;
  }

  get #unwritten(): number {
    const written = this.#gauges === null ? 0 : Atomics.load(this.#gauges, Gauge.linesWritten);
    return (this.#posted - written) | 0;
  }

  flushLog(): void {
    if (this.#records.length === 0) return;
    if (this.#dropped > 0) {
      const message = `${this.#dropped} more log lines were left out`;
      this.#records.push({ level: "warning", message });
      this.#dropped = 0;
    }
    this.#posted = (this.#posted + this.#records.length) | 0;
    this.#post({ type: "log", records: this.#records });
    this.#records = [];
  }

  /** PBKDF2, on the control thread; null if it failed. May call back at once: it was derived lately. */
  saltedPassword(
    password: string | Uint8Array,
    salt: Uint8Array,
    iterations: number,
    callback: (salted: Uint8Array | null) => void,
  ): void {
    this.#derived.get(password, salt, iterations, callback);
  }

  /** The name of a system user; null if there is none. */
  userName(uid: number, callback: (name: string | null) => void): void {
    const id = this.#named.add(callback);
    this.#post({ type: "nameUser", id, uid });
  }

  /** Addresses of a host name; it takes seconds at most. */
  resolve(host: string, callback: (answer: NameAnswer) => void): void {
    const id = this.#resolved.add(callback);
    this.#post({ type: "resolve", id, host });
  }

  /**
   * Has a password checked by who knows it: null if it is right, else why not. Returns the way to give up
   * on it; then nobody is called.
   */
  checkPassword(proof: PasswordProof, callback: (verdict: string | null) => void): () => void {
    const id = this.#checked.add(callback);
    this.#post({ type: "checkPassword", id, proof });
    return () => {
      if (this.#checked.giveUp(id)) this.#post({ type: "abandonPassword", id });
    };
  }

  /** Asks the worker that owns a key to cancel; null if it did not answer. */
  routeCancel(
    workerId: number,
    processId: number,
    secret: Uint8Array,
    callback: (outcome: CancelOutcome | null) => void,
  ): void {
    const id = this.#routed.add(callback);
    this.#post({ type: "routeCancel", id, workerId, processId, secret });
  }

  /**
   * Has a command of the console carried out for all that it concerns. Returns the way to give up on it;
   * then nobody is called.
   */
  command(command: Command, user: string, callback: (outcome: Outcome) => void): () => void {
    const id = this.#commanded.add(callback);
    this.#post({ type: "command", id, command, user });
    return () => {
      if (this.#commanded.giveUp(id)) this.#post({ type: "abandon", id });
    };
  }

  /** What the other workers have in use of resource groups; it takes seconds at most. Returns the way to give up on it. */
  gatherGroups(callback: (gathered: Gathered) => void): () => void {
    const id = this.#gathered.add(callback);
    this.#post({ type: "gatherGroups", id });
    return () => void this.#gathered.giveUp(id);
  }

  /** Hands an answer to who asked; false if the message is no answer. */
  onAnswer(message: ToPlane): boolean {
    switch (message.type) {
      case "salted":
        this.#salted.answer(message.id, message.salted);
        return true;
      case "userNamed":
        this.#named.answer(message.id, message.name);
        return true;
      case "resolved":
        this.#resolved.answer(message.id, message.answer);
        return true;
      case "passwordChecked":
        this.#checked.answer(message.id, message.verdict);
        return true;
      case "cancelRouted":
        this.#routed.answer(message.id, message.outcome);
        return true;
      case "commanded":
        this.#commanded.answer(message.id, message.outcome);
        return true;
      case "groupsGathered":
        this.#gathered.answer(message.id, message.gathered);
        return true;
      default:
        return false;
    }
  }
}
