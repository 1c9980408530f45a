// A database host in one place: a real PostgreSQL, a nats-server, and `pgweir overload` as its operator would run it, by the
// file of a pooler. And what the kernel says of the cgroups that come and go, version 1.

import { accessSync, constants, readdirSync, readFileSync } from "node:fs";
import { resolve } from "node:path";
import { runtimeCommand } from "../../../shared/sys/mod.ts";
import { until } from "../../support/harness.ts";
import { ManagedProcess } from "../../support/managed_process.ts";
import { type NatsServer, startNats } from "../../support/nats.ts";
import { type Pgweir, startPgweir } from "../../support/pgweir.ts";
import { type Postgres, startPostgres } from "../../support/postgres.ts";
import { RawClient } from "../../support/raw_client.ts";

export const patienceMs = 30_000;
const cli = resolve(import.meta.dirname!, "../../../services/cli.ts");
const cgroups = "/sys/fs/cgroup/cpu";

/** Whether cgroups of version 1 with the cpu controller can be made here. */
export function canDivideCpu(): boolean {
  try {
    accessSync(`${cgroups}/cpu.shares`, constants.W_OK);
    return process.getuid?.() === 0;
  } catch {
    return false;
  }
}

/** The cgroup of a process, "" of one that is gone. */
export function cgroupOf(pid: number): string {
  try {
    const text = readFileSync(`/proc/${pid}/cgroup`, "utf8");
    return /^\d+:(?:[^:]*,)?cpu(?:,[^:]*)?:(.*)$/m.exec(text)?.[1] ?? "";
  } catch {
    return "";
  }
}

/** The cgroups that a monitor has made beside that of PostgreSQL. */
export function traceOf(monitorPid: number, home: string): string[] {
  return readdirSync(`${cgroups}${home}`).filter((name) =>
    name.startsWith(`pgweir-${monitorPid}-`)
  );
}

export class DatabaseHost {
  readonly postgres: Postgres;
  readonly nats: NatsServer;
  readonly poolers: Pgweir[] = [];
  readonly #clients: RawClient[] = [];

  private constructor(postgres: Postgres, nats: NatsServer) {
    this.postgres = postgres;
    this.nats = nats;
  }

  static async start(): Promise<DatabaseHost> {
    const postgres = await startPostgres({ settings: { log_min_messages: "log" } });
    return new DatabaseHost(postgres, await startNats({ jetstream: true }));
  }

  /** A host with one worker of the mesh; its groups are by user. */
  async pooler(groups: Record<string, string>): Promise<Pgweir> {
    const names = Object.keys(groups);
    const pooler = await startPgweir({
      workers: 1,
      ini: {
        databases: {
          app: `host=127.0.0.1 port=${this.postgres.port} dbname=postgres pool_size=20`,
        },
        pgbouncer: {
          bus_url: `nats://${encodeURIComponent(this.nats.token)}@127.0.0.1:${this.nats.port}`,
          overload_interval: 0.2,
        },
        groups,
        group_rules: Object.fromEntries(names.map((name) => [name, `user=${name} group=${name}`])),
      },
      userlist: { admin: "", other: "", ...Object.fromEntries(names.map((name) => [name, ""])) },
      readyTimeoutMs: 60_000,
    });
    this.poolers.push(pooler);
    return pooler;
  }

  async monitor({ iniFile }: Pgweir, ...wrapper: string[]): Promise<ManagedProcess> {
    const words = ["overload", "--database", "app", "--pid", String(this.postgres.pid), iniFile];
    const monitor = await ManagedProcess.launch({
      command: [...wrapper, ...runtimeCommand(), cli, ...words],
    });
    await until(
      "the monitor to find PostgreSQL",
      () => monitor.stderr().includes("watching"),
      patienceMs,
    );
    return monitor;
  }

  async client(pooler: Pgweir | Postgres, user: string, database = "app"): Promise<RawClient> {
    const client = await RawClient.login(pooler, { user, database });
    this.#clients.push(client);
    return client;
  }

  /** Process ids of the backends of a user that run something. */
  async backendsOf(user: string): Promise<number[]> {
    const all = await this.postgres.backends();
    return all.filter(({ usename, state }) => usename === user && state === "active")
      .map(({ pid }) => pid);
  }

  async stop(): Promise<void> {
    for (const client of this.#clients) client.close();
    for (const pooler of this.poolers) await pooler.stop();
    await this.nats.stop();
    await this.postgres.stop("immediate");
  }
}
