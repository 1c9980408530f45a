// The one table of all settings: name, kind, default, where it may stand, whether RELOAD may change
// it, and what this version does with a value that differs from the default. Everything else (the typed
// `Settings` object, SHOW CONFIG, the printed reference, the checks) is derived from these rows, so to
// make a setting work is to change its row. Per-entry keys of [databases] and [users] are below the
// settings; one that overrides a setting takes its support from that setting's row.

import { overloadBoundNames } from "./overload_bounds.ts";
import type { Bounds, Kind, Value, ValueOf } from "./values.ts";
import { oneOf, parseValue } from "./values.ts";

/**
 * works: takes effect.
 * ignored: accepted, with a warning that it has no effect; only where that breaks no promise.
 * refused: an error; to go on without it would drop a limit or a protection somebody relies on.
 */
export type Support = "works" | "ignored" | "refused";

/** G: [pgbouncer] or [pgweir]; also per entry of: D [databases], U [users], R [groups]. */
export type Scope = "G" | "GD" | "GU" | "GDU" | "GDR";

export type When = "reload" | "start";

export interface Extra extends Bounds {
  /** with support "refused" or "ignored": the values that do work (without it: only the default) */
  readonly working?: readonly string[];
  /** what to do instead, or why; completes a refusal or a warning */
  readonly instead?: string;
  /** the value may hold a password: it is shown nowhere */
  readonly secret?: true;
}

export interface Setting<N extends string = string, K extends Kind = Kind> extends Extra {
  readonly name: N;
  readonly kind: K;
  /** text, as it would stand in the file */
  readonly default: string;
  readonly scope: Scope;
  readonly when: When;
  readonly support: Support;
  readonly help: string;
  /** PgBouncer has a setting of this name */
  readonly pgbouncer: boolean;
}

function row(pgbouncer: boolean) {
  return <const N extends string, const K extends Kind>(
    name: N,
    kind: K,
    defaultText: string,
    scope: Scope,
    when: When,
    support: Support,
    help: string,
    extra: Extra = {},
  ): Setting<N, K> => ({
    name,
    kind,
    default: defaultText,
    scope,
    when,
    support,
    help,
    pgbouncer,
    ...extra,
  });
}

const p = row(true);
const w = row(false);

const AUTH_QUERY =
  "SELECT rolname, CASE WHEN rolvaliduntil < now() THEN NULL ELSE rolpassword END FROM pg_authid WHERE rolname=$1 AND rolcanlogin";
const authType = oneOf(
  "any",
  "trust",
  "plain",
  "md5",
  "cert",
  "hba",
  "ldap",
  "pam",
  "scram-sha-256",
);
const poolMode = oneOf("session", "transaction", "statement");
const sslMode = oneOf("disable", "allow", "prefer", "require", "verify-ca", "verify-full");
const facility = oneOf(
  "kern",
  "user",
  "mail",
  "daemon",
  "auth",
  "syslog",
  "lpr",
  "news",
  "uucp",
  "cron",
  "authpriv",
  "ftp",
  "local0",
  "local1",
  "local2",
  "local3",
  "local4",
  "local5",
  "local6",
  "local7",
);
const loadBalance = oneOf("round-robin", "disable");
const shed = oneOf("normal", "never");

const SHED_HELP =
  "never: its new transactions and connections are let through whatever is overloaded.";
const WINDOWS_SERVICE: Extra = { instead: "it names a Windows service in PgBouncer" };

