// A client for messages that nobody should keep whole, the tests included: what it sends is made up as it goes,
// what it receives is checked and counted. Large bodies consist of one byte, FILL, but for their first bytes.
// Beside it: how much a process grows at its largest, and a bystander that must be served meanwhile.

import { Buffer } from "node:buffer";
import { connect, type Socket } from "node:net";
import { processUsage } from "../../../shared/sys/mod.ts";
import {
  concatBytes,
  type Message,
  readInt32,
  startupPacket,
  writeInt32,
} from "../../../shared/wire/mod.ts";
import { assert, until } from "../../support/harness.ts";
import { f, notation } from "../../support/notation.ts";
import { type Login, RawClient } from "../../support/raw_client.ts";

export const MIB = 2 ** 20;
/** The letter x. */
export const FILL = 0x78;

const block = Buffer.alloc(MIB, FILL);
/** Bodies up to this size are kept; of larger ones only the first bytes. */
const KEPT_BYTES = 256;

export class BulkClient {
  /** Bytes received. */
  received = 0;
  closed = false;
  readonly #socket: Socket;
  #replies: string[] = [];
  #ready = 0;
  #header = Buffer.alloc(5);
  #headerLength = 0;
  #left = 0;
  #kept: Uint8Array[] = [];
  #keptBytes = 0;
  #others = 0;

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.on("error", () => {});
    socket.on("close", () => this.closed = true);
    socket.on("data", (bytes: Buffer) => this.#take(bytes));
  }

  static async login(target: { host: string; port: number }, as: Login): Promise<BulkClient> {
    const client = new BulkClient(connect({ host: target.host, port: target.port }));
    client.send(startupPacket({ user: as.user, database: as.database! }));
    const greeting = await client.replies();
    assert.match(greeting, /^R( S)+ K Z\(I\)$/);
    return client;
  }

  send(...parts: readonly Uint8Array[]): void {
    this.#socket.write(concatBytes(...parts));
  }

  /** Sends `head`, then `count` times FILL, then `tail`, no faster than the other side takes it. */
  async sendLarge(head: Uint8Array, count: number, tail: Uint8Array): Promise<void> {
    this.#socket.write(head);
    for (let left = count; left > 0 && !this.closed; left -= block.length) {
      const taken = this.#socket.write(block.subarray(0, Math.min(left, block.length)));
      if (!taken) await until("the bytes to be taken", () => this.#idle, 60_000, 1);
    }
    if (!this.closed && tail.length > 0) this.#socket.write(tail);
  }

  get #idle(): boolean {
    return this.closed || this.#socket.writableLength === 0;
  }

  /**
   * What came up to the `count`-th ReadyForQuery, in the short notation; a large message as its letter and the size
   * of its body, with an exclamation mark and the number of bytes that are not FILL when there are any.
   */
  async replies(count = 1, timeoutMs = 60_000): Promise<string> {
    await until(
      "ReadyForQuery",
      () => this.#ready >= count || this.closed,
      timeoutMs,
      1,
    );
    const came = this.#replies;
    this.#replies = [];
    this.#ready = 0;
    return came.concat(this.closed ? ["closed"] : []).join(" ");
  }

  pause(): void {
    this.#socket.pause();
  }

  resume(): void {
    this.#socket.resume();
  }

  close(): void {
    this.#socket.destroy();
  }

  #take(bytes: Buffer): void {
    this.received += bytes.length;
    let at = 0;
    while (at < bytes.length) {
      if (this.#headerLength < 5) {
        this.#header[this.#headerLength++] = bytes[at++]!;
        if (this.#headerLength < 5) continue;
        this.#left = readInt32(this.#header, 1) - 4;
      } else {
        const end = Math.min(bytes.length, at + this.#left);
        this.#body(bytes, at, end);
        this.#left -= end - at;
        at = end;
      }
      if (this.#left === 0) this.#end();
    }
  }

  #body(bytes: Buffer, from: number, end: number): void {
    const room = KEPT_BYTES - this.#keptBytes;
    const keptEnd = Math.min(end, from + room);
    if (keptEnd > from) {
      this.#kept.push(new Uint8Array(bytes.subarray(from, keptEnd)));
      this.#keptBytes += keptEnd - from;
    }
    for (let at = keptEnd; at < end; at += block.length) {
      const part = bytes.subarray(at, Math.min(end, at + block.length));
      if (part.equals(block.subarray(0, part.length))) continue;
      for (const byte of part) if (byte !== FILL) this.#others++;
    }
  }

  #end(): void {
    const length = readInt32(this.#header, 1) - 4;
    const message: Message = { type: this.#header[0]!, body: concatBytes(...this.#kept) };
    const letter = String.fromCharCode(message.type);
    this.#replies.push(
      length <= KEPT_BYTES
        ? notation(message, { values: true })
        : `${letter}[${length}]${this.#others > 0 ? `!${this.#others}` : ""}`,
    );
    if (letter === "Z") this.#ready++;
    this.#headerLength = 0;
    this.#kept = [];
    this.#keptBytes = 0;
    this.#others = 0;
  }
}

/** Runs something; gives how much larger than before a process was at its largest, in MiB. */
export async function growthOf(pid: number, work: () => Promise<void>): Promise<number> {
  const size = () => processUsage(pid)!.residentBytes;
  const before = size();
  let most = before;
  const timer = setInterval(() => most = Math.max(most, size()), 5);
  try {
    await work();
  } finally {
    clearInterval(timer);
  }
  return (Math.max(most, size()) - before) / MIB;
}

/** Asks one thing again and again beside something; it must be answered, rightly, while that goes on. */
export async function besides(
  target: { host: string; port: number },
  as: Login,
  work: () => Promise<void>,
): Promise<void> {
  const client = await RawClient.login(target, as);
  let over = false;
  let rounds = 0;
  const asking = (async () => {
    for (; !over; rounds++) {
      client.send(f.Q(`SELECT ${rounds}`));
      const got = await client.replies(1, { values: true, timeoutMs: 30_000 });
      assert.is(got, `T D("${rounds}") C"SELECT 1" Z(I)`);
      // Not as fast as it goes: its own garbage would hide what is looked for.
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  })();
  try {
    await work();
  } finally {
    over = true;
    await asking;
    await client.end();
  }
  assert.ok(rounds > 0, "no answer meanwhile");
}

/** Stands in a message where the large part goes. */
export const GAP = "<gap>";
const gap = new TextEncoder().encode(GAP);

/**
 * The beginning and the end of a message that has `count` bytes where GAP is. `sized`: the number in front of it is
 * its length, as for values.
 */
export function around(small: Uint8Array, count: number, sized = false): [Uint8Array, Uint8Array] {
  const at = Buffer.from(small).indexOf(gap);
  assert.ok(at > 0, "the message has a gap");
  const head = small.slice(0, at);
  writeInt32(head, 1, readInt32(small, 1) - gap.length + count);
  if (sized) writeInt32(head, at - 4, count);
  return [head, small.slice(at + gap.length)];
}
