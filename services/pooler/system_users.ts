// Names of system users, for the method peer. Whoever is not in /etc/passwd (a directory service) is asked for with
// getent, where the system has it.

import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { promisify } from "node:util";

const getentMs = 5000;

/** The name of a user id; null if nobody has it. */
export async function systemUserName(uid: number): Promise<string | null> {
  const local = nameIn(await readFile("/etc/passwd", "utf8").catch(() => ""), uid);
  if (local !== null) return local;
  const ask = promisify(execFile);
  const asked = await ask("getent", ["passwd", String(uid)], { timeout: getentMs }).catch(() =>
    null
  );
  return asked === null ? null : nameIn(asked.stdout, uid);
}

function nameIn(passwd: string, uid: number): string | null {
  for (const line of passwd.split("\n")) {
    const [name = "", , id] = line.split(":");
    if (id === String(uid) && name !== "") return name;
  }
  return null;
}
