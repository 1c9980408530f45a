// Compares what two servers answered to the same bytes: message by message and byte by byte. What may differ is
// masked here and nowhere else: always the process that sent a notification and, in the schema field of errors, the
// name of the session's temporary schema; in transaction mode the names of prepared statements in errors; numbers of
// objects only where clients that run side by side make them in any order. It reports differences and judges nothing.

import {
  Backend,
  type Message,
  readInt16,
  readInt32,
  writeInt32,
} from "../../../shared/wire/mod.ts";
import { notation } from "../../support/notation.ts";
import type { Exchange } from "./conversation.ts";

export interface Difference {
  readonly script: string;
  readonly line: number;
  readonly sql: string;
  readonly direct: string;
  readonly pooled: string;
}

/** Rewrites messages so that equal means equal. One per connection: it counts what it has seen. */
export type Mask = (message: Message) => Message;

const FIRST_USER_OID = 16384;

/** The times that VERBOSE tells of. */
const TIMES = /(user|system|elapsed): \d+\.\d+ s/g;
const TEMPORARY_SCHEMA = /\0spg_temp_\d+\0/;

/** What no two servers need have in common: the sender of a notification, times, the session's temporary schema. */
export function maskAlways(reply: Message): Message {
  const { type, body } = reply;
  if (type === Backend.notification) {
    const masked = body.slice();
    writeInt32(masked, 0, 0);
    return { type, body: masked };
  }
  if (type === Backend.noticeResponse) {
    const text = Buffer.from(body).toString("latin1").replace(TIMES, "$1: s");
    return { type, body: new Uint8Array(Buffer.from(text, "latin1")) };
  }
  if (type === Backend.errorResponse) {
    const text = Buffer.from(body).toString("latin1");
    if (TEMPORARY_SCHEMA.test(text)) {
      const masked = text.replace(TEMPORARY_SCHEMA, "\0spg_temp\0");
      return { type, body: new Uint8Array(Buffer.from(masked, "latin1")) };
    }
  }
  return reply;
}

/**
 * Also leaves out of errors the name of a prepared statement, which in transaction mode a server knows by a name of the
 * pooler's; and where in PostgreSQL's source the name of a statement is refused, which the pooler does itself then.
 */
export function maskStatementNames(reply: Message): Message {
  const { type, body } = maskAlways(reply);
  if (type !== Backend.errorResponse) return { type, body };
  const text = Buffer.from(body).toString("latin1");
  const masked = text.replace(/prepared statement "(PGWEIR_|statement )\d+"/, "prepared statement")
    .replace(/(\0C42P05\0.*?)\0F[^\0]*\0L\d+\0R\w+\0/s, "$1\0");
  return { type, body: new Uint8Array(Buffer.from(masked, "latin1")) };
}

/** Also numbers the tables and types that users made in the order in which a connection sees them. */
export function numberObjects(): Mask {
  const numbers = new Map<number, number>();
  const renumber = (body: Uint8Array, at: number) => {
    const oid = readInt32(body, at) >>> 0;
    if (oid < FIRST_USER_OID) return;
    if (!numbers.has(oid)) numbers.set(oid, FIRST_USER_OID + numbers.size);
    writeInt32(body, at, numbers.get(oid)!);
  };
  return (reply) => {
    const { type, body } = maskStatementNames(reply);
    const masked = body.slice();
    if (type === Backend.parameterDescription) {
      for (let at = 2; at < masked.length; at += 4) renumber(masked, at);
    } else if (type === Backend.rowDescription) {
      let at = 2;
      for (let columns = readInt16(masked, 0); columns > 0; columns--) {
        at = masked.indexOf(0, at) + 1;
        renumber(masked, at);
        renumber(masked, at + 6);
        at += 18;
      }
    }
    return { type, body: masked };
  };
}

function equalMessages(a: Message, b: Message): boolean {
  return a.type === b.type && Buffer.compare(a.body, b.body) === 0;
}

function shown(reply: Message | undefined): string {
  if (reply === undefined) return "(nothing more)";
  const bytes = Buffer.from(reply.body);
  const text = bytes.length > 2000
    ? `${bytes.length} bytes`
    : JSON.stringify(bytes.toString("latin1"));
  return `${notation(reply)} ${text}`.slice(0, 600);
}

function firstDifference(
  direct: readonly Message[],
  pooled: readonly Message[],
  masks: readonly [Mask, Mask],
): [string, string] | null {
  let found: [string, string] | null = null;
  // To the end, since a mask counts what it sees.
  for (let at = 0; at < Math.max(direct.length, pooled.length); at++) {
    const a = direct[at] && masks[0](direct[at]!);
    const b = pooled[at] && masks[1](pooled[at]!);
    if (found !== null || (a && b && equalMessages(a, b))) continue;
    found = [`message ${at}: ${shown(a)}`, `message ${at}: ${shown(b)}`];
  }
  return found;
}

/** The exchanges whose replies differ. */
export function differences(
  script: string,
  exchanges: readonly Exchange[],
  direct: readonly Message[][],
  pooled: readonly Message[][],
  masks: readonly [Mask, Mask],
): Difference[] {
  return exchanges.flatMap(({ line, sql }, at) => {
    const found = firstDifference(direct[at] ?? [], pooled[at] ?? [], masks);
    return found === null ? [] : [{ script, line, sql, direct: found[0], pooled: found[1] }];
  });
}

/** A report of the first few; empty when there are none. */
export function report(found: readonly Difference[], most = 10): string {
  const shownOnes = found.slice(0, most).map((d) =>
    `${d.script}:${d.line}: ${d.sql.replace(/\s+/g, " ").trim().slice(0, 300)}\n` +
    `  direct ${d.direct}\n  pooled ${d.pooled}`
  );
  const rest = found.length > most ? [`and ${found.length - most} more`] : [];
  return shownOnes.concat(rest).join("\n");
}
