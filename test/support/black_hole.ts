// An address that swallows everything, as a host that is switched off does: a listener that accepts nobody, with its
// queue full, so that the kernel drops what comes.

import { readFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { closeFd, listenTcp } from "../../shared/sys/mod.ts";
import { until } from "./harness.ts";

const ESTABLISHED = "01";
const SYN_SENT = "02";

/** The states of the connections to an IPv4 address of this host, as the kernel has them. */
function statesOf(host: string, port: number): string[] {
  const bytes = host.split(".").reverse().map((byte) => Number(byte).toString(16).padStart(2, "0"));
  const wanted = `${bytes.join("")}:${port.toString(16).padStart(4, "0")}`.toUpperCase();
  return readFileSync("/proc/net/tcp", "utf8").split("\n").flatMap((line) => {
    const [, , remote, state] = line.trim().split(/\s+/);
    return remote === wanted && state !== undefined ? [state] : [];
  });
}

export class BlackHole {
  readonly #fd: number;
  readonly #sockets: readonly Socket[];

  private constructor(fd: number, sockets: readonly Socket[]) {
    this.#fd = fd;
    this.#sockets = sockets;
  }

  /** Opens it; from now on no connection to it is made, nor refused. */
  static async dig(host: string, port: number): Promise<BlackHole> {
    const { fd } = listenTcp({ host, port, backlog: 1, reusePort: false });
    const sockets: Socket[] = [];
    // The last one is not connected any more: then the queue is full.
    for (let isFull = false; !isFull;) {
      const socket = connect({ host, port });
      socket.on("error", () => {});
      sockets.push(socket);
      let looks = 0;
      isFull = await until(
        "the kernel to take a connection, or not",
        () => {
          const states = statesOf(host, port);
          if (states.filter((state) => state === ESTABLISHED).length === sockets.length) {
            return "taken";
          }
          // On this host an answer that comes at all is there at once.
          if (states.includes(SYN_SENT)) looks++;
          return looks > 4 ? "dropped" : null;
        },
        30_000,
        50,
      ) === "dropped";
    }
    return new BlackHole(fd, sockets);
  }

  /** Nobody listens there any more. */
  fill(): void {
    for (const socket of this.#sockets) socket.destroy();
    closeFd(this.#fd);
  }
}