// One row a line: read as a table, it is easier to check against PgBouncer's documentation.
// deno-fmt-ignore
export const settingsTable = [
  p("admin_users", "list", "", "G", "reload", "works", "Users who may use every command of the admin console."),
  p("application_name_add_host", "bool", "0", "G", "reload", "works", "Whether the client's address and port are appended to application_name at login."),
  p("auth_dbname", "string", "", "GD", "reload", "works", "Database in which auth_query runs; empty is the database the client asked for."),
  p("auth_file", "string", "", "G", "reload", "works", "File of users and their secrets; a relative path is relative to the working directory."),
  p("auth_hba_file", "string", "", "G", "reload", "works", "File of access rules for auth_type = hba."),
  p("auth_ident_file", "string", "", "G", "reload", "works", "File of user name maps for the methods cert and peer."),
  p("auth_ldap_options", "string", "", "G", "reload", "works", "LDAP server of auth_type = ldap, and how users are found there, as in a line of auth_hba_file.", { secret: true }),
  p("auth_query", "string", AUTH_QUERY, "GD", "reload", "works", "Query that returns user and secret of a user ($1) who is not in auth_file; it runs only where auth_user is set."),
  p("auth_type", authType, "md5", "G", "reload", "works", "How clients prove who they are; md5 uses SCRAM where the stored secret is a SCRAM secret, cert wants a client certificate with the user's name, hba asks auth_hba_file, ldap the server of auth_ldap_options, pam the system's modules."),
  p("auth_user", "string", "", "GD", "reload", "works", "User that runs auth_query, with the secret that auth_file has of it; empty turns auth_query off."),
  p("autodb_idle_timeout", "seconds", "3600", "G", "reload", "works", "Seconds after which a database made from the * entry that no client uses is forgotten, with its server connections; 0 is never."),
  p("cancel_wait_timeout", "seconds", "10", "G", "reload", "works", "Seconds a cancel request may wait for its turn before it is dropped; 0 is for ever."),
  p("client_idle_timeout", "seconds", "0", "GU", "reload", "works", "Seconds after which a client that does nothing and listens to nothing is disconnected; 0 is never."),
  p("client_login_timeout", "seconds", "60", "G", "reload", "works", "Seconds a client has to finish its login; 0 is for ever."),
  p("client_tls13_ciphers", "string", "", "G", "reload", "works", "Cipher suites of TLS 1.3 towards clients."),
  p("client_tls_ca_file", "string", "", "G", "reload", "works", "PEM file of the authorities that sign client certificates."),
  p("client_tls_cert_file", "string", "", "G", "reload", "works", "PEM file of the certificate shown to clients."),
  p("client_tls_ciphers", "string", "default", "G", "reload", "works", "Ciphers up to TLS 1.2 towards clients."),
  p("client_tls_dheparams", oneOf("none", "auto", "legacy"), "auto", "G", "reload", "works", "Diffie-Hellman parameters towards clients: none, auto or legacy."),
  p("client_tls_ecdhcurve", "string", "auto", "G", "reload", "works", "Elliptic curve towards clients: none, auto or a name."),
  p("client_tls_key_file", "string", "", "G", "reload", "works", "PEM file of the key of client_tls_cert_file."),
  p("client_tls_protocols", "list", "secure", "G", "reload", "works", "TLS versions towards clients: tlsv1.0 to tlsv1.3, or all, secure, legacy."),
  p("client_tls_sslmode", sslMode, "disable", "G", "reload", "works", "Whether clients may or must use TLS; allow and prefer both mean: if the client asks."),
  p("conffile", "string", "", "G", "reload", "refused", "File that the next RELOAD reads.", { instead: "RELOAD reads the file named at start" }),
  p("default_pool_size", "int", "20", "G", "reload", "works", "Server connections of one (database, user) pool."),
  p("disable_pqexec", "bool", "0", "G", "start", "works", "Whether the simple query protocol is refused to clients; the admin console has it all the same."),
  p("dns_max_ttl", "seconds", "15", "G", "reload", "works", "Seconds after which names of servers are looked up again; idle server connections to an address that is gone are closed, busy ones as they come free."),
  p("dns_nxdomain_ttl", "seconds", "15", "G", "reload", "works", "Seconds a failed name lookup is remembered."),
  p("dns_zone_check_period", "seconds", "0", "G", "reload", "ignored", "Seconds between PgBouncer's checks of whether a DNS zone has changed.", { instead: "the system's resolver tells nothing of zones; each name in use is looked up again every dns_max_ttl" }),
  p("idle_transaction_timeout", "seconds", "0", "GU", "reload", "works", "Seconds after which a client idle in a transaction is disconnected; 0 is never."),
  p("ignore_startup_parameters", "list", "", "G", "reload", "works", "Startup parameters that are accepted and dropped."),
  p("job_name", "string", "pgbouncer", "G", "start", "ignored", "Name of PgBouncer's Windows service.", WINDOWS_SERVICE),
  p("listen_addr", "list", "", "G", "start", "works", "Addresses to listen on for TCP; * is all, empty is no TCP."),
  p("listen_backlog", "int", "128", "G", "start", "works", "Connections the kernel queues before they are accepted."),
  p("listen_port", "int", "6432", "G", "start", "works", "TCP port, also a part of the unix socket's name.", { min: 1, max: 65535 }),
  p("log_connections", "bool", "1", "G", "reload", "works", "Whether logins are logged."),
  p("log_disconnections", "bool", "1", "G", "reload", "works", "Whether disconnections are logged, with their reason."),
  p("log_pooler_errors", "bool", "1", "G", "reload", "works", "Whether errors that the pooler sends to clients are logged."),
  p("log_stats", "bool", "1", "G", "reload", "works", "Whether statistics are logged every stats_period."),
  p("logfile", "string", "", "G", "reload", "works", "Log file, beside standard error; opened anew on RELOAD."),
  p("login_notify_message", "string", "", "G", "reload", "works", "Notice sent to a client after its login."),
  p("max_client_conn", "int", "100", "G", "reload", "works", "Client connections in all; the admin console is not counted."),
  p("max_db_client_connections", "int", "0", "GD", "reload", "works", "Client connections per database; 0, or -1, is no limit.", { min: -1 }),
  p("max_db_connections", "int", "0", "GD", "reload", "works", "Server connections per database over all its users; 0, or -1, is no limit.", { min: -1 }),
  p("max_packet_size", "size", "2147483647", "G", "reload", "works", "Largest protocol message accepted from a client, in bytes.", { min: 1024, max: 4294967295 }),
  p("max_prepared_statements", "int", "200", "G", "reload", "works", "Prepared statements kept on each server connection; 0 turns their tracking off."),
  p("max_user_client_connections", "int", "0", "GU", "reload", "works", "Client connections per user; 0, or -1, is no limit.", { min: -1 }),
  p("max_user_connections", "int", "0", "GU", "reload", "works", "Server connections per user over all databases; 0, or -1, is no limit.", { min: -1 }),
  p("min_pool_size", "int", "0", "GD", "reload", "works", "Server connections kept open in a pool that is in use."),
  p("peer_id", "int", "0", "G", "reload", "ignored", "Number of this process among [peers].", { max: 16383, instead: "workers find each other on the bus" }),
  p("pidfile", "string", "", "G", "start", "works", "File that the process id is written to; a running process in it keeps another one from starting."),
  p("pkt_buf", "size", "4096", "G", "start", "ignored", "Bytes of PgBouncer's buffer for each socket.", { instead: "a worker has one buffer of 64 kB for all its connections" }),
  p("pool_idle_timeout", "seconds", "0", "G", "reload", "works", "Seconds after which a (database, user) pool that no client uses is forgotten, with its server connections; 0 is never."),
  p("pool_mode", poolMode, "session", "GDU", "reload", "works", "When a server connection is given back: after the session, the transaction or the statement."),
  p("query_timeout", "seconds", "0", "GU", "reload", "works", "Seconds a query may wait for a server connection, and seconds it may run, before it is cancelled and its client is disconnected; 0 is no limit."),
  p("query_wait_notify", "seconds", "5", "G", "reload", "works", "Seconds after which a queued client gets a notice; 0 is never."),
  p("query_wait_timeout", "seconds", "120", "GDU", "reload", "works", "Seconds a client may wait for a server connection; 0 is for ever."),
  p("reserve_pool_size", "int", "0", "GDU", "reload", "works", "Additional server connections of a pool whose clients waited reserve_pool_timeout."),
  p("reserve_pool_timeout", "seconds", "5", "G", "reload", "works", "Seconds of waiting after which the reserve may be used."),
  p("resolv_conf", "string", "", "G", "start", "refused", "File of name servers to ask instead of the system's.", { instead: "names are resolved as the system does" }),
  p("sbuf_loopcnt", "int", "5", "G", "reload", "ignored", "Buffers that PgBouncer handles for one socket before it turns to the next.", { instead: "a connection gives way to others after each buffer" }),
  p("scram_iterations", "int", "4096", "G", "reload", "works", "Iterations of the SCRAM secrets that are made from plain ones.", { min: 1 }),
  p("server_check_delay", "seconds", "30", "G", "reload", "works", "Seconds of idleness after which a server connection is tested before use."),
  p("server_check_query", "string", "<empty>", "G", "reload", "works", "Query of that test; <empty> is an empty query, empty turns the test off."),
  p("server_connect_timeout", "seconds", "15", "G", "reload", "works", "Seconds to connect to a server and log in; 0 is for ever."),
  p("server_fast_close", "bool", "0", "G", "reload", "works", "Session pooling only: close an outdated server connection when it is idle."),
  p("server_idle_timeout", "seconds", "600", "G", "reload", "works", "Seconds after which an idle server connection is closed; 0 is never."),
  p("server_lifetime", "seconds", "3600", "GD", "reload", "works", "Seconds after which an unused server connection is replaced; 0 is: used once."),
  p("server_login_retry", "seconds", "15", "G", "reload", "works", "Longest pause between attempts after failed server logins; it grows to that from 50 ms. New clients get the error meanwhile."),
  p("server_reset_query", "string", "DISCARD ALL", "G", "reload", "works", "Session pooling only: query that cleans a server connection for its next client."),
  p("server_reset_query_always", "bool", "0", "G", "reload", "works", "Whether server_reset_query runs in every pool mode, each time a server connection is given back."),
  p("server_round_robin", "bool", "0", "G", "reload", "works", "Whether idle server connections are used in turn, not the latest one first."),
  p("server_tls13_ciphers", "string", "", "G", "reload", "works", "Cipher suites of TLS 1.3 towards servers."),
  p("server_tls_ca_file", "string", "", "G", "reload", "works", "PEM file of the authorities that sign server certificates."),
  p("server_tls_cert_file", "string", "", "G", "reload", "works", "PEM file of the certificate shown to servers."),
  p("server_tls_ciphers", "string", "default", "G", "reload", "works", "Ciphers up to TLS 1.2 towards servers."),
  p("server_tls_key_file", "string", "", "G", "reload", "works", "PEM file of the key of server_tls_cert_file."),
  p("server_tls_protocols", "list", "secure", "G", "reload", "works", "TLS versions towards servers: tlsv1.0 to tlsv1.3, or all, secure, legacy."),
  p("server_tls_sslmode", sslMode, "prefer", "G", "reload", "works", "Whether servers may or must be spoken to by TLS; allow and prefer both mean: if the server has it."),
  p("service_name", "string", "pgbouncer", "G", "start", "ignored", "Other name of job_name.", WINDOWS_SERVICE),
  p("so_reuseport", "bool", "0", "G", "start", "works", "Whether processes share the listening port; workers always do."),
  p("stats_period", "seconds", "60", "G", "reload", "works", "Seconds over which averages are made, and between two lines of statistics in the log. Differs: 0, which PgBouncer takes, is an error.", { min: 1 }),
  p("stats_users", "list", "", "G", "reload", "works", "Users who may use the SHOW commands of the admin console."),
  p("suspend_timeout", "seconds", "10", "G", "reload", "works", "Seconds SUSPEND waits for what is to be sent; then whoever does not take it is disconnected. 0 waits for ever."),
  p("syslog", "bool", "0", "G", "reload", "works", "Whether the log goes to syslog too."),
  p("syslog_facility", facility, "daemon", "G", "reload", "works", "Facility for syslog."),
  p("syslog_ident", "string", "pgbouncer", "G", "reload", "works", "Program name for syslog."),
  p("tcp_defer_accept", "int", "1", "G", "reload", "works", "Whether the kernel hands a client over only when it has sent something, or after a second."),
  p("tcp_keepalive", "bool", "1", "G", "reload", "works", "Whether TCP keepalive is on."),
  p("tcp_keepcnt", "int", "0", "G", "reload", "works", "Unanswered keepalive probes before a connection is given up; 0 is the system's value."),
  p("tcp_keepidle", "int", "0", "G", "reload", "works", "Seconds of silence before the first keepalive probe; 0 is the system's value."),
  p("tcp_keepintvl", "int", "0", "G", "reload", "works", "Seconds between keepalive probes; 0 is the system's value."),
  p("tcp_socket_buffer", "size", "0", "G", "reload", "works", "Bytes of the kernel's socket buffers; 0 is the system's value."),
  p("tcp_user_timeout", "milliseconds", "0", "G", "reload", "works", "Milliseconds sent data may stay unacknowledged; 0 is the system's value."),
  p("track_extra_parameters", "list", "IntervalStyle", "G", "start", "works", "Reported server parameters kept per client, beside client_encoding, DateStyle, TimeZone, standard_conforming_strings and application_name."),
  p("transaction_timeout", "seconds", "0", "GU", "reload", "works", "Seconds a transaction may last before its client is disconnected; 0 is no limit."),
  p("unix_socket_dir", "string", "/tmp", "G", "start", "works", "Directory of the unix socket, @name is abstract, empty is none; also of servers without a host."),
  p("unix_socket_group", "string", "", "G", "start", "works", "Group of the unix socket, a name or a number; empty is the group of the process."),
  p("unix_socket_mode", "octal", "0777", "G", "start", "works", "File mode of the unix socket, octal with a leading 0. Differs: without it PgBouncer reads a decimal number, so that its 700 is 01274, open to everybody; here that is an error."),
  p("user", "string", "", "G", "start", "works", "System user to become after start, when started as root."),
  p("verbose", "int", "0", "G", "reload", "works", "How much detail is logged; 0 is normal."),

  w("auth_several_secrets", "bool", "0", "G", "reload", "works", "Whether every line that auth_file has of a user is a secret of its, so that a password can be changed without a gap; 0 is the last line alone, as in PgBouncer."),
  w("pam_config_dir", "string", "", "G", "reload", "works", "Folder of the service files that PAM reads, instead of the system's; the service is pgbouncer, or what pamservice= in auth_hba_file says."),
  w("workers", "count_or_auto", "auto", "G", "start", "works", "Worker processes of this host; auto is one for each core.", { max: 1024 }),
  w("runtime", oneOf("bun", "deno"), "bun", "G", "start", "works", "JavaScript runtime the workers run on."),
  w("mesh", "string", "default", "G", "start", "works", "Name of the mesh; hosts on one bus with the same name work as one pooler."),
  w("bus_url", "list", "", "G", "start", "works", "NATS servers of the mesh, nats://host:port; empty is an embedded bus for this host alone.", { secret: true }),
  w("bus_credentials", "string", "", "G", "start", "works", "NATS credentials file (.creds) to log in to the bus with; wins over a login in bus_url."),
  w("bus_tls_ca_file", "string", "", "G", "start", "works", "PEM file of the authorities that sign the bus's certificates; empty is the system's, with tls:// in bus_url."),
  w("bus_tls_cert_file", "string", "", "G", "start", "works", "PEM file of the certificate shown to the bus; bus_tls_key_file goes with it."),
  w("bus_tls_key_file", "string", "", "G", "start", "works", "PEM file of the key of bus_tls_cert_file."),
  w("budget_mode", oneOf("static", "leased"), "leased", "G", "start", "works", "How limits are shared: leased moves slots to the workers that have clients waiting, limits are totals of the mesh; static divides them by the workers of the host."),
  w("budget_lease", "seconds", "10", "G", "start", "works", "Seconds a worker may use leased slots without hearing from the coordinator; the same on every host of a mesh.", { min: 1 }),
  w("budget_auth", "string", "", "G", "reload", "works", "Login to PostgreSQL (user=a password=b dbname=c) with which the coordinator counts the backends of silent workers; empty is none.", { secret: true }),
  w("overload_interval", "seconds", "1", "G", "reload", "works", "Seconds between two measurements of CPU wait and work.", { min: 0.1, max: 60 }),
  w("os_cpu_busy_time_threshold", "int", "50000", "GDR", "reload", "works", "Microseconds of CPU work in an overload_interval below which nothing counts as overloaded."),
  w("min_os_cpu_wait_time_ratio_to_throw", "ratio", "0", "GDR", "reload", "works", "Ratio of CPU wait to work from which new transactions are refused now and then."),
  w("max_os_cpu_wait_time_ratio_to_throw", "ratio", "0", "GDR", "reload", "works", "Ratio from which every new transaction is refused; off unless it is above the lower one."),
  w("min_os_cpu_wait_time_ratio_to_drop_connection", "ratio", "0", "GDR", "reload", "works", "Ratio of CPU wait to work from which new connections are refused now and then."),
  w("max_os_cpu_wait_time_ratio_to_drop_connection", "ratio", "0", "GDR", "reload", "works", "Ratio from which every new connection is refused; off unless it is above the lower one."),
  w("min_event_loop_lag_to_throw", "milliseconds", "0", "GDR", "reload", "works", "Milliseconds that a worker is behind its events from which it refuses new transactions now and then."),
  w("max_event_loop_lag_to_throw", "milliseconds", "0", "GDR", "reload", "works", "Milliseconds that a worker is behind its events from which it refuses every new transaction; off unless it is above the lower one."),
  w("overload_sqlstate", oneOf("53000", "40001"), "53000", "G", "reload", "works", "SQLSTATE of transactions that are refused on overload; 40001 is for clients that only try again what could not be serialized."),
  w("cpu_overload_warn_ratio", "ratio", "0", "G", "reload", "works", "Share of the host's CPU time in use above which a warning is raised; 0 is none.", { max: 1 }),
  w("cpu_overload_clear_ratio", "ratio", "0.8", "G", "reload", "works", "Share of the CPU time in use below which the warning is cleared.", { max: 1 }),
  w("cpu_overload_duration_seconds", "int", "600", "G", "reload", "works", "Seconds the CPU must stay above or below the ratio.", { max: 86400 }),
  w("memory_overload_warn_ratio", "ratio", "0", "G", "reload", "works", "Share of the host's memory in use above which a warning is raised; 0 is none.", { max: 1 }),
  w("memory_overload_clear_ratio", "ratio", "0.8", "G", "reload", "works", "Share of the memory in use below which the warning is cleared.", { max: 1 }),
  w("memory_overload_duration_seconds", "int", "600", "G", "reload", "works", "Seconds the memory must stay above or below the ratio.", { max: 86400 }),
  w("priority_aging", "seconds", "1", "G", "reload", "works", "Seconds for which resource groups of higher priority or weight may keep a group from its next query in one worker; 0 is for ever."),
  w("unmatched_group", "string", "", "G", "reload", "works", "Resource group of clients that no rule matches."),
  w("console_listen", "string", "127.0.0.1:6433", "G", "start", "ignored", "Address and port of the web console; empty is none."),
  w("console_admin", "string", "", "G", "reload", "ignored", "Login for the actions of the web console; empty leaves it read-only.", { secret: true }),
  w("max_server_logins", "int", "16", "G", "reload", "works", "Server connections of one worker that log in to the same PostgreSQL at once, whatever their pools; the others wait their turn. 0 is no limit."),
  w("drain_timeout", "seconds", "30", "G", "reload", "works", "Seconds a shutdown waits for clients or server connections before it ends those that are left; 0 is for ever."),
  w("log_format", oneOf("text", "json"), "text", "G", "reload", "works", "Format of log lines."),
  w("otel_sampling_ratio", "ratio", "0", "G", "reload", "ignored", "Share of transactions that are traced.", { max: 1 }),
  w("otel_query_text", "bool", "0", "G", "reload", "ignored", "Whether traces hold the text of queries."),
  w("proxy_protocol", "bool", "0", "G", "start", "refused", "Whether clients arrive through a proxy that sends the PROXY header.", { instead: "this version does not read the PROXY header" }),
  w("warn_session_features", oneOf("off", "notice", "refuse"), "off", "GD", "reload", "works", "What a client gets that uses what transaction and statement pooling do not keep (temporary tables, WITH HOLD cursors, session advisory locks, SQL PREPARE): nothing, a warning beside the answer, or an error instead of it."),
] as const;

