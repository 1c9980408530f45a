// What `pgweir up` is to run, decided from the command and a loaded configuration. Pure.

import type { Config } from "../../shared/config/mod.ts";
import type { UpCommand, Upstream } from "./arguments.ts";
import type { Banner, ListenAddress } from "./banner.ts";
import { StartFailure } from "./failure.ts";

/** Where the workers will listen: TCP first, then the unix socket. */
export function listenAddresses(config: Config): ListenAddress[] {
  const { listenAddr, listenPort, unixSocketDir } = config.settings;
  const hosts = unixSocketDir === "" ? listenAddr : [...listenAddr, unixSocketDir];
  return hosts.map((host) => ({ host, port: listenPort }));
}

/** The option, else the file, else one for each core. */
export function workerCount(command: UpCommand, config: Config, cores: number): number {
  return command.workers ?? (config.settings.workers || cores);
}

/**
 * Limits that every worker exceeds its part of: each has at least one, so a limit below the number of
 * workers becomes that number. One warning for each.
 */
export function smallLimits(config: Config, workers: number): string[] {
  const { defaultPoolSize, maxClientConn } = config.settings;
  const limits: [string, number | null][] = [
    ["default_pool_size", defaultPoolSize],
    ["max_client_conn", maxClientConn],
  ];
  for (const { name, poolSize } of config.databases.values()) {
    limits.push([`pool_size of database "${name}"`, poolSize]);
  }
  for (const { name, poolSize } of config.users.values()) {
    limits.push([`pool_size of user "${name}"`, poolSize]);
  }
  return limits.flatMap(([name, limit]) =>
    limit === null || limit === 0 || limit >= workers ? [] : [
      `${name} = ${limit} is less than the ${workers} workers, which have at least one each: ` +
      `in all it is ${workers}`,
    ]
  );
}

/** The one PostgreSQL server of a generated configuration. */
export type ServerAddress = Pick<Upstream, "host" | "port" | "database" | "sslmode">;

export interface Login {
  readonly user: string;
  readonly password: string;
}

/** The login of an upstream server: what its address lacks comes from PGUSER and PGPASSWORD. */
export function upstreamLogin(
  upstream: Upstream,
  environment: Readonly<Record<string, string | undefined>>,
): Login {
  const user = upstream.user ?? environment["PGUSER"] ?? "";
  const password = upstream.password ?? environment["PGPASSWORD"] ?? "";
  if (user !== "" && password !== "") return { user, password };
  const lacks = [user === "" ? "user" : "", password === "" ? "password" : ""].filter(Boolean);
  throw new StartFailure(
    `--upstream: no ${lacks.join(" and no ")} for "${upstream.host}:${upstream.port}", wanted ` +
      "postgres://user:password@host:port/database, or PGUSER and PGPASSWORD in the environment",
  );
}

/** What the ready text names: of a given file the first database and the first admin. */
export function bannerOf(
  config: Config,
  addresses: readonly ListenAddress[],
  workers: number,
  runtime: string,
  demo: Login | null,
): Banner {
  const [database] = config.databases.keys();
  const [admin] = config.settings.adminUsers;
  const [user] = config.userlist.keys();
  return {
    workers,
    addresses,
    runtime,
    database: database ?? "DATABASE",
    user: user ?? null,
    consoleUser: admin ?? null,
    password: demo?.password ?? null,
  };
}
