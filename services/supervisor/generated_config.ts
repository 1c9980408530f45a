// The configuration that `pgweir up` writes when it is given none: a pgbouncer.ini and its auth_file, for
// the demo database or for a server named with --upstream. Pure text; quoting is that of the two formats.

import type { ServerAddress } from "./plan.ts";

export interface GeneratedConfig {
  readonly server: ServerAddress;
  readonly user: string;
  readonly listenPort: number;
  /** Absolute path of the auth_file. */
  readonly authFile: string;
  /** null: one for each core. */
  readonly workers: number | null;
  readonly runtime: "bun" | "deno";
}

export const listenHost = "127.0.0.1";
/** Of the whole host; what PostgreSQL's default of 100 connections takes easily. */
export const poolSize = 20;

export function generatedIni(config: GeneratedConfig): string {
  const { server, user } = config;
  const lines = [
    ";; Written by `pgweir up` at each start: changes made here are lost. For a configuration of your",
    ";; own copy this file, name your server in it, and start it with `pgweir up copy.ini`.",
    "",
    "[databases]",
    `"${server.database.replaceAll('"', '""')}" = host=${value(server.host)} port=${server.port}` +
    ` dbname=${value(server.database)}`,
    "",
    "[pgbouncer]",
    `listen_addr = ${listenHost}`,
    `listen_port = ${config.listenPort}`,
    "unix_socket_dir =",
    "pool_mode = transaction",
    `default_pool_size = ${poolSize}`,
    "max_client_conn = 1000",
    "auth_type = scram-sha-256",
    `auth_file = ${config.authFile}`,
  ];
  // A list has no quotes: a name with a comma or with blanks around it can't stand in one.
  if (user === user.trim() && !user.includes(",")) lines.push(`admin_users = ${user}`);
  if (server.sslmode !== null) lines.push(`server_tls_sslmode = ${server.sslmode}`);
  lines.push(
    "",
    "[pgweir]",
    `workers = ${config.workers ?? "auto"}`,
    `runtime = ${config.runtime}`,
    "",
  );
  return lines.join("\n");
}

export function generatedUserlist(user: string, password: string): string {
  const field = (text: string) => `"${text.replaceAll('"', '""')}"`;
  return `;; Written by \`pgweir up\` at each start: changes made here are lost.\n${field(user)} ${
    field(password)
  }\n`;
}

function value(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
}
