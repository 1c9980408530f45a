// Going into the background, as `-d` of PgBouncer does. A runtime can't fork, so the process that was started
// runs the same command again in a session of its own, passes on what that prints, and ends when it says that
// it is ready, or ends itself.

import { spawn } from "node:child_process";
import { writeSync } from "node:fs";
import process from "node:process";
import { ownCommand } from "../sys/mod.ts";

/** Set for the child, and for nobody below it. */
const variable = "PGWEIR_BACKGROUND";
const inBackground = process.env[variable] === "1";
delete process.env[variable];

/** Whether this process is the one in the background. */
export function isInBackground(): boolean {
  return inBackground;
}

/** What the child says on standard output when it is ready; until then it prints nothing else there. */
const readyMark = "ready\n";

export function tellReady(): void {
  writeSync(1, readyMark);
}

/** Runs the command of this process in the background; returns the exit code: 0 when it is ready. */
export function runInBackground(): Promise<number> {
  const [program, ...args] = ownCommand();
  const child = spawn(program as string, args, {
    detached: true,
    env: { ...process.env, [variable]: "1" },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const toStderr = (text: Uint8Array) => {
    try {
      writeSync(2, text);
    } catch {
      // Nobody reads it: no reason for the daemon not to start.
    }
  };
  return new Promise((resolve) => {
    let said = "";
    child.stdout.on("data", (text: Uint8Array) => {
      said += new TextDecoder().decode(text);
      if (said === readyMark) resolve(0);
    });
    child.stderr.on("data", toStderr);
    child.on("error", (error) => {
      toStderr(new TextEncoder().encode(`pgweir: start in the background: ${error.message}\n`));
      resolve(1);
    });
    // Not "exit": what it had to say comes first.
    child.on("close", (code) => resolve(code === null || code === 0 ? 1 : code));
  });
}
