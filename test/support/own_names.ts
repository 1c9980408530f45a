// Names for one process tree only: its own /etc/hosts, which a test changes while it runs, and its own name servers,
// of which there is none unless a test gives one. Everything else of the machine is shared, the network too.

import { spawnSync } from "node:child_process";
import { createSocket, type Socket } from "node:dgram";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { tempDir } from "./temp.ts";

/** Nobody answers there, until a test does; another address for each process. */
const nameServer = `127.77.${(process.pid >> 8) & 255}.${process.pid & 255}`;

/** Ends the test file as skipped where it may not have files of its own: not root, or a container. */
export function needsOwnNames(): void {
  const probe = ["--mount", "mount", "--bind", "/etc/hosts", "/etc/hosts"];
  if (spawnSync("unshare", probe, { stdio: "ignore" }).status === 0) return;
  console.log("SKIP mount namespaces not permitted");
  process.exit(0);
}

export class OwnNames {
  readonly #file: string;
  /** Put before a command: it sees these names. */
  readonly prefix: readonly string[];

  constructor(names: Readonly<Record<string, readonly string[]>>) {
    const dir = tempDir("names");
    this.#file = join(dir, "hosts");
    const resolv = join(dir, "resolv.conf");
    writeFileSync(resolv, `nameserver ${nameServer}\noptions timeout:7 attempts:1\n`);
    this.set(names);
    const script = 'mount --bind "$1" /etc/hosts; mount --bind "$2" /etc/resolv.conf; ' +
      'shift 2; exec "$@"';
    this.prefix = ["unshare", "--mount", "sh", "-c", script, "sh", this.#file, resolv];
  }

  /** From now on these are all the names there are. The file stays the same: it is mounted. */
  set(names: Readonly<Record<string, readonly string[]>>): void {
    const lines = Object.entries(names).flatMap(([name, addresses]) =>
      addresses.map((address) => `${address} ${name}\n`)
    );
    writeFileSync(this.#file, lines.join(""));
  }

  /** A name server that hears and never answers. */
  async silentServer(): Promise<{ readonly questions: number; close(): void }> {
    const socket: Socket = createSocket("udp4");
    let questions = 0;
    socket.on("message", () => questions++);
    await new Promise<void>((resolve, reject) => {
      socket.once("error", reject);
      socket.bind(53, nameServer, resolve);
    });
    return {
      get questions() {
        return questions;
      },
      close: () => socket.close(),
    };
  }
}
