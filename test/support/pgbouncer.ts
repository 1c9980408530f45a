// Debian's PgBouncer with a configuration of its own, to compare with and to prove test support against.

import { chmodSync, chownSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { iniText, userlistText, withDefaults } from "./ini.ts";
import { ManagedProcess } from "./managed_process.ts";
import { findProgram } from "./needs.ts";
import { DEFAULT_USERS, defaultSettings, Pooler, type PoolerOptions } from "./pooler.ts";
import { RawClient } from "./raw_client.ts";
import { freePort, tempDir } from "./temp.ts";

export class Pgbouncer extends Pooler {
  workerPids(): number[] {
    return this.process.running ? [this.pid] : [];
  }
}

/** The user PgBouncer runs as: it refuses to run as root. */
function unprivilegedUser(): { uid: number; gid: number } | null {
  if (process.getuid?.() !== 0) return null;
  const nobody = readFileSync("/etc/passwd", "utf8").split("\n").map((line) => line.split(":"))
    .find((fields) => fields[0] === "nobody");
  if (nobody === undefined) throw new Error('start PgBouncer: no user "nobody" to run it as');
  return { uid: Number(nobody[2]), gid: Number(nobody[3]) };
}

export async function startPgbouncer(options: PoolerOptions): Promise<Pgbouncer> {
  const program = findProgram("pgbouncer");
  if (program === null) throw new Error("start PgBouncer: not installed");
  const dir = tempDir("pgb");
  const port = await freePort();
  const iniFile = join(dir, "pgbouncer.ini");
  const users = options.userlist ?? DEFAULT_USERS;
  // Debian's is older than this setting.
  const { query_wait_notify: _, ...settings } = defaultSettings(port, dir);
  const defaults = { pgbouncer: settings };
  writeFileSync(join(dir, "userlist.txt"), typeof users === "string" ? users : userlistText(users));
  writeFileSync(
    iniFile,
    typeof options.ini === "string" ? options.ini : iniText(withDefaults(options.ini, defaults)),
  );
  chmodSync(dir, 0o755);
  const user = unprivilegedUser();
  if (user !== null) chownSync(dir, user.uid, user.gid);
  const server = await ManagedProcess.launch({
    command: [program, iniFile],
    ...(user === null ? {} : { user }),
  });
  await server.ready("PgBouncer to listen", async () => {
    const client = await RawClient.connect({ host: "127.0.0.1", port }).catch(() => null);
    client?.close();
    return client !== null;
  });
  return new Pgbouncer(server, port, dir, iniFile);
}
