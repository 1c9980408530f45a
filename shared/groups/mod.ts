// Door of shared/groups: resource groups as decisions, without clock, input or output. Which queries may run now and
// who is next (tree.ts), and which group a query is in (rules.ts).

export type { Group } from "./group.ts";
export { Limit } from "./group.ts";
export { Outcome, Ticket, TicketState } from "./ticket.ts";
export { AdmissionTree, Verdict } from "./tree.ts";
export type { TreeOptions } from "./tree.ts";
export { type QueryFacts, RuleSet } from "./rules.ts";
export { readTag } from "./tag.ts";
export { type GroupUse, sumOfUse, useOf } from "./use.ts";
export { boundsMemory, dividesCpu } from "./wants.ts";
