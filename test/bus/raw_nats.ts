// A NATS client that is nothing but a socket: tests write protocol lines by hand and look at what
// comes back, byte for byte.

import { Buffer } from "node:buffer";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { until } from "../support/harness.ts";

export class RawNats {
  readonly socket: Socket;
  #received = Buffer.alloc(0);
  #closed = false;

  private constructor(socket: Socket) {
    this.socket = socket;
    socket.on("data", (bytes: Buffer) => {
      this.#received = Buffer.concat([this.#received, bytes]);
    });
    socket.on("error", () => {}); // "close" follows
    socket.on("close", () => {
      this.#closed = true;
    });
  }

  /** Connected and greeted, not logged in. */
  static async dial(port: number): Promise<RawNats> {
    const socket = connect({ host: "127.0.0.1", port, noDelay: true });
    const raw = new RawNats(socket);
    await once(socket, "connect");
    const text = await raw.expect(/^INFO \{[^\r\n]*\} ?\r\n/);
    raw.#received = raw.#received.subarray(text.indexOf("\n") + 1);
    return raw;
  }

  /** Logged in: `CONNECT` with the token and these options was answered. */
  static async login(
    port: number,
    token: string,
    options: Record<string, unknown> = {},
  ): Promise<RawNats> {
    const raw = await RawNats.dial(port);
    await raw.write(connectLine(token, options) + "PING\r\n");
    await raw.expect(/PONG\r\n/);
    raw.forget();
    return raw;
  }

  get text(): string {
    return this.#received.toString("latin1");
  }

  get closed(): boolean {
    return this.#closed;
  }

  forget(): void {
    this.#received = Buffer.alloc(0);
  }

  async write(text: string | Uint8Array): Promise<void> {
    const bytes = typeof text === "string" ? Buffer.from(text, "latin1") : text;
    await new Promise<void>((resolve, reject) =>
      this.socket.write(bytes, (error) => error ? reject(error) : resolve())
    );
  }

  /** Waits until all that came since `forget()` matches. */
  async expect(pattern: RegExp): Promise<string> {
    try {
      await until(`${pattern}`, () => pattern.test(this.text));
    } catch (error) {
      throw new Error(`${(error as Error).message}; got ${JSON.stringify(this.text.slice(-500))}`);
    }
    return this.text;
  }

  async untilClosed(): Promise<string> {
    await until("the broker to close the connection", () => this.#closed);
    return this.text;
  }

  close(): void {
    this.socket.destroy();
  }
}

export function connectLine(token: string, options: Record<string, unknown> = {}): string {
  return `CONNECT ${JSON.stringify({ auth_token: token, verbose: false, ...options })}\r\n`;
}

/** The promise, or an exception when it is not settled in time. */
export async function within<T>(what: string, promise: Promise<T>): Promise<T> {
  let settled = false;
  const mark = (): void => {
    settled = true;
  };
  promise.then(mark, mark);
  await until(what, () => settled);
  return await promise;
}
