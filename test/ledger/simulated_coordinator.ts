// A coordinator of the ledger's simulation: a real Ledger, and around it what services/budget does with it. It is
// elected through the store, saves a charge before the grant that raises it, and takes over what an earlier leader
// saved. `Shortcuts` are deliberate mistakes of that glue, to prove that the checks see them.

import type {
  Charges,
  Decision,
  Grant,
  Ledger,
  LedgerOptions,
  Report,
  Saving,
} from "../../shared/ledger/mod.ts";
import type { Coordination, Worker } from "./simulated_worker.ts";
import { askStore, type StoreAnswer, type StoreRequest } from "./simulated_store.ts";
import type { Version } from "./simulated_rules.ts";
import { Node, type World } from "./simulated_world.ts";

const TERM_MS = 3000;
const RENEW_MS = 1000;
const GIVE_UP_MS = 2000;
const TICK_MS = 250;
const DECIDE_MS = 10;
const GRACE_MS = 1000;
const LEAST_LOOKUP_MS = 200;
const LOOKUP_MS = 1000;
/** Of a worker's silence, beyond its lease, until what PostgreSQL shows of it counts. */
const PATIENCE_MS = 1000;
/** Stays in the place of the charges of a dead worker: else a leader that was stopped before it saved its first ones could do so later, and nobody would ever free them. */
const GONE = "gone";

/** Deliberate mistakes, each false in a right coordinator, save the last. */
export interface Shortcuts {
  /** Grants go out while their charges are still being saved. */
  readonly sendBeforeSave?: boolean;
  /** A grant that raises nothing does not wait for the save that an earlier one waits for. */
  readonly overtakeSaves?: boolean;
  /** The first charges of a worker are saved without making sure afterwards that the term still holds. */
  readonly createUnfenced?: boolean;
  /** A new leader reads the saved charges and leaves them as they are. */
  readonly keepRevisions?: boolean;
  /** A new leader starts from nothing. */
  readonly forget?: boolean;
  /** The charges of a process that is gone are free at once. */
  readonly noGrace?: boolean;
  /** A leader answers until somebody tells it that it leads no more: right as long as nobody asks PostgreSQL. */
  readonly noTermEnd?: boolean;
}

/** What PostgreSQL shows of workers, by `id.incarnation` and leaf; null = no answer. */
export type Shown = ReadonlyMap<string, ReadonlyMap<string, number>>;

export interface CoordinatorOptions {
  readonly name: string;
  readonly leaseMs: number;
  readonly silentMs: number;
  readonly storeTimeoutMs: number;
  readonly version: Version;
  readonly makeLedger: (options: LedgerOptions) => Ledger;
  readonly shortcuts: Shortcuts;
  /** Null without a login to PostgreSQL. */
  readonly lookUp: ((from: Node, then: (shown: Shown | null) => void) => void) | null;
  readonly workers: () => readonly Worker[];
  readonly answerGone: (from: Node, worker: number, incarnation: number) => void;
  readonly onGranted: (grant: Grant) => void;
  readonly onDecided: (ledger: Ledger, decisions: readonly Decision[]) => void;
}

interface Leadership {
  readonly epoch: number;
  /** Null until the saved charges are taken over. */
  ledger: Ledger | null;
  revision: number;
  /** When the last renewal that succeeded was sent. */
  renewedAt: number;
  renewing: boolean;
  renewDueAt: number;
  /** Wait for a renewal that began after they did. */
  fences: (() => void)[];
  readonly chains: Map<string, Chain>;
  readonly leaving: Map<string, Leaving>;
  decideDue: boolean;
  lookingUp: boolean;
  lookUpDueAt: number;
}

/** What is to be done for one worker, in order: each waits for the save of the one before. */
interface Chain {
  revision: number | null;
  busy: boolean;
  readonly waiting: Step[];
}

type Step =
  | { readonly kind: "save"; readonly save: Charges; readonly grant: Grant | null }
  | { readonly kind: "grant"; readonly grant: Grant }
  | { readonly kind: "gone"; readonly then: () => void };