type Row = (typeof settingsTable)[number];

type Camel<S extends string> = S extends `${infer Head}_${infer Tail}`
  ? `${Head}${Capitalize<Camel<Tail>>}`
  : S;

type Key<R extends Row> = R extends Setting<infer N, infer K>
  ? K extends "seconds" | "milliseconds" ? `${Camel<N>}Ms` : Camel<N>
  : never;

/**
 * All settings, by camelCase name: `query_wait_timeout` is `queryWaitTimeoutMs` (times end in `Ms` and
 * are milliseconds), sizes are bytes, `workers` is 0 for auto, a string that is not set is "".
 */
export type Settings = {
  readonly [R in Row as Key<R>]: R extends Setting<string, infer K> ? ValueOf<K> : never;
};

export type SettingName = Row["name"];

const byName: ReadonlyMap<string, Setting> = new Map(
  settingsTable.map((setting: Setting) => [setting.name, setting]),
);

export function findSetting(name: string): Setting | undefined {
  return byName.get(name);
}

const keys: ReadonlyMap<string, keyof Settings> = new Map(
  settingsTable.map(({ name, kind }: Setting) => {
    const camel = name.replace(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());
    const isTime = kind === "seconds" || kind === "milliseconds";
    return [name, (isTime ? `${camel}Ms` : camel) as keyof Settings];
  }),
);

