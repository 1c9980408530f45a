// The states of a server connection, and which follows which; and those of its transaction.

/** Who is in which state: see each member. */
export const ServerState = {
  /** connect() or login going on; leaves to tested, idle or closed. */
  login: "login",
  /** In the pool's idle list; leaves when linked, tested or closed. */
  idle: "idle",
  /** Linked to a client, or looks one up; leaves when that gives it back, or closed. */
  active: "active",
  /** Without a client; nothing is sent to it while a cancel for it is on its way. */
  beingCanceled: "being_canceled",
  /** Without a client; it still answers one that has gone, or queries of the pooler's. */
  tested: "tested",
  closed: "closed",
} as const;
export type ServerState = typeof ServerState[keyof typeof ServerState];

const from: Record<ServerState, readonly ServerState[]> = {
  login: [],
  idle: ["login", "active", "being_canceled", "tested"],
  active: ["idle", "login"],
  being_canceled: ["active", "tested"],
  tested: ["login", "idle", "active", "being_canceled"],
  closed: ["login", "idle", "active", "being_canceled", "tested"],
};

/** The state `to`, if it may follow `state`: anything else is a bug. */
export function moved(state: ServerState, to: ServerState): ServerState {
  if (from[to].includes(state)) return to;
  throw new Error(`move server connection: ${state} to ${to}, wanted ${from[to]}`);
}

/** Transaction status bytes of ReadyForQuery. */
export const statusIdle = 0x49;
const statusInTransaction = 0x54;
export const statusFailed = 0x45;

export function isStatus(status: number): boolean {
  return status === statusIdle || status === statusInTransaction || status === statusFailed;
}
