// Resource groups in the data plane: before a client is given a server for a transaction (a statement, a session) its
// group has to let it in. Who runs, waits and is next is decided in shared/groups; here is which group a client is in,
// what becomes of those that wait, and when something that was let in has ended.
// Invariants:
// - A place that runs is its client's until that is linked, and its server's from then on: it ends with the
//   transaction, or when PostgreSQL has closed the connection, never before what it let in has ended.
// - A client that waits for room in its group is not in its pool's queue, and the other way round.
// - Who waits for a server while there is none to be had keeps no place from those who have one: it is let in, or not,
//   when there is one (`#postponed`).
// - Nothing is allocated for a transaction that is let in at once, unless it is tagged otherwise than the last.

import type { GroupUses } from "../../../shared/bus/mod.ts";
import type { Config } from "../../../shared/config/mod.ts";
import {
  AdmissionTree,
  type Group,
  Outcome,
  RuleSet,
  TicketState,
  useOf,
  Verdict,
} from "../../../shared/groups/mod.ts";
import type { ClientSession } from "./client.ts";
import { GroupLease, running, waiting } from "./group_lease.ts";
import { noRoom, waitedForRoom } from "./group_refusals.ts";
import { Place } from "./place.ts";
import type { Plane } from "./plane.ts";
import type { Pool, Waiter } from "./pool.ts";
import type { Refusal } from "./refusals.ts";
import { endsTransaction } from "./refused_begin.ts";
import type { ServerConnection } from "./server.ts";

/** Leases are looked at again after so long, in case this process was stopped meanwhile. */
const checkMs = 150;
/** What the budget is asked for a place. */
interface Question {
  readonly owner: GroupLease;
  readonly since: number;
  /** The newest report then: only an answer to a later one is about it. */
  readonly after: number;
}
/** A place that may not wait by the limits of its group, but has to until the budget has answered. */
interface Inquiry {
  /** Of the slots it has lacked: one of a group above is asked for when there is one of the group below. */
  readonly slots: Question[];
  /** Of the places in queues it lacks: it needs each. */
  readonly places: readonly Question[];
  /** Of the queues in which it has no place meanwhile. */
  readonly without: readonly GroupLease[];
}

const none: readonly GroupLease[] = [];

export class Admission {
  readonly #plane: Plane;
  /** There are groups. */
  #isOn = false;
  /** Servers are to stay in their group, as far as may be: their backends are in cgroups by it. */
  prefersOwnServers = false;
  /** Monitors are heard: memory in use elsewhere is known. */
  #knowsElsewhere = false;
  #tree: AdmissionTree | null = null;
  #rules: RuleSet | null = null;
  /** Of the groups with a limit: to run, to wait. */
  readonly #leases = new Map<Group, GroupLease>();
  readonly #queueLeases = new Map<Group, GroupLease>();
  #checkedAt = 0;
  /** In their pool's queue, and not let in yet. */
  readonly #postponed = new Set<Waiter>();
  readonly #inquiries = new Map<Place, Inquiry>();
  /** The budget has answered, in this batch: about all that it answers at once, before anybody goes by it. */
  #isAnswered = false;
  /** To be told after this batch. */
  #refused: { readonly client: ClientSession; readonly refusal: Refusal }[] = [];

  constructor(plane: Plane) {
    this.#plane = plane;
  }

  /** In the order of the file. */
  get groups(): readonly Group[] {
    return this.#tree?.groups ?? [];
  }

  /** What is in use of each, for the consoles of other workers. */
  uses(): GroupUses {
    const offsetMs = Date.now() - this.#plane.reactor.now;
    return { groups: this.groups.map((group) => useOf(group, offsetMs)) };
  }

