// Rows of SHOW CLIENTS, SERVERS, SOCKETS and ACTIVE_SOCKETS. They are made one at a time while clients
// come and go: who left before its turn has no row, who came later than the command may have none.

import type { SocketAddress } from "../../../../shared/sys/mod.ts";
import { pointerText } from "../log_lines.ts";
import { shownId } from "./shown_id.ts";
import { columnsOf, type Row } from "./encode.ts";
import type { ClientView, Moment, PlaneView, ServerView, StreamView } from "./view.ts";

const socketList = "type s, user s, database s, replication s, state s, addr s, port i, " +
  "local_addr s, local_port i, connect_time T, request_time T, wait i, wait_us i, " +
  "close_needed i, ptr s, link s, remote_pid i, tls s, application_name s, " +
  "prepared_statements i, id q";

export const socketColumns = columnsOf(socketList);

export const socketDetailColumns = columnsOf(
  `${socketList}, recv_pos i, pkt_pos i, pkt_remain i, send_pos i, send_remain i, ` +
    "pkt_avail i, send_avail i",
);

const nowhere: SocketAddress = { host: "", port: 0 };

/** An answer of the kernel about a socket whose peer may have left a moment ago. */
function ask<T>(question: () => T, otherwise: T): T {
  try {
    return question();
  } catch {
    return otherwise;
  }
}

/** As PgBouncer writes it; the console's time zone is GMT. */
export function timestamp(wallMs: number): string {
  const text = new Date(wallMs).toISOString();
  return `${text.slice(0, 10)} ${text.slice(11, 19)} UTC`;
}

function pointer(connection: { readonly id: number } | null): string {
  return connection === null ? "" : pointerText(connection.id);
}

export function wholeSeconds(ms: number): number {
  return Math.max(0, Math.floor(ms / 1000));
}

/** The microseconds beyond the whole seconds. */
export function restMicroseconds(ms: number): number {
  return Math.max(0, Math.floor(ms * 1000) % 1_000_000);
}

interface Shared {
  readonly type: "C" | "S";
  readonly user: string;
  readonly database: string;
  readonly state: string;
  readonly address: SocketAddress;
  readonly connectedAt: number;
  readonly requestAt: number;
  readonly waitedMs: number;
  readonly closeNeeded: boolean;
  readonly replication: string;
  readonly self: { readonly id: number };
  readonly link: { readonly id: number } | null;
  readonly remotePid: number;
  readonly parameters: readonly (string | null)[];
  readonly prepared: number;
  readonly stream: StreamView | undefined;
  readonly buffered: number;
}

function socketRow(moment: Moment, shared: Shared, detailed: boolean): Row {
  const { plane, now, wallNow } = moment;
  const { address, stream, waitedMs } = shared;
  const wall = (monotonic: number) => timestamp(wallNow - (now - monotonic));
  const local = stream === undefined ? nowhere : ask(() => moment.localAddress(stream.fd), nowhere);
  const name = shared.parameters[plane.tracker.indexOf("application_name")] ?? "";
  const row = [
    shared.type,
    shared.user === "" ? "(nouser)" : shared.user,
    shared.database === "" ? "(nodb)" : shared.database,
    shared.replication,
    shared.state,
    address.host,
    address.port,
    local.host,
    local.host === "unix" ? address.port : local.port,
    wall(shared.connectedAt),
    wall(shared.requestAt === 0 ? shared.connectedAt : shared.requestAt),
    wholeSeconds(waitedMs),
    restMicroseconds(waitedMs),
    shared.closeNeeded ? 1 : 0,
    pointer(shared.self),
    pointer(shared.link),
    shared.remotePid,
    stream?.tls?.info ?? "",
    name,
    shared.prepared,
    shownId(plane.seat, shared.self.id),
  ];
  if (!detailed) return row;
  const pending = stream?.pending ?? 0;
  return [...row, shared.buffered, 0, 0, 0, 0, shared.buffered, pending];
}

