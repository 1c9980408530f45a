// Door of the admin console: the conversation with a client, the plan of a query, what it reads of the
// plane, and the log line of statistics.

export { Conversation, type End } from "./conversation.ts";
export { adminNeeded, type Plan, planQuery } from "./plan.ts";
export { shownId } from "./shown_id.ts";
export { statsLine } from "./stats_rows.ts";
export type { Moment } from "./view.ts";
