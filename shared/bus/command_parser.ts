// Reads what a NATS client sends: CONNECT, PING, PONG, PUB, HPUB, SUB, UNSUB. Pure bytes, no I/O;
// input may be split anywhere.
// Invariants: never holds more than one control line or one payload; after an error all further
// input is refused; strict about line ends, counts and lengths, so that no two readers disagree.
//
//     control line (at most 4096 bytes) \r\n [payload (exactly the announced bytes) \r\n]

import { Buffer } from "node:buffer";

export const maxControlLineBytes = 4096;

/** The texts NATS servers use after `-ERR`. */
export type ParseError =
  | "Unknown Protocol Operation"
  | "Maximum Control Line Exceeded"
  | "Maximum Payload Violation"
  | "Parser Error";

/** Who acts on the commands. Subjects are unchecked, text is one character per byte. */
export interface CommandSink {
  /** False ends the parsing, also in the middle of a chunk. */
  readonly open: boolean;
  /** Before each command is looked at, and before its payload is waited for; false refuses it. */
  allows(operation: string): boolean;
  onConnect(json: string): void;
  onPing(): void;
  onPong(): void;
  /** `data` begins with `headerBytes` bytes of headers; it is valid until this returns. */
  onPublish(subject: string, reply: string, headerBytes: number, data: Uint8Array): void;
  onSubscribe(subject: string, queue: string, sid: string): void;
  /** `max` 0: at once. */
  onUnsubscribe(sid: string, max: number): void;
}

interface Pending {
  readonly subject: string;
  readonly reply: string;
  readonly headerBytes: number;
  /** Payload and its line end. */
  readonly totalBytes: number;
}

const nothing = Buffer.alloc(0);
const cr = 13;
const lf = 10;

// deno-lint-ignore no-control-regex
const controls = /[\u0000-\u0008\u000a-\u001f\u007f]/;
const number = /^[0-9]{1,9}$/;

export class CommandParser {
  readonly #sink: CommandSink;
  readonly #maxPayloadBytes: number;
  /** The beginning of a control line whose end has not come. */
  #line: Buffer = nothing;
  /** The publish whose payload is awaited, and the part of it that came in earlier chunks. */
  #pending: Pending | null = null;
  #payload: Buffer | null = null;
  #payloadBytes = 0;
  #error: ParseError | null = null;

  constructor(sink: CommandSink, maxPayloadBytes: number) {
    this.#sink = sink;
    this.#maxPayloadBytes = maxPayloadBytes;
  }

  /** Acts on all complete commands of the chunk; an error is final. */
  feed(chunk: Buffer): ParseError | null {
    let at = 0;
    while (at < chunk.length && this.#error === null && this.#sink.open) {
      at = this.#pending === null ? this.#takeLine(chunk, at) : this.#takePayload(chunk, at);
    }
    return this.#error;
  }

  #takeLine(chunk: Buffer, at: number): number {
    const end = chunk.indexOf(lf, at);
    const piece = chunk.subarray(at, end === -1 ? chunk.length : end);
    // One more for the carriage return.
    if (this.#line.length + piece.length > maxControlLineBytes + 1) {
      this.#error = "Maximum Control Line Exceeded";
      return chunk.length;
    }
    const line = this.#line.length === 0 ? piece : Buffer.concat([this.#line, piece]);
    if (end === -1) {
      this.#line = Buffer.from(line);
      return chunk.length;
    }
    this.#line = nothing;
    if (line[line.length - 1] !== cr) this.#error = "Unknown Protocol Operation";
    else this.#error = this.#command(line.toString("latin1", 0, line.length - 1));
    return end + 1;
  }

  #command(line: string): ParseError | null {
    if (controls.test(line)) return "Unknown Protocol Operation";
    const operation = (/^[A-Za-z]+/.exec(line)?.[0] ?? "").toUpperCase();
    const rest = line.slice(operation.length);
    if (operation === "" || (rest !== "" && rest[0] !== " " && rest[0] !== "\t")) {
      return this.#sink.allows("") ? "Unknown Protocol Operation" : null;
    }
    if (!this.#sink.allows(operation)) return null;
    if (operation === "CONNECT") {
      this.#sink.onConnect(Buffer.from(rest, "latin1").toString("utf8"));
      return null;
    }
    const words = rest.split(/[ \t]+/).filter((word) => word !== "");
    switch (operation) {
      case "PING":
        if (words.length > 0) return "Unknown Protocol Operation";
        this.#sink.onPing();
        return null;
      case "PONG":
        if (words.length > 0) return "Unknown Protocol Operation";
        this.#sink.onPong();
        return null;
      case "PUB":
        return this.#publish(words, false);
      case "HPUB":
        return this.#publish(words, true);
      case "SUB":
        return this.#subscribe(words);
      case "UNSUB":
        return this.#unsubscribe(words);
      default:
        return "Unknown Protocol Operation";
    }
  }

  /** `PUB subject [reply] bytes`, `HPUB subject [reply] headerBytes bytes`. */
  #publish(words: string[], withHeaders: boolean): ParseError | null {
    const counts = words.splice(withHeaders ? -2 : -1);
    const [subject, reply = ""] = words;
    const size = counts[counts.length - 1];
    const headerSize = withHeaders ? counts[0] : "0";
    if (
      subject === undefined || words.length > 2 || size === undefined || !number.test(size) ||
      headerSize === undefined || !number.test(headerSize)
    ) return "Parser Error";
    const bytes = Number(size);
    const headerBytes = Number(headerSize);
    if (headerBytes > bytes) return "Parser Error";
    if (bytes > this.#maxPayloadBytes) return "Maximum Payload Violation";
    this.#pending = { subject, reply, headerBytes, totalBytes: bytes + 2 };
    return null;
  }

  /** `SUB subject [queue] sid`. */
  #subscribe(words: string[]): ParseError | null {
    const sid = words.pop();
    const [subject, queue = ""] = words;
    if (subject === undefined || sid === undefined || words.length > 2) return "Parser Error";
    this.#sink.onSubscribe(subject, queue, sid);
    return null;
  }

  /** `UNSUB sid [max]`. */
  #unsubscribe(words: string[]): ParseError | null {
    const [sid, max = "0"] = words;
    if (sid === undefined || words.length > 2 || !number.test(max)) return "Parser Error";
    this.#sink.onUnsubscribe(sid, Number(max));
    return null;
  }

  #takePayload(chunk: Buffer, at: number): number {
    const pending = this.#pending;
    if (pending === null) throw new Error("take payload: no publish is pending, wanted one");
    const total = pending.totalBytes;
    const end = Math.min(chunk.length, at + total - this.#payloadBytes);
    if (this.#payload === null && end - at === total) {
      this.#finish(pending, chunk.subarray(at, end));
      return end;
    }
    this.#payload ??= Buffer.allocUnsafe(total);
    chunk.copy(this.#payload, this.#payloadBytes, at, end);
    this.#payloadBytes += end - at;
    if (this.#payloadBytes === total) this.#finish(pending, this.#payload);
    return end;
  }

  #finish(pending: Pending, payload: Buffer): void {
    this.#pending = null;
    this.#payload = null;
    this.#payloadBytes = 0;
    const size = payload.length - 2;
    if (payload[size] !== cr || payload[size + 1] !== lf) {
      this.#error = "Parser Error";
      return;
    }
    const { subject, reply, headerBytes } = pending;
    this.#sink.onPublish(subject, reply, headerBytes, payload.subarray(0, size));
  }
}
