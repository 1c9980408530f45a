// What a server still owes: one byte per message that was sent to it and that it will answer, in
// order. It is what pairs replies with requests when messages are injected, answered here, or skipped
// by the server after an error. Pure; no bytes of any message pass through it.

/**
 * Kinds of requests. `own*` are the pooler's: their replies are swallowed. `*Here` are answered by
 * the pooler when they come to the front: the server never sees them.
 */
export const Request = {
  none: 0,
  /** A simple query; ends with ReadyForQuery. */
  query: 1,
  /** Sync; ends with ReadyForQuery and ends the skipping of messages after an error. */
  sync: 2,
  /** FunctionCall; ends with ReadyForQuery. */
  functionCall: 3,
  /** Parse of the unnamed statement, or with tracking off: ParseComplete is passed on. */
  parse: 4,
  /** Parse of a named statement: ParseComplete is passed on; has a journal entry. */
  parseNamed: 5,
  /** Parse injected because this server lacked the statement; has a journal entry. */
  ownParse: 6,
  /** Parse of a statement that this server has already; has a journal entry. */
  parseHere: 7,
  bind: 8,
  describe: 9,
  execute: 10,
  /** Close passed to the server. */
  close: 11,
  /** Close injected to evict a statement; has a journal entry. */
  ownClose: 12,
  /** Close of a client's name for a shared statement; has a journal entry. */
  closeHere: 13,
  /** A simple query of the pooler (SET ...): everything up to its ReadyForQuery is swallowed. */
  ownQuery: 14,
  /** CopyDone or CopyFail was sent; no reply of its own. */
  copyEnd: 15,
  /** A message that cannot succeed, replaced by one that fails: the error text is the client's. */
  failsHere: 16,
  /** An Execute that drops prepared statements; has a journal entry. */
  executeDrop: 17,
} as const;

export class Requests {
  #codes = new Uint8Array(32);
  #head = 0;
  #count = 0;
  /** Requests that end with ReadyForQuery: the server answers them without more from the client. */
  cycles = 0;

  get count(): number {
    return this.#count;
  }

  /** Whether a ReadyForQuery will follow the last request. */
  get endsCycle(): boolean {
    let index = this.#count - 1;
    while (index >= 0 && this.at(index) === Request.copyEnd) index--;
    if (index < 0) return false;
    const last = this.at(index);
    return last === Request.query || last === Request.sync || last === Request.functionCall;
  }

  /** Whether the one at the front is not the server's to answer. */
  get isHere(): boolean {
    const front = this.front();
    return front === Request.parseHere || front === Request.closeHere || front === Request.copyEnd;
  }

  front(): number {
    return this.#count === 0 ? Request.none : this.#codes[this.#head] as number;
  }

  push(code: number): void {
    if (this.#count === this.#codes.length) this.#grow();
    this.#codes[(this.#head + this.#count) & (this.#codes.length - 1)] = code;
    this.#count++;
    if (code <= Request.functionCall) this.cycles++;
  }

  pop(): number {
    if (this.#count === 0) return Request.none;
    const code = this.#codes[this.#head] as number;
    this.#head = (this.#head + 1) & (this.#codes.length - 1);
    this.#count--;
    if (code <= Request.functionCall) this.cycles--;
    return code;
  }

  at(index: number): number {
    return this.#codes[(this.#head + index) & (this.#codes.length - 1)] as number;
  }

  clear(): void {
    this.#head = 0;
    this.#count = 0;
    this.cycles = 0;
  }

  /**
   * The server entered copy-in mode for the request at the front. It ignores a Sync that it reads
   * before the end of the copy data, and any other request there is consumed by the copy's failure.
   */
  enterCopyIn(): boolean {
    const kept: number[] = [this.front()];
    let index = 1;
    let ended = false;
    for (; index < this.#count; index++) {
      const code = this.at(index);
      if (code === Request.sync) continue;
      if (code === Request.copyEnd) ended = true;
      else kept.push(Request.none); // swallowed by the copy: it fails, and this one is not answered
      index++;
      break;
    }
    for (; index < this.#count; index++) kept.push(this.at(index));
    this.clear();
    for (const code of kept) if (code !== Request.none) this.push(code);
    return ended;
  }

  #grow(): void {
    const larger = new Uint8Array(this.#codes.length * 2);
    for (let i = 0; i < this.#count; i++) larger[i] = this.at(i);
    this.#codes = larger;
    this.#head = 0;
  }
}

/** Whether a request of this kind has an entry in the journal. */
export function hasJournal(code: number): boolean {
  return code === Request.parseNamed || code === Request.ownParse || code === Request.parseHere ||
    code === Request.ownClose || code === Request.closeHere || code === Request.failsHere ||
    code === Request.executeDrop;
}