/** Property of `Settings` that holds a setting. */
export function settingKey(setting: Setting): keyof Settings {
  return keys.get(setting.name) as keyof Settings;
}

/** The value of a setting in `settings`, by the setting's own name. */
export function settingValue(settings: Settings, setting: Setting): Value {
  return settings[settingKey(setting)];
}

/** The defaults, typed; a default that does not parse is a bug in the table. */
export function defaultSettings(): { -readonly [K in keyof Settings]: Settings[K] } {
  const settings: Record<string, Value> = {};
  for (const setting of settingsTable as readonly Setting[]) {
    const parsed = parseValue(setting.kind, setting.default, setting);
    if ("wanted" in parsed) throw new Error(`default of "${setting.name}": ${parsed.wanted}`);
    settings[settingKey(setting)] = parsed.value;
  }
  return settings as Settings;
}

/** A key of one entry of [databases] or [users]. */
export interface EntryKey extends Extra {
  readonly name: string;
  readonly kind: Kind;
  readonly support: Support;
  readonly help: string;
  /** the value that changes nothing and so needs no support */
  readonly default?: string;
  /** the setting that this key overrides for one database or user */
  readonly overrides?: SettingName;
}

function own(
  name: string,
  kind: Kind,
  support: Support,
  help: string,
  extra: Extra = {},
): EntryKey {
  return { name, kind, support, help, ...extra };
}