  /** Clients that wait for room in a group, by group, the oldest first. */
  *waiters(): Generator<ClientSession> {
    if (this.#tree === null || this.#tree.queued === 0) return;
    for (const { queue } of this.groups) {
      for (let place = queue.first; place !== null;) {
        const next = place.following;
        yield place.owner as ClientSession;
        place = next;
      }
    }
  }

  // --- changes while it runs

  setConfig({ groups, groupRules, settings }: Config): void {
    const { now } = this.#plane.reactor;
    this.#isOn = groups.length > 0;
    if (this.#tree === null && !this.#isOn) return;
    const { count } = this.#plane.seat;
    // Without a monitor each worker knows of its own queries only.
    const workers = this.#knowsElsewhere ? 1 : count;
    const parts = groups.map((group) => {
      return { ...group, softMaxMemory: group.softMaxMemory / workers };
    });
    const options = { groups: parts, priorityAgingMs: settings.priorityAgingMs };
    this.#rules = new RuleSet(groupRules, groups, settings.unmatchedGroup);
    if (this.#tree === null) this.#tree = new AdmissionTree(options, 0);
    else this.#tree.reconfigure(options, now);
    const all = this.#tree.groups;
    this.#keepLeases(this.#leases, running, all.filter((group) => group.limit < Infinity));
    this.#keepLeases(
      this.#queueLeases,
      waiting,
      all.filter((group) => group.queueLimit < Infinity),
    );
  }

  #keepLeases(
    leases: Map<Group, GroupLease>,
    counted: typeof running,
    limited: readonly Group[],
  ): void {
    const { budget } = this.#plane;
    for (const [group, { lease }] of leases) {
      if (limited.includes(group)) continue;
      budget.retire(lease);
      leases.delete(group);
    }
    for (const group of limited) {
      if (leases.has(group)) continue;
      const tree = this.#tree as AdmissionTree;
      const onAnswer = () => this.#onAnswer(group);
      leases.set(group, new GroupLease(this.#plane, tree, group, counted, onAnswer));
    }
    for (const lease of leases.values()) lease.want();
  }

  // --- memory, as monitors have seen it

  /** What the server has on which something runs that was let in. */
  measure(place: Place, bytes: number): void {
    if (place.state !== TicketState.running) return;
    (this.#tree as AdmissionTree).measure(place, bytes, this.#plane.reactor.now);
  }

  /** What groups have in other workers, by name, the groups below not included; null: nobody knows. */
  setMemoryElsewhere(bytes: ReadonlyMap<string, number> | null): void {
    const tree = this.#tree;
    if (tree === null) return;
    if (this.#knowsElsewhere !== (bytes !== null)) {
      this.#knowsElsewhere = bytes !== null;
      this.setConfig(this.#plane.config);
    }
    const sums = new Map<Group, number>();
    for (const group of tree.groups) {
      const own = bytes?.get(group.name) ?? 0;
      for (let node: Group | null = group; node !== null; node = node.parent) {
        sums.set(node, (sums.get(node) ?? 0) + own);
      }
    }
    for (const group of tree.groups) {
      const sum = sums.get(group) as number;
      if (sum !== group.memoryElsewhere) {
        tree.setMemoryElsewhere(group, sum, this.#plane.reactor.now);
      }
    }
  }

  // --- getting in

  /**
   * A server for a client whose message [at, next) begins a transaction, not linked yet; or null, and it waits, or is
   * about to be refused.
   */
  acquire(client: ClientSession, at: number, next: number): ServerConnection | null {
    const pool = client.pool as Pool;
    if (!this.#isOn) return pool.acquire(client);
    // One that runs still is that of a server which was lost.
    if (client.place !== null && client.place.state !== TicketState.idle) client.place = null;
    const place = client.place ??= new Place(client);
    const group = place.choose(this.#rules as RuleSet, this.groups, at, next);
    if (group === null) return pool.acquire(client);
    if (!pool.serves) {
      this.#postponed.add(client);
      return pool.acquire(client);
    }
    if (this.#enter(place, group)) return pool.acquire(client);
    // It ends what was refused, or never began: that is no query to be counted, or asked for.
    const isClosed = (this.#tree as AdmissionTree).isClosed(group);
    if (isClosed && endsTransaction(client, at, next)) return pool.acquire(client);
    this.#wait(place, group);
    return null;
  }

  /** The group of what a client begins with the message [at, next); null: none. */
  groupOf(client: ClientSession, at: number, next: number): Group | null {
    if (!this.#isOn) return null;
    const place = client.place ??= new Place(client);
    return place.choose(this.#rules as RuleSet, this.groups, at, next);
  }

  /** The same at its login, when it is not known yet what it will begin. */
  groupAtLogin(client: ClientSession): Group | null {
    if (!this.#isOn) return null;
    const place = client.place ??= new Place(client);
    return place.chosen(this.#rules as RuleSet, this.groups);
  }

  #enter(place: Place, group: Group): boolean {
    const { now } = this.#plane.reactor;
    if (now - this.#checkedAt >= checkMs) this.#check(now);
    return (this.#tree as AdmissionTree).enter(place, group, now);
  }

  /** One that did not enter waits from now on, or is about to be refused. */
  #wait(place: Place, group: Group): void {
    const { now } = this.#plane.reactor;
    const tree = this.#tree as AdmissionTree;
    const short = this.#shortOf(group);
    const queues = this.#placesOf(group);
    const verdict = tree.request(place, group, now, short !== null || queues.length > 0);
    if (verdict === Verdict.refused) return this.#refuse(place);
    const client = place.owner;
    client.queued = true;
    client.waitingSince = now;
    if (tree.isIntruder(place)) this.#inquire(place, now, short, queues);
    this.#wantMore(group);
  }

  #inquire(
    place: Place,
    since: number,
    short: GroupLease | null,
    queues: readonly GroupLease[],
  ): void {
    const slots = short === null ? [] : [this.#ask(short, since)];
    const places = queues.map((owner) => this.#ask(owner, since));
    const without: GroupLease[] = [];
    for (let node = place.group; node !== null; node = node.parent) {
      const queue = this.#queueLeases.get(node);
      if (queue === undefined || node.closed(node.queued - 1) === null) continue;
      queue.asking++;
      without.push(queue);
    }
    this.#inquiries.set(place, { slots, places, without });
  }

  #ask(owner: GroupLease, since: number): Question {
    owner.questions++;
    const after = owner.lease.lastReportSeq;
    this.#plane.budget.ask();
    return { owner, since, after };
  }

  /** It is refused, let in, or has a place of its own now. */
  #endInquiry(place: Place): void {
    const inquiry = this.#inquiries.get(place);
    if (inquiry === undefined) return;
    this.#inquiries.delete(place);
    const { slots, places, without } = inquiry;
    for (const { owner } of [...slots, ...places]) owner.questions--;
    for (const queue of without) queue.asking--;
  }

  /** Whether it is let in now; if not it waits, or is to be refused. */
  #enters(place: Place): boolean {
    const group = place.chosen(this.#rules as RuleSet, this.groups);
    if (group === null) return true;
    if (this.#enter(place, group)) return true;
    this.#wait(place, group);
    return false;
  }

  /** The nearest group that has no slot here and may get one from the mesh. */
  #shortOf(group: Group): GroupLease | null {
    for (let node: Group | null = group; node !== null; node = node.parent) {
      if (node.isShort) return this.#leases.get(node) as GroupLease;
    }
    return null;
  }

  /** The groups that lack a place in their queue and may get one from the mesh; none: one has no more. */
  #placesOf(group: Group): readonly GroupLease[] {
    let short = none;
    for (let node: Group | null = group; node !== null; node = node.parent) {
      if (node.closed(node.queued) === null) continue;
      const lease = this.#queueLeases.get(node);
      if (lease === undefined || !node.isQueueShort(node.queued)) return none;
      short = [...short, lease];
    }
    return short;
  }

  #wantMore(group: Group): void {
    for (let node: Group | null = group; node !== null; node = node.parent) {
      this.#leases.get(node)?.want();
      this.#queueLeases.get(node)?.want();
    }
  }

  /** The process may have slept. */
  #check(now: number): void {
    this.#checkedAt = now;
    this.#plane.budget.expire();
    for (const lease of this.#leases.values()) lease.apply();
    for (const lease of this.#queueLeases.values()) lease.apply();
  }

  /** What a client that waits for a server was not let in for yet; false: it waits for that now. */
  catchesUp(waiter: Waiter): boolean {
    if (this.#postponed.size === 0 || !this.#postponed.delete(waiter)) return true;
    const client = waiter as ClientSession;
    const place = client.place as Place;
    (client.pool as Pool).dequeue(client);
    return this.#enters(place);
  }

  // --- what becomes of those that wait

  onBatchEnd(): void {
    const tree = this.#tree;
    if (tree === null) return;
    for (;;) {
      for (let place = tree.next(); place !== null; place = tree.next()) {
        this.#onOutcome(place as Place);
      }
      if (this.#isAnswered) this.#endInquiries();
      if (this.#refused.length === 0) return;
      const refused = this.#refused;
      this.#refused = [];
      for (const { client, refusal } of refused) client.refuseWaiting(refusal);
    }
  }

  #onOutcome(place: Place): void {
    const client = place.owner;
    const { now } = this.#plane.reactor;
    client.queued = false;
    this.#endInquiry(place);
    switch (place.outcome) {
      case Outcome.run:
        return this.#goOn(client);
      case Outcome.timedOut:
        return client.refuseWaiting(
          waitedForRoom(place.name, place, now - client.waitingSince, this.#plane.config.groups),
        );
      case Outcome.displaced:
        if (this.#enters(place)) this.#goOn(client);
    }
  }

  #goOn(client: ClientSession): void {
    const server = (client.pool as Pool).acquire(client);
    if (server !== null) client.onServer(server);
  }

  /** Is told after this batch: its input has yet to be kept. */
  #refuse(place: Place): void {
    const refusal = noRoom(place.name, place, this.#plane.config.groups);
    this.#refused.push({ client: place.owner, refusal });
  }

  /** The budget has answered about a group. */
  #onAnswer(group: Group): void {
    // Of the groups above slots are wanted for those that lack none of this one.
    if (group.queued > 0) this.#wantMore(group);
    this.#isAnswered = true;
  }

  #endInquiries(): void {
    this.#isAnswered = false;
    const { now } = this.#plane.reactor;
    const tree = this.#tree as AdmissionTree;
    // From the newest: of those that may not all stay, the first stay.
    for (const [place, inquiry] of [...this.#inquiries].reverse()) {
      if (place.state !== TicketState.queued || !tree.isIntruder(place)) {
        this.#endInquiry(place);
        continue;
      }
      if (this.#mayGetSlot(place, inquiry, now) || mayGetPlaces(inquiry, now)) continue;
      this.#endInquiry(place);
      tree.refuse(place, now);
      place.owner.queued = false;
      this.#refuse(place);
    }
  }

  /** It needs one of each group, so there has to be one of the nearest that lacks some. */
  #mayGetSlot(place: Place, { slots }: Inquiry, now: number): boolean {
    const short = this.#shortOf(place.group as Group);
    if (short === null) return false;
    let question = slots.find(({ owner }) => owner === short);
    if (question === undefined) slots.push(question = this.#ask(short, now));
    return mayGive(question, now);
  }

  // --- getting out

  /** What was let in on this server has ended. */
  end(server: ServerConnection): void {
    const place = server.place as Place;
    server.place = null;
    place.isServers = false;
    this.#release(place);
  }

  #release(place: Place): void {
    const { now } = this.#plane.reactor;
    if (now - this.#checkedAt >= checkMs) this.#check(now);
    // Others may wait for that slot.
    if ((this.#tree as AdmissionTree).release(place, now)) this.#plane.budget.ask();
  }

  /** A client waits for nothing any more: it leaves, or gives up what it has asked for. */
  withdraw(client: ClientSession): void {
    this.#postponed.delete(client);
    const place = client.place as Place;
    switch (place.state) {
      case TicketState.idle:
        return;
      case TicketState.running:
        if (!place.isServers) this.#release(place);
        return;
      default:
        client.queued = false;
        this.#endInquiry(place);
        (this.#tree as AdmissionTree).cancel(place, this.#plane.reactor.now);
    }
  }

  // --- time

  /** Called ten times a second. */
  sweep(now: number): void {
    const tree = this.#tree;
    if (tree === null) return;
    this.#check(now);
    tree.expire(now);
    if (this.#inquiries.size > 0) this.#endInquiries();
    for (const pool of this.#plane.pools.values()) {
      if (pool.waiting > 0 && !pool.serves) this.#postpone(pool);
    }
  }

  /** Who waits for a server of a pool that has none gives its place to others. */
  #postpone(pool: Pool): void {
    for (let waiter = pool.firstWaiter; waiter !== null; waiter = waiter.nextWaiter) {
      if (this.#postponed.has(waiter) || waiter.login !== null) continue;
      const place = (waiter as ClientSession).place;
      if (place?.state !== TicketState.running) continue;
      this.#release(place);
      this.#postponed.add(waiter);
    }
  }
}

function mayGetPlaces({ places }: Inquiry, now: number): boolean {
  return places.length > 0 && places.every((question) => mayGive(question, now));
}

/** What was asked for may still come. */
function mayGive({ owner, since, after }: Question, now: number): boolean {
  return owner.mayGive(after, now - since);
}
