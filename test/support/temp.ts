// Temp folders that are gone when the test process ends, and free ports.

import { chmodSync, mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { atExit } from "./at_exit.ts";

/** A new empty folder that other users may enter; removed with its content when the process ends. */
export function tempDir(name = "t"): string {
  const dir = mkdtempSync(join(tmpdir(), `${name}-`));
  chmodSync(dir, 0o755);
  atExit(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

function canListen(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", () => resolve(false));
    server.listen({ port, host: "127.0.0.1" }, () => server.close(() => resolve(true)));
  });
}

/**
 * A TCP port on 127.0.0.1 that nothing listens on. It is taken from below the range the kernel uses for outgoing
 * connections, so that none of the many connections of a test takes it before the server under test does.
 */
export async function freePort(): Promise<number> {
  for (let attempt = 0; attempt < 100; attempt++) {
    const port = 10_000 + Math.floor(Math.random() * 22_000);
    if (await canListen(port)) return port;
  }
  throw new Error("find a free port: 100 random ones between 10000 and 32000 are taken");
}
