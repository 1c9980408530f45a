// Runs scripts on several clients at the same time, directly and pooled, and compares each client's replies. For
// transaction mode, where clients share servers in turn: each must get its own replies and no others.

import { type Difference, numberObjects } from "./compare.ts";
import type { Conversation } from "./conversation.ts";
import type { Script } from "./scripts.ts";
import type { Twins } from "./twins.ts";

const CLIENTS = 4;

/**
 * Each script is run once, by the client that is free first, and sent in that client's way. In text only: in binary a
 * value of a type that a user made has the type's number in it, which depends on who makes what first.
 */
export async function sideBySide(
  twins: Twins,
  scripts: readonly Script[],
  conversations: readonly Conversation[],
): Promise<Difference[]> {
  const queue = [...scripts];
  const found: Difference[] = [];
  const work = async (client: number) => {
    const conversation = conversations[client % conversations.length]!;
    const { pipelined } = conversation;
    for (let script = queue.shift(); script !== undefined; script = queue.shift()) {
      const exchanges = conversation.exchanges(script.statements);
      const masks = [numberObjects(), numberObjects()] as const;
      found.push(...await twins.compare(script.name, exchanges, { pipelined, masks }));
    }
  };
  await Promise.all(Array.from({ length: CLIENTS }, (_, client) => work(client)));
  return found;
}
