// What the tests of LISTEN share: what a client was told, up to a notification of the test's own that is sent past
// the pooler. Notifications come in the order of their commits, so nothing sent before that one is still to come,
// and what did not come is not coming. Not a test.

import { Backend, type Message, parseErrorFields } from "../../../shared/wire/mod.ts";
import { notation } from "../../support/notation.ts";
import type { ConsoleRow, Pooler } from "../../support/pooler.ts";
import { RawClient, type Target } from "../../support/raw_client.ts";
import { open } from "../protocol/support.ts";

const text = new TextDecoder();
let stops = 0;

/** A message as the tests write it: "channel: payload", "code message" of notices and errors, else the notation. */
export function told(message: Message): string {
  const { type, body } = message;
  if (type === Backend.notification) {
    const [channel, payload] = text.decode(body.subarray(4)).split("\0");
    return `${channel}: ${payload}`;
  }
  if (type !== Backend.noticeResponse && type !== Backend.errorResponse) return notation(message);
  const fields = parseErrorFields(body);
  return `${fields.severity} ${fields.code} ${fields.message}`;
}

/** What comes up to a message that is written so, that one left out. */
export async function toldBefore(
  client: RawClient,
  last: string,
  timeoutMs = 30_000,
): Promise<string[]> {
  const all: string[] = [];
  for (;;) {
    const message = await client.message(timeoutMs).catch((error) => {
      throw new Error(`${error.message}, after ${JSON.stringify(all.slice(-10))}`);
    });
    if (message === null) return [...all, "closed"];
    const said = told(message);
    if (said === last) return all;
    if (!said.startsWith("stop: ")) all.push(said);
  }
}

/** A client that listens to these channels and to that of the test's own. */
export async function listening(
  target: Target,
  database: string,
  ...channels: string[]
): Promise<RawClient> {
  const client = await open(target, { user: "postgres", database });
  for (const channel of ["stop", ...channels]) await client.query(`LISTEN ${channel}`);
  return client;
}

/** Everything a listening client was told that was sent by now. `direct`: past the pooler, to its database. */
export async function heard(client: RawClient, direct: RawClient): Promise<string[]> {
  const stop = `stop ${++stops}`;
  await direct.query(`NOTIFY stop, '${stop}'`);
  return await toldBefore(client, `stop: ${stop}`);
}

/** The only row of SHOW LISTENERS for a database. */
export async function listenerRow(pooler: Pooler, database: string): Promise<ConsoleRow> {
  const rows = await pooler.console("SHOW LISTENERS");
  const found = rows.filter((row) => row["database"] === database);
  if (found.length !== 1) {
    throw new Error(`SHOW LISTENERS: ${found.length} rows of ${database}, wanted 1`);
  }
  return found[0]!;
}
