// What a client without a server is answered, since no transaction is open. What has to be remembered for it are
// fields of the client: there may be very many that do nothing.

import { Frontend, readInt32 } from "../../../shared/wire/mod.ts";
import type { ClientSession } from "./client.ts";
import { error, readyIdle, type Refusal, refusals } from "./refusals.ts";
import { holdBack } from "./refused_begin.ts";

/** Whether a message of this type needs no server. */
export function isAnswered(client: ClientSession, type: number): boolean {
  client.rest();
  switch (type) {
    case Frontend.sync:
      client.skipsToSync = false;
      client.stream.sendBytes(readyIdle);
      return true;
    case Frontend.flush:
    // Late parts of a copy that has failed already: PostgreSQL ignores them too.
    case Frontend.copyData:
    case Frontend.copyDone:
    case Frontend.copyFail:
      return true;
  }
  return client.skipsToSync;
}

/** It waits no more, and what its group has let in for it does not begin. */
export function leaveQueue(client: ClientSession): void {
  if (client.place !== null) client.plane.admission.withdraw(client);
  client.pool?.dequeue(client);
}

/** Cancelled while it waited. */
export function cancelQueued(client: ClientSession): void {
  if (client.login !== null) return;
  leaveQueue(client);
  client.refuseWaiting(refusals.cancelledInQueue);
}

/**
 * Answers the request that `input` begins with by an error. Returns the length of the message that is
 * dealt with, which may be more than there is of it.
 */
export function refuseRequest(client: ClientSession, input: Uint8Array, refusal: Refusal): number {
  client.rest();
  client.stream.sendBytes(error(refusal));
  holdBack(client, input, 0, Math.min(1 + readInt32(input, 1), input.length), refusal);
  const type = input[0] as number;
  if (type === Frontend.query || type === Frontend.functionCall) {
    client.stream.sendBytes(readyIdle);
    return 1 + readInt32(input, 1);
  }
  client.skipsToSync = true;
  return 0;
}
