// Trees of groups in one line each, and clients in them, for the tests of shared/groups.

import type { GroupConfig } from "../../shared/config/mod.ts";
import { AdmissionTree, type GroupUse, Ticket } from "../../shared/groups/mod.ts";

type Some = Partial<GroupConfig>;

export const noUse: GroupUse = {
  name: "",
  running: 0,
  queued: 0,
  memory: 0,
  granted: 0,
  admitted: 0,
  refused: 0,
  timedOut: 0,
  queuedMs: 0,
  runningMs: 0,
  lastUsed: 0,
};

export function group(name: string, some: Some = {}): GroupConfig {
  return {
    name,
    parent: null,
    maxConcurrentQueries: 0,
    maxQueued: 0,
    queueing: true,
    queueTimeoutMs: 0,
    softMaxMemory: 0,
    minQueryMemory: 0,
    cpuShares: 1024,
    priority: 0,
    shed: "normal",
    bounds: null,
    ...some,
  };
}

const keys: Record<string, string> = {
  max: "maxConcurrentQueries",
  queued: "maxQueued",
  timeout: "queueTimeoutMs",
  soft: "softMaxMemory",
  memory: "minQueryMemory",
  weight: "cpuShares",
  priority: "priority",
};

/** "top max=6; a<top max=2 priority=1; b<top noqueue" */
export function groupsOf(text: string): GroupConfig[] {
  return text.split(";").map((part) => {
    const [head, ...words] = part.trim().split(/\s+/);
    const [name, parent = null] = head!.split("<");
    const some: Record<string, unknown> = { parent };
    for (const word of words) {
      const [key, value] = word.split("=");
      if (key === "noqueue") some.queueing = false;
      else some[keys[key!]!] = Number(value);
    }
    return group(name!, some);
  });
}

/** A tree, and clients "a1" (the group's name and a number) who ask and leave. */
export class World {
  readonly tree: AdmissionTree<string>;
  readonly tickets = new Map<string, Ticket<string>>();
  now = 1000;

  constructor(groups: string | readonly GroupConfig[], agingMs = 0, initialLease = Infinity) {
    const all = typeof groups === "string" ? groupsOf(groups) : groups;
    const options = { groups: all, priorityAgingMs: agingMs };
    this.tree = new AdmissionTree<string>(options, initialLease);
  }

  ticket(client: string): Ticket<string> {
    let ticket = this.tickets.get(client);
    if (ticket === undefined) this.tickets.set(client, ticket = new Ticket(client));
    return ticket;
  }

  /** "run", "queued", or "refused: a max_queued, top max_concurrent_queries" */
  ask(client: string): string {
    const ticket = this.ticket(client);
    const verdict = this.tree.request(ticket, this.#groupOf(client), this.now);
    if (verdict !== "refused") return verdict;
    return `refused: ${ticket.closedGroup!.name} ${ticket.closedLimit}, ${full(ticket)}`;
  }

  /** All ask; the verdicts, "r" for run, "q" for queued, "x" for refused. */
  askAll(clients: string): string {
    return clients.split(" ").map((client) => {
      const verdict = this.ask(client);
      return verdict === "run" ? "r" : verdict === "queued" ? "q" : "x";
    }).join("");
  }

  /** Ends a query; who runs instead. */
  end(client: string): string {
    this.tree.release(this.ticket(client), this.now);
    return this.drain();
  }

  cancel(client: string): string {
    this.tree.cancel(this.ticket(client), this.now);
    return this.drain();
  }

  limit(name: string, slots: number): string {
    this.tree.setLimit(this.tree.group(name)!, slots, this.now);
    return this.drain();
  }

  expire(): string {
    this.tree.expire(this.now);
    return this.drain();
  }

  configure(groups: readonly GroupConfig[], agingMs: number): string {
    this.tree.reconfigure({ groups, priorityAgingMs: agingMs }, this.now);
    return this.drain();
  }

  /** "a1 b2", with what has become of those that do not run: "a1 timed_out(a max_concurrent_queries)". */
  drain(): string {
    const all: string[] = [];
    for (let ticket = this.tree.next(); ticket !== null; ticket = this.tree.next()) {
      const { owner, outcome } = ticket;
      if (outcome === "run") all.push(owner);
      else all.push(`${owner} ${outcome}${outcome === "timed_out" ? `(${full(ticket)})` : ""}`);
    }
    return all.join(" ");
  }

  /** "top 3+1 a 2+0 b 1+1": running and queued */
  counts(): string {
    return this.tree.groups.map(({ name, running, queued }) => `${name} ${running}+${queued}`)
      .join(" ");
  }

  #groupOf(client: string) {
    return this.tree.group(client.replace(/\d+$/, ""))!;
  }
}

function full(ticket: Ticket<string>): string {
  return `${ticket.fullGroup!.name} ${ticket.fullLimit}`;
}
