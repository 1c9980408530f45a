// The world that the ledger's simulation runs in: virtual time, one seeded source of chance, nodes with clocks of
// their own, and a network that delays, loses, doubles and cuts. It knows nothing of budgets.
// Everything that happens is an event of one queue, and follows from the seed alone.

import { seededRandom } from "../support/harness.ts";

const TRACE_LENGTH = 4096;

interface Event {
  readonly at: number;
  readonly order: number;
  readonly run: () => void;
}

export class Chance {
  readonly next: () => number;

  constructor(seed: number) {
    this.next = seededRandom(seed);
  }

  yes(probability: number): boolean {
    return probability > 0 && this.next() < probability;
  }

  between(low: number, high: number): number {
    return low + this.next() * (high - low);
  }

  /** A whole number from `low` to `high`, both included. */
  whole(low: number, high: number): number {
    return low + Math.floor(this.next() * (high - low + 1));
  }

  exponential(mean: number): number {
    return -mean * Math.log(1 - this.next());
  }

  pick<T>(items: readonly T[]): T {
    return items[Math.floor(this.next() * items.length)]!;
  }
}

/** What the network does to messages at present. */
export interface Weather {
  delayMs: number;
  /** Share of the messages that are late by up to `lateMs`. */
  late: number;
  lateMs: number;
  loss: number;
  doubled: number;
}

export const CALM: Weather = { delayMs: 3, late: 0, lateMs: 0, loss: 0, doubled: 0 };

export class World {
  /** True time in ms, which no node can read. */
  now = 0;
  /** Grows with every event: the name of a step in a trace. */
  steps = 0;
  weather: Weather = CALM;
  readonly chance: Chance;
  readonly #queue: Event[] = [];
  #order = 0;
  /** The process that listens under a name at present: a restarted worker takes the name over. */
  readonly #nodes = new Map<string, Node>();
  readonly #cuts = new Map<string, number>();
  readonly #trace: { at: number; text: () => string }[] = [];
  #traced = 0;
  /** Stops whoever next sends a message like this, before the message is out or right after. */
  trap: { readonly pattern: RegExp; readonly after: boolean; readonly lengthMs: number } | null =
    null;

  constructor(seed: number) {
    this.chance = new Chance(seed);
  }

