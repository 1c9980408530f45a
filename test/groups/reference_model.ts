// Admission by resource groups as one would write it without a thought for speed: plain lists, and everything
// counted and compared anew at each step. What the tree does must be what this does.

import type { GroupConfig } from "../../shared/config/mod.ts";

interface Query {
  readonly client: string;
  group: string;
  since: number;
  memory: number;
}

/** A child of a group, or its own queue ("own"), among those that wait for its slots. */
interface Turn {
  pass: number;
  since: number;
  /** in the order they began to wait; -1: it does not */
  order: number;
}

export class ReferenceModel {
  groups: readonly GroupConfig[] = [];
  #agingMs = 0;
  /** groups that are gone and have queries, with the group they count for */
  #gone = new Map<string, GroupConfig>();
  running: Query[] = [];
  waiting: Query[] = [];
  readonly leases = new Map<string, number>();
  readonly #turns = new Map<string, Turn>();
  readonly #passes = new Map<string, number>();
  #order = 0;

  configure(groups: readonly GroupConfig[], agingMs: number, now: number): string[] {
    this.#agingMs = agingMs;
    const before = [...this.groups, ...this.#gone.values()];
    const names = new Set(groups.map(({ name }) => name));
    const events: string[] = [];
    // In the order of the groups, old ones that are gone already last.
    for (const { name } of before) {
      if (names.has(name)) continue;
      for (const query of this.waiting.filter(({ group }) => group === name)) {
        events.push(`${query.client} displaced`);
      }
      this.waiting = this.waiting.filter(({ group }) => group !== name);
    }
    const gone = before.filter(({ name }) => !names.has(name) && this.#own(name).length > 0);
    const parentOf = (name: string) => before.find((group) => group.name === name)!.parent;
    this.#gone = new Map(gone.map((group) => {
      let { parent } = group;
      while (parent !== null && !names.has(parent)) parent = parentOf(parent);
      return [group.name, { ...group, parent }];
    }));
    for (const { name } of before) {
      if (names.has(name) || this.#gone.has(name)) continue;
      // Nothing is remembered of it.
      this.leases.delete(name);
      for (const key of [name, `own ${name}`]) this.#turns.delete(key);
      this.#passes.delete(name);
    }
    this.groups = groups;
    for (const turn of this.#turns.values()) turn.order = -1;
    return [...events, ...this.#handOff(now)];
  }

  request(client: string, group: string, now: number): string {
    const full = this.#fullOn(group);
    if (full === null) {
      this.#start({ client, group, since: now, memory: 0 }, now);
      return "run";
    }
    for (const each of this.#way(group)) {
      const closed = !each.queueing
        ? "queueing"
        : each.maxQueued > 0 && this.#below(this.waiting, each.name).length >= each.maxQueued
        ? "max_queued"
        : null;
      if (closed !== null) return `refused: ${each.name} ${closed}, ${full}`;
    }
    this.waiting.push({ client, group, since: now, memory: 0 });
    this.#settle(now);
    return "queued";
  }

  end(client: string, now: number): string[] {
    const query = this.running.find((each) => each.client === client)!;
    this.running = this.running.filter((each) => each !== query);
    if (this.#gone.has(query.group) && this.#own(query.group).length === 0) {
      this.#gone.delete(query.group);
      this.leases.delete(query.group);
      for (const key of [query.group, `own ${query.group}`]) this.#turns.delete(key);
      this.#passes.delete(query.group);
    }
    return this.#handOff(now);
  }

  leave(client: string, now: number): string[] {
    this.waiting = this.waiting.filter((each) => each.client !== client);
    this.#settle(now);
    return [];
  }

  limit(group: string, slots: number, now: number): string[] {
    this.leases.set(group, slots);
    return this.#handOff(now);
  }

  expire(now: number): string[] {
    const events: string[] = [];
    for (const { name, queueTimeoutMs } of this.groups) {
      if (queueTimeoutMs === 0) continue;
      for (const query of this.waiting.filter(({ group }) => group === name)) {
        if (now - query.since < queueTimeoutMs) continue;
        events.push(`${query.client} timed_out(${this.#fullOn(name)})`);
        this.waiting = this.waiting.filter((each) => each !== query);
      }
    }
    this.#settle(now);
    return events;
  }

  counts(): string {
    return this.groups.map(({ name }) => {
      const running = this.#below(this.running, name).length;
      return `${name} ${running}+${this.#below(this.waiting, name).length}`;
    }).join(" ");
  }

  /** Names of those that wait and could run. */
  unserved(): string[] {
    return this.waiting.filter(({ group }) => this.#fullOn(group) === null).map(({ client }) =>
      client
    );
  }

  #find(name: string): GroupConfig {
    return this.groups.find((group) => group.name === name) ?? this.#gone.get(name)!;
  }

  #way(name: string): GroupConfig[] {
    const way: GroupConfig[] = [];
    for (let at: string | null = name; at !== null; at = way.at(-1)!.parent) {
      way.push(this.#find(at));
    }
    return way;
  }

  #own(name: string): Query[] {
    return this.running.filter(({ group }) => group === name);
  }