/** A key that overrides a setting shares its kind, bounds and support. */
function override(setting: SettingName, name: string = setting, extra: Extra = {}): EntryKey {
  const row = findSetting(setting) as Setting;
  return {
    name,
    kind: row.kind,
    support: row.support,
    help: `Overrides ${setting}.${(extra.min ?? row.min) === -1 ? " -1 is as without it." : ""}`,
    default: row.default,
    overrides: setting,
    ...(row.min === undefined ? {} : { min: row.min }),
    ...(row.max === undefined ? {} : { max: row.max }),
    ...(row.working === undefined ? {} : { working: row.working }),
    ...(row.instead === undefined ? {} : { instead: row.instead }),
    ...extra,
  };
}

/** Of databases and resource groups. */
const overloadBounds = overloadBoundNames.map((name) => override(name));

/** -1 is what PgBouncer has for a key that is not there. */
const NONE: Extra = { min: -1 };

// deno-fmt-ignore
export const databaseKeys: readonly EntryKey[] = [
  own("dbname", "string", "works", "Database to connect to; without it the entry's name."),
  own("host", "list", "works", "Server addresses: names, numeric addresses, directories of unix sockets, @name; without it unix_socket_dir.", { noEmptyItems: true }),
  own("port", "int", "works", "Server port; without it 5432.", { min: 1, max: 65535 }),
  own("user", "string", "works", "User for all server connections, whoever the client is."),
  own("password", "string", "works", "Secret of that user; without it the one in auth_file.", { secret: true }),
  override("auth_user"),
  override("auth_query"),
  override("auth_dbname"),
  override("default_pool_size", "pool_size", NONE),
  override("min_pool_size", "min_pool_size", NONE),
  override("reserve_pool_size", "reserve_pool_size", NONE),
  override("reserve_pool_size", "reserve_pool", NONE),
  override("pool_mode"),
  own("connect_query", "string", "works", "Query run on each new server connection."),
  own("load_balance_hosts", loadBalance, "works", "Whether the hosts of a list are used in turn, one for each new connection, or the same one until a connection fails."),
  override("max_db_connections"),
  override("max_db_client_connections"),
  override("server_lifetime"),
  override("query_wait_timeout"),
  override("warn_session_features"),
  ...overloadBounds,
  own("shed", shed, "works", SHED_HELP),
  own("client_encoding", "string", "works", "Default client_encoding of its server connections."),
  own("datestyle", "string", "works", "Default datestyle of its server connections."),
  own("timezone", "string", "works", "Default timezone of its server connections."),
  own("application_name", "string", "works", "Default application_name of its server connections."),
];

