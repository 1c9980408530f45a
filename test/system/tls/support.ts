// What tests of TLS share: an authority with certificates for the pooler and its clients, and psql.

import { chmodSync } from "node:fs";
import { type Certificate, CertificateAuthority } from "../../support/certificates.ts";
import type { ConsoleRow, Pooler } from "../../support/pooler.ts";
import { RawClient } from "../../support/raw_client.ts";
import { type Ran, run } from "../drivers/support.ts";

export const authority = new CertificateAuthority();
/** Valid for localhost and 127.0.0.1. */
export const own = authority.issue("localhost", ["localhost", "127.0.0.1"]);

/** A client's own certificate; its key is for its owner alone, as libpq wants it. */
export function clientCertificate(name: string): Certificate {
  const issued = authority.issue(name);
  chmodSync(issued.keyFile, 0o600);
  return issued;
}

/** Asks the console by the unix socket, where no TLS is wanted. */
export async function consoleOf(pooler: Pooler, command: string): Promise<ConsoleRow[]> {
  const login = { user: "admin", database: "pgbouncer" };
  const client = await RawClient.login({ path: pooler.socketPath }, login);
  try {
    return await client.table(command);
  } finally {
    await client.end();
  }
}

/** Settings for TLS towards clients. */
export function clientTls(mode: string, more: Readonly<Record<string, string>> = {}) {
  return {
    client_tls_sslmode: mode,
    client_tls_cert_file: own.certFile,
    client_tls_key_file: own.keyFile,
    ...more,
  };
}

/** Runs one command; `target` is a connection string without a password. */
export function psql(target: string, sql: string, input?: string): Promise<Ran> {
  // Nothing of the home directory: certificates there would be shown.
  const environment = { HOME: "/nonexistent", PGCONNECT_TIMEOUT: "60" };
  return run(
    ["psql", "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-c", sql, target],
    input === undefined ? { environment } : { environment, input },
  );
}

/** The only value of one query, as `user`, on a connection that is open and not logged in. */
export async function answerTo(client: RawClient, sql: string, user = "postgres"): Promise<string> {
  await client.login({ user, database: "postgres" });
  return String((await client.query(sql))[0]![0]);
}