  schedule(delayMs: number, run: () => void): void {
    const event = { at: this.now + Math.max(0, delayMs), order: this.#order++, run };
    const queue = this.#queue;
    let at = queue.length;
    queue.push(event);
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!before(event, queue[parent]!)) break;
      queue[at] = queue[parent]!;
      at = parent;
    }
    queue[at] = event;
  }

  /** Runs the next event if it is due by `until`. */
  step(until: number): boolean {
    const first = this.#queue[0];
    if (first === undefined || first.at > until) {
      this.now = until;
      return false;
    }
    this.#dropFirst();
    this.now = first.at;
    this.steps++;
    first.run();
    return true;
  }

  #dropFirst(): void {
    const queue = this.#queue;
    const last = queue.pop()!;
    const length = queue.length;
    if (length === 0) return;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= length) break;
      if (child + 1 < length && before(queue[child + 1]!, queue[child]!)) child++;
      if (!before(queue[child]!, last)) break;
      queue[at] = queue[child]!;
      at = child;
    }
    queue[at] = last;
  }

  listen(node: Node): void {
    this.#nodes.set(node.name, node);
  }

  /** Sends to whoever listens under the name `to` when the message arrives. */
  send(from: Node, to: string, what: () => string, deliver: (receiver: Node) => void): void {
    if (!from.alive) return;
    const { trap } = this;
    if (trap !== null && !from.stopped && from.canStop && trap.pattern.test(what())) {
      this.trap = null;
      if (trap.after) this.send(from, to, what, deliver);
      from.stop(trap.lengthMs);
      if (trap.after) return;
    }
    if (from.stopped) {
      from.unsent.push(() => this.send(from, to, what, deliver));
      return;
    }
    const { weather, chance } = this;
    if (this.#isCut(from.name, to) || chance.yes(weather.loss)) {
      this.note(() => `lost ${from.name}>${to} ${what()}`);
      return;
    }
    const copies = chance.yes(weather.doubled) ? 2 : 1;
    for (let copy = 0; copy < copies; copy++) {
      const delay = chance.yes(weather.late)
        ? chance.between(0, weather.lateMs)
        : chance.between(0.1, weather.delayMs);
      this.schedule(delay, () => {
        const receiver = this.#nodes.get(to);
        if (receiver === undefined || !receiver.alive) return;
        if (this.#isCut(from.name, to) && chance.yes(0.5)) return;
        receiver.run(() => {
          this.note(() => `${from.name}>${to} ${what()}`);
          deliver(receiver);
        });
      });
    }
  }

  cut(from: string, to: string): void {
    const link = `${from}>${to}`;
    this.#cuts.set(link, (this.#cuts.get(link) ?? 0) + 1);
  }

  mend(from: string, to: string): void {
    const link = `${from}>${to}`;
    const left = (this.#cuts.get(link) ?? 0) - 1;
    if (left > 0) this.#cuts.set(link, left);
    else this.#cuts.delete(link);
  }

  mendAll(): void {
    this.#cuts.clear();
  }

  #isCut(from: string, to: string): boolean {
    return this.#cuts.size > 0 && this.#cuts.has(`${from}>${to}`);
  }

  /** Remembers what happened; the text is made only if it is wanted. */
  note(text: () => string): void {
    this.#trace[this.#traced++ % TRACE_LENGTH] = { at: this.now, text };
  }

  /** The last `count` notes, oldest first. */
  trace(count: number): string[] {
    const lines: string[] = [];
    for (
      let at = Math.max(0, this.#traced - Math.min(count, TRACE_LENGTH));
      at < this.#traced;
      at++
    ) {
      const { at: when, text } = this.#trace[at % TRACE_LENGTH]!;
      lines.push(`${(when / 1000).toFixed(4).padStart(9)} ${text()}`);
    }
    return lines;
  }
}

function before(a: Event, b: Event): boolean {
  return a.at < b.at || (a.at === b.at && a.order < b.order);
}

/** A process: its own clock, stopped and continued by the world, dead for ever once it crashed. */
export class Node {
  readonly world: World;
  readonly name: string;
  readonly canStop: boolean;
  alive = true;
  stopped = false;
  /** Messages that were on their way out when the process was stopped. */
  unsent: (() => void)[] = [];
  #waiting: { readonly action: () => void; readonly isTimer: boolean }[] = [];
  readonly #rate: number;
  readonly #offset: number;

  constructor(world: World, name: string, canStop: boolean) {
    this.world = world;
    this.name = name;
    this.canStop = canStop;
    this.#rate = world.chance.between(0.99, 1.01);
    this.#offset = world.chance.between(0, 1e9);
    world.listen(this);
  }

  /** Monotonic ms by this node's clock. */
  clock(): number {
    return this.#offset + this.world.now * this.#rate;
  }

  /** Runs in this process: at once, or when it goes on, or never if it is dead. */
  run(action: () => void, isTimer = false): void {
    if (!this.alive) return;
    if (this.stopped) this.#waiting.push({ action, isTimer });
    else action();
  }

  /** A timer by this node's clock. */
  after(delayMs: number, action: () => void): void {
    this.world.schedule(delayMs / this.#rate, () => this.run(action, true));
  }

  crash(): void {
    this.world.note(() => `${this.name} crashes`);
    this.alive = false;
    this.unsent = [];
    this.#waiting = [];
  }

  stop(lengthMs: number): void {
    this.stopped = true;
    this.world.note(() => `${this.name} stopped for ${Math.round(lengthMs)} ms`);
    this.world.schedule(lengthMs, () => this.continue());
  }

  continue(): void {
    if (!this.stopped || !this.alive) return;
    this.world.note(() => `${this.name} goes on`);
    this.stopped = false;
    const { unsent } = this;
    const waiting = this.#waiting;
    this.unsent = [];
    this.#waiting = [];
    for (const send of unsent) send();
    // Whether a loop looks at its timers or at its sockets first is not for anybody to rely on.
    if (this.world.chance.yes(0.5)) {
      waiting.sort((a, b) => Number(a.isTimer) - Number(b.isTimer));
    }
    for (const { action, isTimer } of waiting) {
      this.world.schedule(0, () => this.run(action, isTimer));
    }
  }
}