// deno-fmt-ignore
export const userKeys: readonly EntryKey[] = [
  override("pool_mode"),
  override("default_pool_size", "pool_size", NONE),
  override("reserve_pool_size", "reserve_pool_size", NONE),
  override("max_user_connections"),
  override("max_user_client_connections"),
  override("query_timeout"),
  override("query_wait_timeout"),
  override("idle_transaction_timeout"),
  override("transaction_timeout"),
  override("client_idle_timeout"),
  own("shed", shed, "works", SHED_HELP),
];

/** Of an entry of [peers], which has no effect. */
export const peerKeys: readonly EntryKey[] = [
  own("host", "string", "works", "Where PgBouncer would find the peer."),
  own("port", "int", "works", "Its port."),
  own("pool_size", "int", "works", "How many cancel requests may be on the way to it.", {
    min: -1,
  }),
];

/** A size that is held in memory of a whole host. */
const MEMORY: Extra = { max: 2 ** 50 };

// deno-fmt-ignore
export const groupKeys: readonly EntryKey[] = [
  own("parent", "string", "works", "Group whose limits hold for this one too."),
  own("max_concurrent_queries", "int", "works", "Queries (transactions, in transaction pooling) of the group and all below it that run at once; 0 is no limit."),
  own("max_queued", "int", "works", "Queries of the group and all below it that wait at once; 0 is no limit."),
  own("queueing", "bool", "works", "Whether queries without room wait; off refuses them at once, which max_queued = 0 does not. Default on."),
  own("queue_timeout", "seconds", "works", "Seconds a query waits before it is refused; 0 is no limit but query_wait_timeout. Default 5."),
  own("soft_max_memory", "size", "works", "Memory that queries of the group and all below it have, as a monitor on the database host measures it, or else are estimated to need, from which new ones wait; 0 is no limit.", MEMORY),
  own("min_query_memory", "size", "works", "Memory a query is counted with until something is known of the group's queries. Default 64MB.", MEMORY),
  own("cpu_shares", "int", "works", "Share of the parent's slots, and of its CPU where a monitor on the database host divides it, in proportion to the other groups with the same parent. Default 1024; CPU is divided if any group has another.", { min: 2, max: 262144 }),
  own("priority", "int", "works", "Among the groups with the same parent; larger goes first. Default 0.", { min: -1000, max: 1000 }),
  own("shed", shed, "works", "Whether its queries may be refused when the host is overloaded. Default normal."),
  ...overloadBounds,
];
