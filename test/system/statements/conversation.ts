// Turns statements into what a client sends, in several ways, and collects what a server answers. An exchange is
// what is sent at once and the replies up to its last ReadyForQuery. Whose replies they are is of no interest here.

import {
  bindMessage,
  closeMessage,
  concatBytes,
  copyDataMessage,
  copyDoneMessage,
  describeMessage,
  executeMessage,
  Frontend,
  type Message,
  message,
  syncMessage,
} from "../../../shared/wire/mod.ts";
import type { RawClient } from "../../support/raw_client.ts";
import type { Statement } from "./psql_script.ts";

export interface Exchange {
  readonly line: number;
  /** For the report of a difference. */
  readonly sql: string;
  readonly bytes: Uint8Array;
  /** ReadyForQuery messages to wait for. */
  readonly ready: number;
}

/** A way to run statements. */
export interface Conversation {
  readonly name: string;
  /** Sends everything before it reads the first reply. */
  readonly pipelined: boolean;
  readonly exchanges: (statements: readonly Statement[]) => Exchange[];
}

const NUL = new Uint8Array(1);

/** The bytes of a text with one character per byte. */
function bytesOf(text: string): Uint8Array {
  return new Uint8Array(Buffer.from(text, "latin1"));
}

function query(sql: string): Uint8Array {
  return message(Frontend.query, bytesOf(sql), NUL);
}

function parse(name: string, sql: string): Uint8Array {
  return message(Frontend.parse, bytesOf(name), NUL, bytesOf(sql), NUL, new Uint8Array(2));
}

/** The data of each COPY and its end; a server that wants none ignores them. */
function copyData(statement: Statement): Uint8Array[] {
  if (statement.copyData === null) return [];
  const blocks = statement.copyData.length === 0 ? [""] : statement.copyData;
  return blocks.flatMap((block) => [
    ...block.split(/(?<=\n)/).filter((line) => line !== "").map((line) =>
      copyDataMessage(bytesOf(line))
    ),
    copyDoneMessage(),
  ]);
}

function exchange(statement: Statement, ready: number, parts: readonly Uint8Array[]): Exchange {
  return { line: statement.line, sql: statement.sql, ready, bytes: concatBytes(...parts) };
}

function simpleExchanges(statements: readonly Statement[]): Exchange[] {
  return statements.map((s) => exchange(s, 1, [query(s.sql), ...copyData(s)]));
}

/**
 * The extended protocol: every other statement is a named one that is prepared and described in a cycle of its own,
 * run in the next and closed in a third after some more statements, so that several live at the same time.
 */
function extendedExchanges(statements: readonly Statement[], format: 0 | 1): Exchange[] {
  const OPEN = 5;
  return statements.map((s, at) => {
    const name = at % 2 === 0 ? "" : `statement ${at}`;
    const run = [
      bindMessage("", name, [], [format]),
      describeMessage("P", ""),
      executeMessage("", 0),
      ...copyData(s),
      syncMessage(),
    ];
    if (name === "") return exchange(s, 1, [parse("", s.sql), ...run]);
    const old = at - 2 * OPEN;
    const closeOld = old > 0 ? [closeMessage("S", `statement ${old}`)] : [];
    const prepare = [...closeOld, parse(name, s.sql), describeMessage("S", name), syncMessage()];
    return exchange(s, 2, [...prepare, ...run]);
  });
}

/** Cycles of several statements: an error skips the rest of its cycle, and each is a transaction. */
function sharedCycles(statements: readonly Statement[]): Exchange[] {
  const CYCLE = 7;
  const exchanges: Exchange[] = [];
  for (let from = 0; from < statements.length; from += CYCLE) {
    const some = statements.slice(from, from + CYCLE);
    const parts = some.flatMap((s) => [
      parse("", s.sql),
      bindMessage("", "", []),
      describeMessage("P", ""),
      executeMessage("", 0),
      ...copyData(s),
    ]);
    exchanges.push({
      line: some[0]!.line,
      sql: some.map((s) => s.sql).join("\n"),
      bytes: concatBytes(...parts, syncMessage()),
      ready: 1,
    });
  }
  return exchanges;
}

export const simple: Conversation = {
  name: "simple protocol",
  pipelined: false,
  exchanges: simpleExchanges,
};

export const simplePipelined: Conversation = {
  name: "simple protocol, pipelined",
  pipelined: true,
  exchanges: simpleExchanges,
};

export const extendedText: Conversation = {
  name: "extended protocol, text",
  pipelined: false,
  exchanges: (statements) => extendedExchanges(statements, 0),
};

export const extendedBinary: Conversation = {
  name: "extended protocol, binary",
  pipelined: false,
  exchanges: (statements) => extendedExchanges(statements, 1),
};

export const extendedPipelined: Conversation = {
  name: "extended protocol, pipelined",
  pipelined: true,
  exchanges: (statements) => extendedExchanges(statements, 0),
};

export const extendedCycles: Conversation = {
  name: "extended protocol, several statements to a Sync",
  pipelined: false,
  exchanges: sharedCycles,
};

const STATEMENT_LIMIT_MS = 60_000;

/** Runs exchanges on a connection: the replies to each. It ends early, with fewer, when the connection does. */
export async function converse(
  client: RawClient,
  exchanges: readonly Exchange[],
  pipelined: boolean,
): Promise<Message[][]> {
  if (pipelined) client.send(...exchanges.map((e) => e.bytes));
  const replies: Message[][] = [];
  for (const { bytes, ready } of exchanges) {
    if (client.closeReason !== null) break;
    if (!pipelined) client.send(bytes);
    replies.push(await client.messagesUntil("Z", ready, STATEMENT_LIMIT_MS));
  }
  return replies;
}
