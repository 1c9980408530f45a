// What goes to standard output and standard error besides log lines, written before the call returns, so
// that process.exit() cuts nothing off. A reader that went away (a closed pipe, a closed terminal) is no
// reason to stop pooling: such errors are dropped.

import { writeSync } from "node:fs";

export function printOut(text: string): void {
  write(1, text);
}

export function printError(text: string): void {
  write(2, text);
}

function write(fd: number, text: string): void {
  let bytes: Uint8Array = new TextEncoder().encode(text);
  try {
    while (bytes.length > 0) bytes = bytes.subarray(writeSync(fd, bytes));
  } catch {
    // See above; EAGAIN of a full non-blocking pipe loses the rest of this text, too.
  }
}

/**
 * Cuts a stream into whole lines, so that those of several children don't mix within a line, and keeps the
 * last one that says anything. A line longer than `limit` characters is passed on in pieces.
 */
export class LineSplitter {
  readonly #onLine: (line: string) => void;
  readonly #limit: number;
  readonly #decoder = new TextDecoder();
  #rest = "";
  /** The last line that was not blank, or "". */
  last = "";

  constructor(onLine: (line: string) => void, limit = 16 * 1024) {
    this.#onLine = onLine;
    this.#limit = limit;
  }

  push(chunk: Uint8Array): void {
    const parts = (this.#rest + this.#decoder.decode(chunk, { stream: true })).split("\n");
    this.#rest = parts.pop()!;
    for (const line of parts) this.#emit(line);
    while (this.#rest.length >= this.#limit) {
      this.#emit(this.#rest.slice(0, this.#limit));
      this.#rest = this.#rest.slice(this.#limit);
    }
  }

  end(): void {
    const rest = this.#rest + this.#decoder.decode();
    this.#rest = "";
    if (rest !== "") this.#emit(rest);
  }

  #emit(line: string): void {
    if (line.trim() !== "") this.last = line.trim();
    this.#onLine(line);
  }
}