type Saved = Charges | typeof GONE;

interface Leaving {
  readonly worker: number;
  readonly incarnation: number;
  readonly since: number;
  /** It is charged for nothing any more. */
  done: boolean;
  /** Its saved charges are removed. */
  confirmed: boolean;
}

export class Coordinator extends Node implements Coordination {
  /** The caps that this coordinator knows. */
  version: Version;
  readonly #options: CoordinatorOptions;
  #leading: Leadership | null = null;
  /** The leader's key as last seen changing. */
  #seen = { revision: -1, at: 0 };
  #polling = false;

  constructor(world: World, options: CoordinatorOptions) {
    super(world, options.name, true);
    this.#options = options;
    this.version = options.version;
    this.after(world.chance.between(0, TICK_MS), () => this.#tick());
  }

  get ledger(): Ledger | null {
    return this.alive ? this.#leading?.ledger ?? null : null;
  }

  get epoch(): number {
    return this.#leading?.epoch ?? 0;
  }

  reload(version: Version): void {
    this.run(() => {
      this.world.note(() => `${this.name} reads caps ${version.text()}`);
      this.version = version;
      this.ledger?.setRules(version.rules, this.clock());
      this.#decideSoon();
    });
  }

  /** Leaves the leadership to another in good order. */
  abdicate(): void {
    this.run(() => {
      const leading = this.#leading;
      if (leading === null) return;
      this.#stepDown("leaves");
      const value = { epoch: leading.epoch, name: "" };
      this.#ask({ kind: "update", key: "leader", value, revision: leading.revision }, () => {});
    });
  }

  #tick(): void {
    if (this.#leading === null) this.#follow();
    else this.#lead();
    this.after(TICK_MS, () => this.#tick());
  }

  #ask(request: StoreRequest, then: (answer: StoreAnswer | null) => void): void {
    askStore(this, request, this.#options.storeTimeoutMs, then);
  }

  /** Asks as the leader; the answer is void if the leadership is another by then. */
  #askLeading(
    leading: Leadership,
    request: StoreRequest,
    then: (answer: StoreAnswer | null) => void,
  ): void {
    this.#ask(request, (answer) => {
      if (this.#leading === leading) then(answer);
    });
  }

  // Election