  #below(queries: readonly Query[], name: string): Query[] {
    return queries.filter(({ group }) => this.#way(group).some((each) => each.name === name));
  }

  #full(group: GroupConfig): string | null {
    const running = this.#below(this.running, group.name);
    const limit = Math.min(group.maxConcurrentQueries, this.leases.get(group.name) ?? Infinity);
    if (group.maxConcurrentQueries > 0 && running.length >= limit) return "max_concurrent_queries";
    const memory = running.reduce((sum, query) => sum + query.memory, 0);
    return group.softMaxMemory > 0 && memory >= group.softMaxMemory ? "soft_max_memory" : null;
  }

  #fullOn(name: string): string | null {
    for (const group of this.#way(name)) {
      const full = this.#full(group);
      if (full !== null) return `${group.name} ${full}`;
    }
    return null;
  }

  #start(query: Query, now: number): void {
    query.since = now;
    query.memory = this.#find(query.group).minQueryMemory;
    this.running.push(query);
    this.#settle(now);
  }

  /** "own" and the children of a group ("": of the root) that could use a slot of it. */
  #candidates(name: string): string[] {
    const own = name !== "" && this.waiting.some(({ group }) => group === name);
    const children = this.groups.filter(({ parent }) => (parent ?? "") === name)
      .filter((child) => this.#full(child) === null && this.#candidates(child.name).length > 0);
    return [...children.map((child) => child.name), ...(own ? [`own ${name}`] : [])];
  }

  #turn(key: string): Turn {
    let turn = this.#turns.get(key);
    if (turn === undefined) this.#turns.set(key, turn = { pass: 0, since: 0, order: -1 });
    return turn;
  }

  /** Who has begun to wait, or waits no more. */
  #settle(now: number): void {
    for (const name of [...this.groups.map((group) => group.name), ""]) {
      const candidates = this.#candidates(name);
      const children = this.groups.filter(({ parent }) => (parent ?? "") === name);
      for (const key of [...children.map((child) => child.name), `own ${name}`]) {
        const turn = this.#turn(key);
        if (!candidates.includes(key)) turn.order = -1;
        else if (turn.order < 0) {
          turn.pass = Math.max(turn.pass, this.#passes.get(name) ?? 0);
          turn.since = now;
          turn.order = this.#order++;
        }
      }
    }
  }

  #handOff(now: number): string[] {
    const events: string[] = [];
    for (;;) {
      this.#settle(now);
      let name = "";
      let key = "";
      if (this.#candidates(name).length === 0) return events;
      for (;;) {
        key = this.#next(name, now);
        const turn = this.#turn(key);
        this.#passes.set(name, Math.max(this.#passes.get(name) ?? 0, turn.pass));
        turn.pass += 1 / this.#weight(key);
        turn.since = now;
        turn.order = this.#order++;
        if (key.startsWith("own ")) break;
        name = key;
      }
      const query = this.waiting.find(({ group }) => group === name)!;
      this.waiting = this.waiting.filter((each) => each !== query);
      this.#start(query, now);
      events.push(query.client);
    }
  }

  #weight(key: string): number {
    return key.startsWith("own ") ? 1024 : this.#find(key).cpuShares;
  }

  #next(name: string, now: number): string {
    const candidates = this.#candidates(name);
    const byOrder = (a: string, b: string) => this.#turn(a).order - this.#turn(b).order;
    const longest = [...candidates].sort(byOrder)[0]!;
    if (this.#agingMs > 0 && now - this.#turn(longest).since >= this.#agingMs) return longest;
    const isOwn = (key: string) => key.startsWith("own ");
    const priority = (key: string) => isOwn(key) ? 0 : this.#find(key).priority;
    const used = (key: string) => {
      const queries = isOwn(key) ? this.#own(name) : this.#below(this.running, key);
      return queries.length;
    };
    const rank = (key: string) => isOwn(key) ? -1 : this.groups.findIndex((g) => g.name === key);
    return candidates.sort((a, b) =>
      priority(b) - priority(a) || used(a) * this.#weight(b) - used(b) * this.#weight(a) ||
      this.#turn(a).pass - this.#turn(b).pass || this.#turn(a).since - this.#turn(b).since ||
      rank(a) - rank(b)
    )[0]!;
  }
}
