// Clients that do not read, as a process of their own: readers_process.ts <host> <port> <database> <count> <sql>. A test
// that runs on Deno can't be so many of them itself: of dozens of sockets that are paused and read on, that runtime
// loses the events of others. Not a test. On its input it is told, a line each:
//   take   each takes a little more than 100 kB and stops again; answered with "taken"
// It ends with its input, and with it all its connections.

import { connect, type Socket } from "node:net";
import { createInterface } from "node:readline";
import { concatBytes, queryMessage, startupPacket } from "../../../shared/wire/mod.ts";

const [host, port, database, count, sql] = process.argv.slice(2);
const LITTLE = 100_000;

class Reader {
  received = 0;
  readonly #socket: Socket;

  constructor() {
    this.#socket = connect({ host: host!, port: Number(port) });
    this.#socket.on("error", () => {});
    this.#socket.on("data", (bytes: Uint8Array) => this.received += bytes.length);
    this.#socket.pause();
    const startup = startupPacket({ user: "postgres", database: database! });
    this.#socket.write(concatBytes(startup, queryMessage(sql!)));
  }

  async take(): Promise<void> {
    const enough = this.received + LITTLE;
    this.#socket.resume();
    while (this.received < enough) await new Promise((resolve) => setTimeout(resolve, 5));
    this.#socket.pause();
  }
}

const readers = Array.from({ length: Number(count) }, () => new Reader());
const lines = createInterface({ input: process.stdin });
lines.on("line", async () => {
  await Promise.all(readers.map((reader) => reader.take()));
  console.log("taken");
});
lines.on("close", () => process.exit(0));