  #follow(): void {
    if (this.#polling) return;
    this.#polling = true;
    this.#ask({ kind: "get", key: "leader" }, (answer) => {
      this.#polling = false;
      if (answer === null || this.#leading !== null) return;
      const entry = answer.entries[0];
      if (entry === undefined) return this.#stand(1, null);
      const { epoch, name } = entry.value as { epoch: number; name: string };
      if (entry.revision !== this.#seen.revision) {
        this.#seen = { revision: entry.revision, at: this.clock() };
        if (name !== "") return;
      }
      if (name === "" || this.clock() - this.#seen.at > TERM_MS) {
        this.#stand(epoch + 1, entry.revision);
      }
    });
  }

  #stand(epoch: number, revision: number | null): void {
    this.#polling = true;
    const sentAt = this.clock();
    const value = { epoch, name: this.name };
    const request: StoreRequest = revision === null
      ? { kind: "create", key: "leader", value }
      : { kind: "update", key: "leader", value, revision };
    this.#ask(request, (answer) => {
      this.#polling = false;
      if (answer === null || answer.revision === null) return;
      this.world.note(() => `${this.name} leads in epoch ${epoch}`);
      const leading: Leadership = {
        epoch,
        ledger: null,
        revision: answer.revision,
        renewedAt: sentAt,
        renewing: false,
        renewDueAt: sentAt + RENEW_MS,
        fences: [],
        chains: new Map(),
        leaving: new Map(),
        decideDue: false,
        lookingUp: false,
        lookUpDueAt: 0,
      };
      this.#leading = leading;
      this.#takeOver(leading);
    });
  }

  #takeOver(leading: Leadership): void {
    this.#askLeading(leading, { kind: "list", prefix: "charges." }, (answer) => {
      if (answer === null) return this.#takeOver(leading);
      const saved = new Map<string, Saved>();
      let left = answer.entries.length;
      if (left === 0 || this.#options.shortcuts.forget) return this.#start(leading, saved);
      for (const { key, value, revision } of answer.entries) {
        this.#rewrite(leading, key, value, revision, (held) => {
          if (held !== null) saved.set(key, held);
          if (--left === 0) this.#start(leading, saved);
        });
      }
    });
  }

  /** Gives a saved key a new revision, so that no save of an earlier leader can succeed any more. */
  #rewrite(
    leading: Leadership,
    key: string,
    value: unknown,
    revision: number,
    then: (saved: Saved | null) => void,
  ): void {
    const take = (confirmed: number) => {
      leading.chains.set(key, { revision: confirmed, busy: false, waiting: [] });
      then(value as Saved);
    };
    if (this.#options.shortcuts.keepRevisions) return take(revision);
    this.#askLeading(leading, { kind: "update", key, value, revision }, (answer) => {
      if (answer !== null && answer.revision !== null) return take(answer.revision);
      this.#reread(leading, key, then);
    });
  }

  #reread(leading: Leadership, key: string, then: (saved: Saved | null) => void): void {
    this.#askLeading(leading, { kind: "get", key }, (answer) => {
      if (answer === null) return this.#reread(leading, key, then);
      const entry = answer.entries[0];
      if (entry === undefined) return then(null);
      this.#rewrite(leading, key, entry.value, entry.revision, then);
    });
  }

  #start(leading: Leadership, saved: ReadonlyMap<string, Saved>): void {
    const now = this.clock();
    const ledger = this.#options.makeLedger({
      epoch: leading.epoch,
      rules: this.version.rules,
      leaseMs: this.#options.leaseMs,
      silentMs: this.#options.silentMs,
      now,
    });
    for (const [key, charges] of saved) {
      const [, worker, incarnation] = key.split(".");
      if (charges === GONE) ledger.gone(Number(worker), Number(incarnation));
      else ledger.restore(Number(worker), Number(incarnation), charges, now);
    }
    leading.ledger = ledger;
    this.world.note(() => `${this.name} has taken ${saved.size} workers over`);
    this.#announce(leading);
  }

  #stepDown(why: string): void {
    if (this.#leading === null) return;
    const { epoch } = this.#leading;
    this.world.note(() => `${this.name} leads no more in epoch ${epoch}: ${why}`);
    this.#leading = null;
    this.#seen = { revision: -1, at: this.clock() };
  }

  // Leading

  /** The leadership if it may still act: a leader that could not renew is none. */
  #term(): Leadership | null {
    const leading = this.#leading;
    if (leading === null || this.#options.shortcuts.noTermEnd) return leading;
    if (this.clock() - leading.renewedAt <= GIVE_UP_MS) return leading;
    this.#stepDown("could not renew");
    return null;
  }

  #lead(): void {
    const leading = this.#term();
    if (leading === null) return;
    if (this.clock() >= leading.renewDueAt) {
      this.#renew(leading);
      if (leading.ledger !== null) this.#announce(leading);
    }
    this.#finishLeaving(leading);
    this.#lookUp(leading);
    this.#decide(leading);
  }

  #renew(leading: Leadership): void {
    if (leading.renewing) return;
    leading.renewing = true;
    const { fences, revision } = leading;
    leading.fences = [];
    const sentAt = this.clock();
    leading.renewDueAt = sentAt + RENEW_MS;
    const value = { epoch: leading.epoch, name: this.name };
    this.#askLeading(leading, { kind: "update", key: "leader", value, revision }, (answer) => {
      leading.renewing = false;
      if (answer === null) leading.fences.unshift(...fences);
      else if (answer.revision === null) return this.#stepDown("another leads");
      else {
        leading.revision = answer.revision;
        leading.renewedAt = sentAt;
        for (const passed of fences) passed();
      }
      if (leading.fences.length > 0) this.#renew(leading);
    });
  }

  #announce(leading: Leadership): void {
    const names = new Set(this.#options.workers().map(({ name }) => name));
    for (const name of names) {
      this.world.send(this, name, () => `leader e${leading.epoch}`, (worker) => {
        (worker as Worker).onLeader(leading.epoch);
      });
    }
  }

  onReport(report: Report): void {
    const leading = this.#term();
    if (leading === null || leading.ledger === null) return;
    leading.ledger.report(report, this.clock());
    this.#decideSoon();
  }

  #decideSoon(): void {
    const leading = this.#leading;
    if (leading === null || leading.ledger === null || leading.decideDue) return;
    leading.decideDue = true;
    this.after(DECIDE_MS, () => {
      leading.decideDue = false;
      if (this.#term() === leading) this.#decide(leading);
    });
  }

  #decide(leading: Leadership): void {
    const { ledger } = leading;
    if (ledger === null) return;
    const now = this.clock();
    const decisions = ledger.decide(now);
    this.#options.onDecided(ledger, decisions);
    for (const decision of decisions) this.#enqueue(leading, decision, decision.grant);
    for (const saving of ledger.unsaved(now)) this.#enqueue(leading, saving, null);
  }

  #enqueue(leading: Leadership, decision: Decision | Saving, given: Grant | null): void {
    const { shortcuts } = this.#options;
    // Messages are what the ledger says now, even if it gave away objects that it goes on changing.
    const grant = given === null
      ? null
      : { ...given, leaves: given.leaves.map((leaf) => ({ ...leaf })) };
    const save = decision.save === null
      ? null
      : new Map([...decision.save].map(([leaf, charge]) => [leaf, { ...charge }]));
    const atOnce = grant !== null &&
      (shortcuts.sendBeforeSave || (shortcuts.overtakeSaves && save === null));
    if (atOnce) this.#send(grant);
    const { waiting } = this.#chain(leading, decision.worker, decision.incarnation);
    if (save !== null) waiting.push({ kind: "save", save, grant: atOnce ? null : grant });
    else if (grant !== null && !atOnce) waiting.push({ kind: "grant", grant });
    this.#advance(leading, decision.worker, decision.incarnation);
  }

  #chain(leading: Leadership, worker: number, incarnation: number): Chain {
    const key = chargesKey(worker, incarnation);
    let chain = leading.chains.get(key);
    if (chain === undefined) {
      chain = { revision: null, busy: false, waiting: [] };
      leading.chains.set(key, chain);
    }
    return chain;
  }

  #advance(leading: Leadership, worker: number, incarnation: number): void {
    const key = chargesKey(worker, incarnation);
    const chain = this.#chain(leading, worker, incarnation);
    while (this.#leading === leading && !chain.busy) {
      const step = chain.waiting.shift();
      if (step === undefined) return;
      if (step.kind === "grant") this.#send(step.grant);
      else {
        chain.busy = true;
        this.#write(leading, chain, key, step, () => {
          if (this.#leading !== leading) return;
          chain.busy = false;
          if (step.kind === "gone") step.then();
          else if (step.grant !== null) this.#send(step.grant);
          this.#advance(leading, worker, incarnation);
        });
      }
    }
  }

  #write(
    leading: Leadership,
    chain: Chain,
    key: string,
    step: Exclude<Step, { kind: "grant" }>,
    done: () => void,
  ): void {
    const { revision } = chain;
    const value = step.kind === "gone" ? GONE : step.save;
    const note = step.kind === "gone" ? "gone" : step.grant === null ? "less" : "more";
    const request: StoreRequest = revision === null
      ? { kind: "create", key, value, note }
      : { kind: "update", key, value, revision, note };
    this.#askLeading(leading, request, (answer) => {
      if (answer === null) return this.#stepDown(`knows nothing of ${request.kind} ${key}`);
      if (answer.revision === null) return this.#stepDown(`another wrote ${key}`);
      chain.revision = answer.revision;
      if (
        step.kind === "gone" || request.kind !== "create" || this.#options.shortcuts.createUnfenced
      ) return done();
      leading.fences.push(done);
      this.#renew(leading);
    });
  }

  #send(grant: Grant): void {
    this.#options.onGranted(grant);
    const leaves = () =>
      grant.leaves.map(({ leaf, granted, floor, pending, poll, usedUp }) =>
        `${leaf} g${granted} f${floor}${pending ? " pending" : ""}${poll ? " poll" : ""}` +
        (usedUp > 0 ? ` u${usedUp}` : "")
      ).join(", ");
    const what = () =>
      `grant #${grant.seq} e${grant.epoch} i${
        grant.incarnation % 1000
      } r${grant.report} [${leaves()}]`;
    const to = `w${grant.worker}`;
    this.world.send(this, to, what, (receiver) => (receiver as Worker).onGrant(grant));
  }

  // Workers that are gone or silent

  onGone(worker: number, incarnation: number): void {
    const leading = this.#term();
    if (leading === null || leading.ledger === null) return;
    const key = `${worker}.${incarnation}`;
    const known = leading.leaving.get(key);
    if (known?.confirmed) this.#options.answerGone(this, worker, incarnation);
    if (known !== undefined) return;
    leading.leaving.set(key, {
      worker,
      incarnation,
      since: this.clock(),
      done: false,
      confirmed: false,
    });
    this.#finishLeaving(leading);
    const grace = this.#options.lookUp === null ? GRACE_MS : LEAST_LOOKUP_MS;
    this.after(grace + 1, () => {
      if (this.#term() !== leading) return;
      this.#finishLeaving(leading);
      this.#lookUp(leading);
    });
  }

  #finishLeaving(leading: Leadership): void {
    const { lookUp, shortcuts } = this.#options;
    for (const leaving of leading.leaving.values()) {
      if (leaving.done) continue;
      const ripe = lookUp === null && this.clock() - leaving.since >= GRACE_MS;
      if (ripe || shortcuts.noGrace) this.#left(leading, leaving);
    }
  }

  #left(leading: Leadership, leaving: Leaving): void {
    const { worker, incarnation } = leaving;
    leaving.done = true;
    leading.ledger!.gone(worker, incarnation);
    const then = () => {
      leaving.confirmed = true;
      this.#options.answerGone(this, worker, incarnation);
    };
    this.#chain(leading, worker, incarnation).waiting.push({ kind: "gone", then });
    this.#advance(leading, worker, incarnation);
    this.#decideSoon();
  }

  #lookUp(leading: Leadership): void {
    const { lookUp } = this.#options;
    if (lookUp === null || leading.lookingUp || leading.ledger === null) return;
    const began = this.clock();
    if (began < leading.lookUpDueAt) return;
    const patience = this.#options.leaseMs * 1.1 + PATIENCE_MS;
    const silent = [...leading.ledger.workers()].filter(({ state, lastReportAt }) =>
      state !== "live" && began - lastReportAt > patience
    );
    const leaving = [...leading.leaving.values()]
      .filter(({ since, done }) => !done && began - since >= LEAST_LOOKUP_MS);
    if (silent.length === 0 && leaving.length === 0) return;
    leading.lookingUp = true;
    lookUp(this, (shown) => {
      if (this.#leading !== leading) return;
      leading.lookingUp = false;
      leading.lookUpDueAt = this.clock() + LOOKUP_MS;
      if (shown === null || this.#term() !== leading) return;
      for (const { worker, incarnation } of silent) {
        const leaves = shown.get(`${worker}.${incarnation}`) ?? new Map();
        leading.ledger!.backends(worker, incarnation, leaves, this.clock());
      }
      for (const entry of leaving) {
        if (!entry.done && !shown.has(`${entry.worker}.${entry.incarnation}`)) {
          this.#left(leading, entry);
        }
      }
      this.#decideSoon();
    });
  }
}

function chargesKey(worker: number, incarnation: number): string {
  return `charges.${worker}.${incarnation}`;
}
