// The columns of every SHOW: names, order and types are what exporters and dashboards rely on, so the
// list is written out here a second time.

import { showTable } from "../../../services/pooler/plane/console/commands.ts";
import { assert, suite } from "../../support/harness.ts";
import { fakePlane, momentOf } from "./fake_plane.ts";

const tests = suite("console columns");

// In a fleet an id says which worker's it is, and takes more than 32 bits.
const socket =
  "type s, user s, database s, replication s, state s, addr s, port i, local_addr s, " +
  "local_port i, connect_time T, request_time T, wait i, wait_us i, close_needed i, ptr s, " +
  "link s, remote_pid i, tls s, application_name s, prepared_statements i, id q";
const detail = `${socket}, recv_pos i, pkt_pos i, pkt_remain i, send_pos i, send_remain i, ` +
  "pkt_avail i, send_avail i";

const wanted: Readonly<Record<string, string>> = {
  active_sockets: detail,
  clients: socket,
  config: "key s, value s, default s, changeable s",
  databases: "name s, host s, port i, database s, force_user s, pool_size i, min_pool_size i, " +
    "reserve_pool_size i, server_lifetime i, pool_mode s, load_balance_hosts s, " +
    "max_connections i, current_connections i, max_client_connections i, " +
    "current_client_connections i, paused i, disabled i",
  dns_hosts: "hostname s, ttl q, addrs s",
  dns_zones: "zonename s, serial q, count i",
  features: "database s, user s, addr s, port i, temp_tables i, hold_cursors i, prepares i, " +
    "advisory_locks i, listens i, settings i, unnamed_settings i",
  leases:
    "kind s, database s, user s, held i, wanted i, granted i, floor i, allowed i, contact_ms q, " +
    "group_name s",
  listeners:
    "database s, client_encoding s, user s, state s, remote_pid i, channels i, clients i, " +
    "waiting i, received q, delivered q, dropped q, lost q",
  lists: "list s, items i",
  mem: "name s, size i, used i, free i, memtotal i",
  groups: "name s, parent s, can_run_more i, can_queue_more i, priority i, cpu_shares i, " +
    "soft_max_memory q, memory q, max_concurrent_queries i, granted_queries i, " +
    "running_queries i, max_queued i, queued_queries i, queue_timeout_ms q, last_used T, in_use i, " +
    "admitted q, refused q, timed_out q, queued_time_total_ms q, running_time_total_ms q, shed s, " +
    "busy_time_threshold q, min_to_throw s, max_to_throw s, min_to_drop s, max_to_drop s, " +
    "min_lag_to_throw s, max_lag_to_throw s",
  overload: "scope s, name s, database s, reason s, value s, min_to_throw s, max_to_throw s, " +
    "throw_probability s, min_to_drop s, max_to_drop s, drop_probability s, expires_ms q, " +
    "shed_transactions q, shed_connections q, group_name s",
  peer_pools: "peer_id i, cl_active_cancel_req i, cl_waiting_cancel_req i, sv_active_cancel i, " +
    "sv_login i",
  peers: "peer_id i, host s, port i, pool_size i",
  pools: "database s, user s, cl_active i, cl_waiting i, cl_active_cancel_req i, " +
    "cl_waiting_cancel_req i, sv_active i, sv_active_cancel i, sv_being_canceled i, sv_idle i, " +
    "sv_used i, sv_tested i, sv_login i, maxwait i, maxwait_us i, pool_mode s, " +
    "load_balance_hosts s",
  servers: socket,
  sockets: detail,
  state: "key s, value s",
  stats: "database s, total_server_assignment_count N, total_xact_count N, total_query_count N, " +
    "total_received N, total_sent N, total_xact_time N, total_query_time N, total_wait_time N, " +
    "total_client_parse_count N, total_server_parse_count N, total_bind_count N, " +
    "total_client_login_count N, avg_server_assignment_count N, avg_xact_count N, " +
    "avg_query_count N, avg_recv N, avg_sent N, avg_xact_time N, avg_query_time N, " +
    "avg_wait_time N, avg_client_parse_count N, avg_server_parse_count N, avg_bind_count N, " +
    "avg_client_login_count N",
  stats_averages: "database s, server_assignment_count N, xact_count N, query_count N, " +
    "bytes_received N, bytes_sent N, xact_time N, query_time N, wait_time N, " +
    "avg_client_parse_count N, avg_server_parse_count N, avg_bind_count N, " +
    "avg_client_login_count N",
  stats_totals: "database s, server_assignment_count N, xact_count N, query_count N, " +
    "bytes_received N, bytes_sent N, xact_time N, query_time N, wait_time N, " +
    "client_parse_count N, server_parse_count N, bind_count N, client_login_count N",
  totals: "name s, value N",
  users: "name s, pool_size s, reserve_pool_size s, pool_mode s, max_user_connections i, " +
    "current_connections i, max_user_client_connections i, current_client_connections i",
  version: "version s",
  warnings: "time T, host s, kind s, value s, warn_ratio s, clear_ratio s, cleared T, monitor s",
  worker: "worker_id i, incarnation q, index i, count i, pid i, runtime s, version s, uptime q, " +
    "clients i, servers i, cancels_sent q, cancels_unknown q, cancels_idle q, cancels_busy q, " +
    "cancels_unanswered q",
};

tests("every SHOW has PgBouncer's columns, in order and with their types", () => {
  const found: Record<string, string> = {};
  for (const [name, { result }] of showTable) {
    if (result === null || result === "help") continue;
    found[name] = result.columns.map((column) => `${column.name} ${column.type}`).join(", ");
  }
  assert.equal(Object.keys(found).sort(), Object.keys(wanted).sort());
  for (const [name, columns] of Object.entries(found)) assert.is(columns, wanted[name], name);
});

tests("every row of an idle plane has a value for each column", () => {
  const moment = momentOf(fakePlane());
  for (const [name, { result }] of showTable) {
    if (result === null || result === "help") continue;
    for (const row of result.rows(moment)) assert.is(row.length, result.columns.length, name);
  }
});

tests.run();
