// COPY for node-postgres, which brings hooks for it and leaves the stream to others: just enough to send and to
// collect copy data in a test. Not a test.

import { Buffer } from "node:buffer";
import type pg from "pg";

/** What node-postgres hands to a query. */
interface Wire {
  query(text: string): void;
  sendCopyFromChunk(chunk: Buffer): void;
  endCopyFrom(): void;
  sendCopyFail(message: string): void;
}

/** A query object of node-postgres: the driver calls these when the messages arrive. */
class Copy {
  readonly #sql: string;
  readonly #chunks: readonly Uint8Array[];
  readonly #fail: string | null;
  readonly #settle: (error: Error | null) => void;
  readonly received: Uint8Array[] = [];
  tag = "";

  constructor(
    sql: string,
    chunks: readonly Uint8Array[],
    fail: string | null,
    settle: (error: Error | null) => void,
  ) {
    this.#sql = sql;
    this.#chunks = chunks;
    this.#fail = fail;
    this.#settle = settle;
  }

  submit(wire: Wire): null {
    wire.query(this.#sql);
    return null;
  }

  handleCopyInResponse(wire: Wire): void {
    for (const chunk of this.#chunks) wire.sendCopyFromChunk(Buffer.from(chunk));
    if (this.#fail === null) wire.endCopyFrom();
    else wire.sendCopyFail(this.#fail);
  }

  handleCopyData(message: { chunk: Uint8Array }): void {
    // The driver uses its buffer again.
    this.received.push(new Uint8Array(message.chunk));
  }

  handleCommandComplete(message: { text: string }): void {
    this.tag = message.text;
  }

  /** The last that the driver says of a query that fails. */
  handleError(error: Error): void {
    this.#settle(error);
  }

  handleReadyForQuery(): void {
    this.#settle(null);
  }
}

function run(
  client: pg.ClientBase,
  sql: string,
  chunks: readonly Uint8Array[],
  fail: string | null,
): Promise<Copy> {
  return new Promise((resolve, reject) => {
    const copy = new Copy(sql, chunks, fail, (error) => {
      if (error === null) resolve(copy);
      else reject(error);
    });
    client.query(copy as unknown as pg.Submittable);
  });
}

/** Sends copy data; with `fail` it breaks the copy off at its end. Gives the command tag. */
export async function copyIn(
  client: pg.ClientBase,
  sql: string,
  chunks: readonly Uint8Array[],
  fail: string | null = null,
): Promise<string> {
  return (await run(client, sql, chunks, fail)).tag;
}

/** Collects what a COPY TO STDOUT sends. */
export async function copyOut(client: pg.ClientBase, sql: string): Promise<string> {
  const decoder = new TextDecoder();
  const { received } = await run(client, sql, [], null);
  return received.map((chunk) => decoder.decode(chunk, { stream: true })).join("");
}
