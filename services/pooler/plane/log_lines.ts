// The log lines about clients and servers, in PgBouncer's words: people and programs watch for them. Texts only;
// whether a line is written, and where, is the plane's.

import { Buffer } from "node:buffer";
import type { CancelOutcome } from "../../../shared/bus/mod.ts";
import { CONSOLE_DATABASE, lookupDatabase } from "../../../shared/config/mod.ts";
import {
  Errno,
  hostPort,
  localAddress,
  peerCredentials,
  type SocketAddress,
  type Stream,
} from "../../../shared/sys/mod.ts";
import type { ClientSession } from "./client.ts";
import { isSocketDir } from "./dial.ts";
import { clientGone } from "./refusals.ts";
import type { ServerConnection } from "./server.ts";
import type { Replication } from "./startup.ts";

/** An identity for a connection: PgBouncer shows a memory address here. */
export function pointerText(id: number): string {
  return `0x${id.toString(16).padStart(12, "0")}`;
}

/** `C-0x00000000002a: shop/app@10.0.0.7:51514`, what the lines of a client begin with. */
export function clientLabel(client: ClientSession): string {
  const { config, settings } = client.plane;
  const { database, user } = client;
  const exists = database === CONSOLE_DATABASE || lookupDatabase(config, database) !== null;
  const name = `${exists ? database : "(nodb)"}/${user || "(nouser)"}`;
  return `C-${pointerText(client.id)}: ${name}@${clientAddress(client, settings.listenPort)}`;
}

function clientAddress({ address, stream }: ClientSession, listenPort: number): string {
  if (address.host !== "unix") return hostPort(address.host, address.port);
  return `unix(${stream.closed ? 0 : peerCredentials(stream.fd)?.pid ?? 0}):${listenPort}`;
}

/** `S-0x00000000002b: shop/app@10.0.0.9:5432` */
export function serverLabel(server: ServerConnection): string {
  const { database, user } = server.pool;
  const host = isSocketDir(server.address) ? "unix" : server.address;
  const address = hostPort(host, server.port);
  return `S-${pointerText(server.id)}: ${database.name}/${user}@${address}`;
}

const replicationWords = { physical: "yes", logical: "database" } as const;

export function loginAttemptText(client: ClientSession, replication: Replication | null): string {
  const tls = client.stream.tls?.info ?? "no";
  const kind = replication === null ? "no" : replicationWords[replication];
  return `login attempt: db=${client.database} user=${client.user} tls=${tls} replication=${kind}`;
}

export function newServerText({ address, stream }: ServerConnection): string {
  if (isSocketDir(address)) return "new connection to server";
  const { host, port }: SocketAddress = localAddress(stream.fd);
  return `new connection to server (from ${hostPort(host, port)})`;
}

/** An initial packet of which the first bytes tell that it is none. */
export function badHeaderText(bytes: Uint8Array, at: number, end: number): string {
  const header = bytes.subarray(at, Math.min(end, at + 8));
  return `bad packet header: '${Buffer.from(header).toString("hex")}'`;
}

/** Why a client is gone whose socket has ended (0) or failed (-errno). */
export function goneText(result: number, stream: Stream): string {
  if (result === 0 || result === -Errno.ECONNRESET) return clientGone;
  return stream.reasonOf(-result);
}

/** What became of a cancel request. */
export function cancelledText(outcome: CancelOutcome | null, isConsole: boolean): string {
  switch (outcome) {
    case "sent":
      return "successfully sent cancel request";
    case "idle":
      return `cancel request for ${isConsole ? "console" : "idle"} client`;
    case "unknown":
      return "failed cancel request";
    case "busy":
      return "failed cancel request: too many are under way";
    case null:
      return "failed cancel request: no answer from its worker";
  }
}

/** The first client of a database that is made from the `*` entry. */
export function newDatabaseText(name: string): string {
  return `registered new auto-database: ${name}`;
}

export function droppedDatabaseText(name: string): string {
  return `dropping database '${name}' as it does not exist anymore or inactive auto-database`;
}

export function closingText(reason: string, ageMs: number): string {
  return `closing because: ${reason} (age=${Math.floor(ageMs / 1000)}s)`;
}
