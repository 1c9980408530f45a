// This worker's slots of one resource group with a limit: as many queries of the group and of all below it may run here
// at once. Cold code: what happens per query is the tree's (shared/groups), which goes by the number set here.

import { groupLeaf, type Lease } from "../../../shared/ledger/mod.ts";
import type { AdmissionTree, Group } from "../../../shared/groups/mod.ts";
import type { LeaseOwner } from "./budget.ts";
import type { Plane } from "./plane.ts";
import { RecentDemand } from "./recent_demand.ts";

export class GroupLease implements LeaseOwner {
  readonly group: Group;
  readonly lease: Lease;
  readonly #plane: Plane;
  readonly #tree: AdmissionTree;
  readonly #recent = new RecentDemand();
  readonly #onAnswer: () => void;

  /** `onAnswer`: its numbers changed, or a report of it was answered. */
  constructor(plane: Plane, tree: AdmissionTree, group: Group, onAnswer: () => void) {
    this.#plane = plane;
    this.#tree = tree;
    this.group = group;
    this.#onAnswer = onAnswer;
    this.lease = plane.budget.lease(groupLeaf(group.name), this);
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
    if (group.lease === lease.limit) return;
    const isLess = lease.limit < group.lease;
    this.#tree.setLimit(group, lease.limit, this.#plane.reactor.now);
    // What was taken can be given to others when it is known to be.
    if (isLess) this.#plane.budget.ask();
  }

  /** Asks for what is lacking. */
  want(): void {
    this.lease.want(this.#recent.note(Math.max(this.group.demand, this.group.peak)));
    if (this.lease.wanted > this.lease.granted) this.#plane.budget.ask();
  }

  onLease(): void {
    this.apply();
    this.#onAnswer();
  }

  tally(): void {
    const { lease, group: { running } } = this;
    const isNews = Math.max(running, lease.granted) !== Math.max(lease.held, lease.granted);
    lease.held = running;
    if (isNews) lease.touch();
  }

  measure(): void {
    const { group } = this;
    this.apply();
    this.#recent.next();
    this.lease.want(this.#recent.note(Math.max(group.demand, group.peak)));
    group.peak = group.running;
  }
}
