// Rows about what listens for the clients of transaction and statement pooling: one for each database, and
// client_encoding, in which a client of this worker has listened.

import { columnsOf, type Row } from "./encode.ts";
import type { Moment } from "./view.ts";

export const listenerColumns = columnsOf(
  "database s, client_encoding s, user s, state s, remote_pid i, channels i, clients i, waiting i, " +
    "received q, delivered q, dropped q, lost q",
);

export function* listenerRows({ plane }: Moment): Generator<Row> {
  for (const listener of plane.notifier.listeners) {
    const { database, encoding, user, state, server, channels, waiting, counts, losses } = listener;
    const clients = new Set<object>();
    for (const channel of channels.values()) {
      for (const client of channel.clients) clients.add(client);
    }
    yield [
      database.name,
      encoding,
      user,
      state,
      server?.processId ?? 0,
      channels.size,
      clients.size,
      waiting,
      counts.received,
      counts.delivered,
      counts.dropped,
      losses,
    ];
  }
}
