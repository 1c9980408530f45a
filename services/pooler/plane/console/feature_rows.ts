// Rows about session features that clients used although pooling by transactions does not keep them: one
// for each pool, and one for each client that did.

import { features } from "../texts.ts";
import { columnsOf, type Row } from "./encode.ts";
import type { Moment } from "./view.ts";

export const featureColumns = columnsOf(
  `database s, user s, addr s, port i, ${features.map(({ column }) => `${column} i`).join(", ")}`,
);

export function* featureRows({ plane }: Moment): Generator<Row> {
  for (const { database, user, features } of plane.pools.values()) {
    yield [database.name, user, null, null, ...features];
  }
  for (const { database, user, address, features } of plane.clients) {
    if (features !== null) yield [database, user, address.host, address.port, ...features];
  }
}
