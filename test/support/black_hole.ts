// An address that swallows everything, as a host that is switched off does: a listener that accepts nobody, with its
// queue full, so that the kernel drops what comes.

import { connect, type Socket } from "node:net";
import { closeFd, listenTcp } from "../../shared/sys/mod.ts";

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
      isFull = await new Promise<boolean>((resolve) => {
        const timer = setTimeout(() => resolve(true), 200);
        socket.once("connect", () => {
          clearTimeout(timer);
          resolve(false);
        });
      });
    }
    return new BlackHole(fd, sockets);
  }

  /** Nobody listens there any more. */
  fill(): void {
    for (const socket of this.#sockets) socket.destroy();
    closeFd(this.#fd);
  }
}
