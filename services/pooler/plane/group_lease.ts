// This worker's share of one limit of a resource group: how many queries of the group and of all below it may run here at
// once, or wait. Cold code: what happens per query is the tree's (shared/groups), which goes by the number set here.

import { groupLeaf, type Lease, queueLeaf } from "../../../shared/ledger/mod.ts";
import type { AdmissionTree, Group } from "../../../shared/groups/mod.ts";
import type { LeaseOwner } from "./budget.ts";
import type { Plane } from "./plane.ts";
import { RecentDemand } from "./recent_demand.ts";

/** How long who may not wait is kept until the budget answers, as when a coordinator takes over. */
const answerMs = 15_000;
/** And when it has: others give back what they do not use as soon as they are asked. */
const pendingMs = 5000;

/** The clock is that of the beginning of a batch, and may be late by so much. */
const batchMs = 10;
/** Who waits does so for long: what is so has been so. */
const longMs = 60_000;

/** What is counted, and where the tree has its limit. */
interface Counted {
  leafOf(group: string): string;
  /** `asking`: queries that wait without a place, until the budget has answered. */
  held(group: Group, asking: number): number;
  demand(group: Group): number;
  /** For how long at least all that is granted has been in use, if it is. */
  busyMs(group: Group, now: number): number;
  limit(group: Group): number;
  /** Whether the coordinator should hear of it before the next full report that so many are held now. */
  isNews(held: number, lease: Lease): boolean;
  setLimit(tree: AdmissionTree, group: Group, slots: number, now: number): void;
  /** `demand` was asked for: a new span begins. */
  begin(group: Group): void;
}

/** Of max_concurrent_queries. */
export const running: Counted = {
  leafOf: groupLeaf,
  held: (group) => group.running,
  demand: (group) => Math.max(group.demand, group.peak),
  // None has begun since the last, so no fewer ran.
  busyMs: ({ lastUsed }, now) => Math.max(0, Math.floor(now - lastUsed - batchMs)),
  isNews: (held, { granted, held: before }) =>
    Math.max(held, granted) !== Math.max(before, granted),
  limit: (group) => group.lease,
  setLimit: (tree, group, slots, now) => tree.setLimit(group, slots, now),
  begin: (group) => group.peak = group.running,
};

/** Of max_queued. */
export const waiting: Counted = {
  leafOf: queueLeaf,
  held: (group, asking) => Math.max(0, group.queued - asking),
  demand: (group) => group.queued,
  busyMs: () => longMs,
  // They are kept, so nobody else is to be promised them.
  isNews: (held, lease) => held !== lease.held,
  limit: (group) => group.queueLease,
  setLimit: (tree, group, places) => tree.setQueueLimit(group, places),
  begin: () => {},
};

export class GroupLease implements LeaseOwner {
  readonly group: Group;
  readonly lease: Lease;
  /** Queries that wait without a place until the budget has answered; see `Inquiry`. */
  asking = 0;
  /** Those that may not wait and do until it is known whether all slots of the mesh are in use. */
  questions = 0;
  readonly counted: Counted;
  readonly #plane: Plane;
  readonly #tree: AdmissionTree;
  readonly #recent = new RecentDemand();
  readonly #onAnswer: () => void;

  /** `onAnswer`: its numbers changed, or a report of it was answered. */
  constructor(
    plane: Plane,
    tree: AdmissionTree,
    group: Group,
    counted: Counted,
    onAnswer: () => void,
  ) {
    this.#plane = plane;
    this.#tree = tree;
    this.counted = counted;
    this.group = group;
    this.#onAnswer = onAnswer;
    this.lease = plane.budget.lease(counted.leafOf(group.name), this);
    this.apply();
  }

  /** What was asked for `waitedMs` ago may still come; `after`: the newest report then. */
  mayGive(after: number, waitedMs: number): boolean {
    const { lastReportSeq, answered, usedUp } = this.lease;
    if (usedUp > after) return false;
    return waitedMs < (lastReportSeq > after && answered ? pendingMs : answerMs);
  }

  /** The tree goes by the lease from now on. */
  apply(): void {
    const { group, lease } = this;
    const before = this.counted.limit(group);
    if (before === lease.limit) return;
    const isLess = lease.limit < before;
    this.counted.setLimit(this.#tree, group, lease.limit, this.#plane.reactor.now);
    // What was taken can be given to others when it is known to be.
    if (isLess) this.#plane.budget.ask();
  }

  /** Asks for what is lacking. */
  want(): void {
    this.lease.want(this.#recent.note(this.counted.demand(this.group)));
    if (this.lease.wanted > this.lease.granted) this.#plane.budget.ask();
  }

  onLease(): void {
    this.apply();
    if (this.lease.polled) this.#answerPoll();
    this.#onAnswer();
  }

  /** Some wait elsewhere who may not: what is not in use at this moment is theirs, whatever was needed lately. */
  #answerPoll(): void {
    this.counted.begin(this.group);
    this.#recent.clear();
    this.want();
    this.#plane.budget.ask();
  }

  tally(): void {
    const { lease } = this;
    const held = this.counted.held(this.group, this.asking);
    const isNews = this.counted.isNews(held, lease);
    lease.held = held;
    lease.asks = this.questions > 0;
    const isBusy = held >= lease.granted;
    lease.busyMs = isBusy ? this.counted.busyMs(this.group, this.#plane.reactor.now) : 0;
    if (isNews || lease.asks) lease.touch();
  }

  measure(): void {
    this.apply();
    this.#recent.next();
    this.lease.want(this.#recent.note(this.counted.demand(this.group)));
    this.counted.begin(this.group);
  }
}
