// The poolers that are compared, as running processes with one port each. All read the same kind of
// ini file: same pool, same limits, trust to both sides, server connections that stay open, no logging
// of connections; everything else as each product ships it. A fleet of PgBouncer divides the pool among its processes; pgweir
// takes the total and divides it itself.

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { runtimeCommand } from "../../shared/sys/mod.ts";
import type { Certificate } from "../support/certificates.ts";
import { until } from "../support/harness.ts";
import type { ManagedProcess } from "../support/managed_process.ts";
import { freePort, tempDir } from "../support/temp.ts";
import type { ContenderName } from "./options.ts";
import { atLeast } from "./pgbench_output.ts";
import { assertRunning, launch, type Program, type User } from "./programs.ts";
import { readUsage, type Usage } from "./usage.ts";

/** What all contenders are given. */
export interface Setting {
  readonly serverPort: number;
  readonly user: string;
  readonly poolSize: number;
  /** Most clients at once. */
  readonly maxClients: number;
  /** Most clients at once that hold a server connection each, in session pooling. */
  readonly maxSessions: number;
  readonly cores: number;
  readonly pgbouncer: Program;
  /** Whom PgBouncer runs as; null = as ourselves. */
  readonly pgbouncerUser: User | null;
  /** Whom clients see that have to come by TLS; null = no TLS. */
  readonly certificate: Certificate | null;
  /** The SCRAM secret of the user, who has to prove it; null = everybody is trusted. */
  readonly scramSecret: string | null;
}

export const POOLED_DATABASE = "bench";
export const SESSION_DATABASE = "bench_session";

export interface Contender {
  readonly name: ContenderName;
  readonly port: number;
  usage(): Usage;
  /** Throws when one of its processes has ended. */
  assertRunning(): void;
  stop(): Promise<void>;
}

export async function startContender(name: ContenderName, setting: Setting): Promise<Contender> {
  const port = await freePort();
  const workers = name.shape === "fleet" ? setting.cores : 1;
  const folder = tempDir(name.id);
  const iniFile = join(folder, "pooler.ini");
  const userFile = join(folder, "userlist.txt");
  writeFileSync(userFile, `"${setting.user}" "${setting.scramSecret ?? ""}"\n`);
  const place = { port, workers, userFile, consolePort: await freePort() };
  writeFileSync(iniFile, renderIni(name, setting, place));

  const children: ManagedProcess[] = [];
  const checkAll = () => children.forEach((child) => assertRunning(name.id, child));
  const stop = async () => {
    await Promise.all(children.map((child) => child.stop()));
  };
  try {
    const processes = name.product === "pgbouncer" ? workers : 1;
    for (let index = 0; index < processes; index++) {
      children.push(
        await launch(commandOf(name, setting, iniFile), {
          user: name.product === "pgbouncer" ? setting.pgbouncerUser : null,
          exitSignal: "SIGTERM", // a supervisor that is killed cannot stop its workers
        }),
      );
    }
    await until(`${name.id} to listen on port ${port}`, () => {
      checkAll();
      return countListeners(port) >= workers;
    }, 30_000);
  } catch (error) {
    await stop();
    throw error;
  }
  return {
    name,
    port,
    usage: () => readUsage(children.map((child) => child.pid)),
    assertRunning: checkAll,
    stop,
  };
}

function commandOf(name: ContenderName, setting: Setting, iniFile: string): string[] {
  if (name.runtime === null) return [setting.pgbouncer.path, iniFile];
  const cli = join(import.meta.dirname!, "../../services/cli.ts");
  const subCommand = name.shape === "single" ? "pooler" : "up";
  return [...runtimeCommand(name.runtime), cli, subCommand, iniFile];
}

/** How many sockets listen on a TCP port of IPv4: with SO_REUSEPORT one per process. */
function countListeners(port: number): number {
  const hexPort = port.toString(16).toUpperCase().padStart(4, "0");
  return readFileSync("/proc/net/tcp", "utf8").split("\n").filter((line) => {
    const [, local, , state] = line.trim().split(/\s+/);
    return state === "0A" && local?.endsWith(`:${hexPort}`) === true;
  }).length;
}

/** Whether this contender can serve prepared statements in transaction pooling. */
export function poolsPreparedStatements(name: ContenderName, pgbouncer: Program): boolean {
  return name.product === "pgweir" || atLeast(pgbouncer.version, [1, 21]);
}

interface Place {
  readonly port: number;
  readonly workers: number;
  readonly userFile: string;
  readonly consolePort: number;
}

export function renderIni(
  name: ContenderName,
  setting: Omit<Setting, "user" | "cores" | "pgbouncerUser">,
  place: Place,
): string {
  const { certificate, scramSecret } = setting;
  const server = `host=127.0.0.1 port=${setting.serverPort} dbname=${POOLED_DATABASE}`;
  const divisor = name.product === "pgbouncer" ? place.workers : 1;
  return [
    "[databases]",
    `${POOLED_DATABASE} = ${server} pool_mode=transaction`,
    ...(poolsPreparedStatements(name, setting.pgbouncer)
      ? []
      : [`${SESSION_DATABASE} = ${server} pool_mode=session pool_size=${setting.maxSessions}`]),
    "",
    "[pgbouncer]",
    "listen_addr = 127.0.0.1",
    `listen_port = ${place.port}`,
    "unix_socket_dir =",
    // A storm of logins is to come to the pooler, not to the kernel's retries.
    ...(scramSecret === null
      ? ["auth_type = trust"]
      : ["auth_type = scram-sha-256", "listen_backlog = 4096"]),
    `auth_file = ${place.userFile}`,
    "pool_mode = transaction",
    `default_pool_size = ${Math.ceil(setting.poolSize / divisor)}`,
    // Clients (and sessions) are not divided: how many reach a process is up to the kernel's hash,
    // and a share that is a little too small would refuse some.
    `max_client_conn = ${setting.maxClients}`,
    // Pools filled by the warm-up stay full, however long a contender waits for its turn.
    "server_idle_timeout = 0",
    "server_lifetime = 86400",
    "log_connections = 0",
    "log_disconnections = 0",
    ...(certificate === null ? [] : [
      "client_tls_sslmode = require",
      `client_tls_cert_file = ${certificate.certFile}`,
      `client_tls_key_file = ${certificate.keyFile}`,
    ]),
    ...(name.product === "pgbouncer" ? pgbouncerLines(name, setting) : pgweirLines(name, place)),
    "",
  ].join("\n");
}

function pgbouncerLines(name: ContenderName, setting: Pick<Setting, "pgbouncer">): string[] {
  return [
    ...(name.shape === "fleet" ? ["so_reuseport = 1"] : []),
    // Since 1.21, on by default only since 1.24.
    ...(poolsPreparedStatements(name, setting.pgbouncer) ? ["max_prepared_statements = 200"] : []),
  ];
}

function pgweirLines(name: ContenderName, place: Place): string[] {
  return [
    `workers = ${place.workers}`,
    `runtime = ${name.runtime}`,
    `console_listen = 127.0.0.1:${place.consolePort}`,
  ];
}
