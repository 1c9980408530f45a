// What pgweir must know of PostgreSQL's own files and flags to run one beside itself. Pure: text in,
// answers out; local_postgres.ts does the reading and the starting.

export interface PostmasterFile {
  readonly pid: number;
  readonly dataDirectory: string;
  /** PostgreSQL writes "ready" into line 8 once it accepts connections, as pg_ctl reads it too. */
  readonly ready: boolean;
}

/** postmaster.pid of a data directory; null when it is not (yet) written out. */
export function parsePostmasterFile(text: string): PostmasterFile | null {
  const lines = text.split("\n").map((line) => line.trim());
  const pid = Number(lines[0]);
  // A stand-alone backend (postgres --single) writes its pid negated.
  if (!Number.isInteger(pid) || pid === 0 || lines[1] === undefined) return null;
  return { pid: Math.abs(pid), dataDirectory: lines[1], ready: lines[7] === "ready" };
}

/**
 * max_connections that the pool of the demo database can't exhaust: pool_size is divided by the workers and
 * rounded up, and a dozen more may log in directly, besides what PostgreSQL keeps for superusers.
 */
export function maxConnections(workers: number, poolSize: number): number {
  return Math.max(100, poolSize + workers + 16);
}

export interface PostgresFlags {
  readonly dataDirectory: string;
  readonly port: number;
  readonly maxConnections: number;
}

/** Loopback TCP only: a unix socket would need a path that is short, and a file system that takes one. */
export function postgresArguments(flags: PostgresFlags): string[] {
  const settings = {
    listen_addresses: "127.0.0.1",
    port: flags.port,
    unix_socket_directories: "",
    max_connections: flags.maxConnections,
    logging_collector: "off",
    log_destination: "stderr",
  };
  return [
    "-D",
    flags.dataDirectory,
    ...Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`]),
  ];
}

/** Independent of the locales this machine has, and the same order of text everywhere. */
export function initdbArguments(dataDirectory: string, passwordFile: string): string[] {
  return [
    `--pgdata=${dataDirectory}`,
    "--username=postgres",
    `--pwfile=${passwordFile}`,
    "--auth=scram-sha-256",
    "--encoding=UTF8",
    "--locale=C",
    "--locale-provider=builtin",
    "--builtin-locale=C.UTF-8",
    "--no-instructions",
  ];
}

/** The commands that make the demo login and its database, one a line, for postgres --single. */
export function demoStatements(name: string, password: string): string {
  const identifier = `"${name.replaceAll('"', '""')}"`;
  const literal = `'${password.replaceAll("'", "''")}'`;
  return [
    `CREATE ROLE ${identifier} LOGIN PASSWORD ${literal};`,
    `CREATE DATABASE ${identifier} OWNER ${identifier};`,
    "",
  ].join("\n");
}

/**
 * The line of PostgreSQL's output that says why it failed: the last FATAL, PANIC or ERROR, without its
 * timestamp; else the last line. null when it said nothing.
 */
export function failureLine(output: string): string | null {
  const lines = output.split("\n").map((line) => line.trim()).filter((line) => line !== "");
  const severe = /\b(?:FATAL|PANIC|ERROR|error): +(.*)$/;
  for (const line of lines.toReversed()) {
    const match = severe.exec(line);
    if (match !== null) return match[1]!;
  }
  return lines.at(-1) ?? null;
}
