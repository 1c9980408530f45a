// What follows a BEGIN that was refused. Who has sent it may have sent the rest already, or not look at answers: each
// request that was let in would be committed on its own, and a ROLLBACK would undo nothing. So the client is held back:
// what it sends is refused as its BEGIN was, until it ends the transaction or begins one anew, which is judged as ever.
// Bounds: one object for a client, none for those that were refused no BEGIN.

import { beginsBlock, endsBlock, Frontend, leavesBlock } from "../../../shared/wire/mod.ts";
import type { ClientSession } from "./client.ts";
import { zeroAt } from "./prepared.ts";
import { type Answers, answersOf, type Refusal } from "./refusals.ts";

/** Who has lost its BEGIN and does nothing about it, as a pool of an application may, is not refused for ever. */
const heldBackMs = 5000;

export class RefusedBegin {
  readonly until: number;
  readonly #refusal: Refusal;
  #answers: Answers | null = null;

  constructor(refusal: Refusal, now: number) {
    this.until = now + heldBackMs;
    this.#refusal = refusal;
  }

  get answers(): Answers {
    const { code, message } = this.#refusal;
    return this.#answers ??= answersOf({
      code,
      message: "the request was refused: it is behind a BEGIN that was refused",
      detail: `The BEGIN was refused with: ${message}`,
      hint: "Nothing of the transaction was executed: send ROLLBACK, and begin it again after a " +
        `pause. Without either, requests are let in again ${heldBackMs / 1000} s after the BEGIN`,
    });
  }
}

/** Whether something of a client that would begin a transaction may be refused; not called within one. */
export function isJudged(client: ClientSession, { shedding }: { shedding: number }): boolean {
  return shedding > 0 || client.behind !== null;
}

/** The message at [at, limit) is refused, as much of it as is there; whether it was a BEGIN is found out. */
export function holdBack(
  client: ClientSession,
  bytes: Uint8Array,
  at: number,
  limit: number,
  refusal: Refusal,
): void {
  if (!isText(client, bytes, at, limit, leavesBlock, false)) return;
  client.behind = new RefusedBegin(refusal, client.plane.reactor.now);
}

/** What is answered to the message at [at, limit) of the arena; null: its client is not held back, or not any more. */
export function answersBehind(client: ClientSession, at: number, limit: number): Answers | null {
  const { behind, plane: { arena: { bytes }, reactor } } = client;
  if (behind === null) return null;
  if (
    reactor.now < behind.until && !endsTransaction(client, at, limit) &&
    !isText(client, bytes, at, limit, beginsBlock, false)
  ) return behind.answers;
  client.behind = null;
  return null;
}

/**
 * Drivers end transactions that never began, and take an error there for a broken connection; a transaction that is
 * prepared holds its locks until it is ended.
 */
export function endsTransaction(client: ClientSession, at: number, limit: number): boolean {
  return isText(client, client.plane.arena.bytes, at, limit, endsBlock, true);
}

/** Whether the message at [at, limit) brings or executes such a text; of a part of one that may not be known. */
function isText(
  client: ClientSession,
  bytes: Uint8Array,
  at: number,
  limit: number,
  isSuch: (bytes: Uint8Array, from: number, to: number) => boolean,
  isWhole: boolean,
): boolean {
  switch (bytes[at]) {
    case Frontend.query:
    case Frontend.parse: {
      const from = bytes[at] === Frontend.query ? at + 5 : zeroAt(bytes, at + 5, limit) + 1;
      const to = zeroAt(bytes, from, limit);
      return !(isWhole && to >= limit) && isSuch(bytes, from, to);
    }
    case Frontend.bind: {
      const from = zeroAt(bytes, at + 5, limit) + 1;
      const statement = client.names?.get(bytes, from, zeroAt(bytes, from, limit))?.statement;
      if (statement === undefined) return false;
      const { parse, bodyAt } = statement;
      return isSuch(parse, bodyAt, zeroAt(parse, bodyAt, parse.length));
    }
    default:
      return false;
  }
}