function clientRow(moment: Moment, client: ClientView, state: string, detailed: boolean): Row {
  let { address } = client;
  let remotePid = 0;
  if (address.host === "unix") {
    // Unix sockets have no port: the one in the socket's name is shown.
    address = { host: "unix", port: moment.plane.config.settings.listenPort };
    remotePid = ask(() => moment.peerPid(client.stream.fd), 0);
  }
  return socketRow(moment, {
    type: "C",
    user: client.user,
    database: client.database,
    state,
    address,
    connectedAt: client.connectedAt,
    requestAt: client.requestAt,
    waitedMs: client.queued ? moment.now - client.waitingSince : 0,
    closeNeeded: false,
    replication: client.tunnel?.replication ?? "none",
    self: client,
    link: client.tunnel?.server ?? client.server,
    remotePid,
    parameters: client.parameters.values,
    prepared: client.names?.size ?? 0,
    stream: client.stream,
    buffered: client.buffered,
  }, detailed);
}

function serverRow(
  moment: Moment,
  server: ServerView,
  of: { database: string; user: string; state: string },
  detailed: boolean,
): Row {
  const { address, port } = server;
  const unix = address.startsWith("/") || address.startsWith("@");
  return socketRow(moment, {
    type: "S",
    ...of,
    address: { host: unix ? "unix" : address, port },
    connectedAt: server.connectedAt,
    requestAt: server.requestAt,
    waitedMs: 0,
    closeNeeded: server.closeNeeded,
    replication: server.owner.replication ?? "none",
    self: server,
    link: server.client,
    remotePid: server.processId,
    parameters: server.session.values,
    prepared: server.prepared.size,
    stream: server.stream,
    buffered: server.buffered,
  }, detailed);
}

/** The clients there were at the start, as far as they are still there when it is their turn. */
function* present<T>(set: ReadonlySet<T>): Generator<T> {
  let left = set.size;
  for (const each of set) {
    if (left-- === 0) return;
    yield each;
  }
}

export function* clientRows(moment: Moment): Generator<Row> {
  const { clients, cancels } = moment.plane;
  for (const client of present(clients)) {
    let state: string;
    if (cancels.requesters.has(client)) state = "active_cancel_req";
    else if (client.login !== null && client.pool === null) continue;
    else if (client.queued) state = "waiting";
    else state = (client.tunnel ?? client).server === null ? "idle" : "active";
    yield clientRow(moment, client, state, false);
  }
}

const serverStates: Readonly<Record<string, string>> = { login: "new" };

interface Servers {
  readonly database: string;
  readonly user: string;
  readonly servers: ReadonlySet<ServerView>;
}

function* allServers({ pools, direct }: PlaneView): Generator<Servers> {
  for (const { database, user, servers } of pools.values()) {
    yield { database: database.name, user, servers };
  }
  yield* direct.values();
}

export function* serverRows(moment: Moment): Generator<Row> {
  for (const { database, user, servers } of allServers(moment.plane)) {
    for (const server of present(servers)) {
      const state = serverStates[server.state] ?? server.state;
      yield serverRow(moment, server, { database, user, state }, false);
    }
  }
}

function hasBytes(connection: { stream: StreamView | undefined; buffered: number }): boolean {
  return connection.buffered > 0 || (connection.stream?.pending ?? 0) > 0;
}

export function* detailRows(moment: Moment, onlyWithBytes: boolean): Generator<Row> {
  for (const client of present(moment.plane.clients)) {
    if (onlyWithBytes && !hasBytes(client)) continue;
    let state = "cl_active";
    if (client.queued) state = "cl_waiting";
    else if (client.login !== null) state = "cl_login";
    yield clientRow(moment, client, state, true);
  }
  for (const { database, user, servers } of allServers(moment.plane)) {
    for (const server of present(servers)) {
      if (onlyWithBytes && !hasBytes(server)) continue;
      yield serverRow(moment, server, { database, user, state: `sv_${server.state}` }, true);
    }
  }
}
