// This worker's share of one limit of a resource group: how many queries of the group and of all below it may run here at
// once, or wait. Cold code: what happens per query is the tree's (shared/groups), which goes by the number set here.

import { groupLeaf, type Lease, queueLeaf } from "../../../shared/ledger/mod.ts";
import type { AdmissionTree, Group } from "../../../shared/groups/mod.ts";
import type { LeaseOwner } from "./budget.ts";
import type { Plane } from "./plane.ts";
import { RecentDemand } from "./recent_demand.ts";

/** What is counted, and where the tree has its limit. */
interface Counted {
  leafOf(group: string): string;
  /** How long who lacks a slot is kept while others are to give back what they do not use. */
  readonly pendingMs: number;
  /** `asking`: queries that wait without a place, until the budget has answered. */
  held(group: Group, asking: number): number;
  demand(group: Group): number;
  limit(group: Group): number;
  /** Whether the coordinator should hear of it before the next full report that so many are held now. */
  isNews(held: number, lease: Lease): boolean;
  setLimit(tree: AdmissionTree, group: Group, slots: number, now: number): void;
  /** `demand` was asked for: a new span begins. */
  begin(group: Group): void;
}

/** Of max_concurrent_queries. */
export const running: Counted = {
  // Longer, and it is more likely for slots that are in use.
  pendingMs: 250,
  leafOf: groupLeaf,
  held: (group) => group.running,
  demand: (group) => Math.max(group.demand, group.peak),
  isNews: (held, { granted, held: before }) =>
    Math.max(held, granted) !== Math.max(before, granted),
  limit: (group) => group.lease,
  setLimit: (tree, group, slots, now) => tree.setLimit(group, slots, now),
  begin: (group) => group.peak = group.running,
};

/** Of max_queued. */
export const waiting: Counted = {
  pendingMs: 2000,
  leafOf: queueLeaf,
  held: (group, asking) => Math.max(0, group.queued - asking),
  demand: (group) => group.queued,
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

  /** The mesh has no more slots for this worker, as far as it has said. */
  get isAnswered(): boolean {
    const { lease } = this;
    return lease.wanted > lease.granted && lease.answered && !lease.pending;
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
    this.#onAnswer();
  }

  tally(): void {
    const { lease } = this;
    const held = this.counted.held(this.group, this.asking);
    const isNews = this.counted.isNews(held, lease);
    lease.held = held;
    if (isNews) lease.touch();
  }

  measure(): void {
    this.apply();
    this.#recent.next();
    this.lease.want(this.#recent.note(this.counted.demand(this.group)));
    this.counted.begin(this.group);
  }
}
