// The table of settings: complete against PgBouncer, consistent in itself, and typed.

import { assert, suite } from "../support/harness.ts";
import type { EntryKey, Setting, Settings } from "../../shared/config/mod.ts";
import {
  databaseKeys,
  findSetting,
  formatValue,
  parseValue,
  settingKey,
  settingsTable,
  userKeys,
} from "../../shared/config/mod.ts";
import { configOf, iniWith } from "./fixtures.ts";

const test = suite("settings");

const all: readonly Setting[] = settingsTable;

/** Every parameter of PgBouncer 1.25.2, the alias, and the two of its development branch. */
const PGBOUNCER = `
admin_users application_name_add_host auth_dbname auth_file auth_hba_file auth_ident_file
auth_ldap_options auth_query auth_type auth_user autodb_idle_timeout cancel_wait_timeout
client_idle_timeout client_login_timeout client_tls13_ciphers client_tls_ca_file
client_tls_cert_file client_tls_ciphers client_tls_dheparams client_tls_ecdhcurve
client_tls_key_file client_tls_protocols client_tls_sslmode conffile default_pool_size
disable_pqexec dns_max_ttl dns_nxdomain_ttl dns_zone_check_period idle_transaction_timeout
ignore_startup_parameters job_name listen_addr listen_backlog listen_port log_connections
log_disconnections log_pooler_errors log_stats logfile login_notify_message max_client_conn
max_db_client_connections max_db_connections max_packet_size max_prepared_statements
max_user_client_connections max_user_connections min_pool_size peer_id pidfile pkt_buf
pool_idle_timeout pool_mode query_timeout query_wait_notify query_wait_timeout reserve_pool_size
reserve_pool_timeout resolv_conf sbuf_loopcnt scram_iterations server_check_delay
server_check_query server_connect_timeout server_fast_close server_idle_timeout server_lifetime
server_login_retry server_reset_query server_reset_query_always server_round_robin
server_tls13_ciphers server_tls_ca_file server_tls_cert_file server_tls_ciphers
server_tls_key_file server_tls_protocols server_tls_sslmode service_name so_reuseport stats_period
stats_users suspend_timeout syslog syslog_facility syslog_ident tcp_defer_accept tcp_keepalive
tcp_keepcnt tcp_keepidle tcp_keepintvl tcp_socket_buffer tcp_user_timeout track_extra_parameters
transaction_timeout unix_socket_dir unix_socket_group unix_socket_mode user verbose
`.trim().split(/\s+/);

test("settingsTable has every parameter of PgBouncer, once", () => {
  const names = all.filter(({ pgbouncer }) => pgbouncer).map(({ name }) => name);
  assert.equal(PGBOUNCER.length, 101);
  assert.equal([...names].sort(), [...PGBOUNCER].sort());
  assert.equal(new Set(all.map(({ name }) => name)).size, all.length);
});

test("settingsTable has defaults that parse and print as they are written", () => {
  for (const setting of all) {
    const parsed = parseValue(setting.kind, setting.default, setting);
    assert.ok("value" in parsed, setting.name);
    assert.is(formatValue(setting.kind, parsed.value), setting.default, setting.name);
  }
});

test("settingsTable has help in one sentence for every setting", () => {
  for (const { name, help } of all) {
    assert.match(help, /^[A-Z].*[^.]\.$/, name);
    assert.not.match(help, /\n|\|/, name);
  }
});

test("settingsTable names only working values that parse, and says what to do instead", () => {
  for (const setting of all) {
    for (const text of setting.working ?? []) {
      assert.ok("value" in parseValue(setting.kind, text, setting), setting.name);
    }
    if (setting.working !== undefined && !setting.working.includes(setting.default)) {
      assert.ok(setting.instead, `${setting.name} has a default that does not work`);
    }
    if (setting.support === "works") assert.is(setting.working, undefined, setting.name);
  }
});

test("settingsTable agrees with the keys of databases and users about what each may override", () => {
  const overridden = (keys: readonly EntryKey[]) =>
    new Set(keys.map(({ overrides, name }) => overrides ?? findSetting(name)?.name));
  const databases = overridden(databaseKeys);
  const users = overridden(userKeys);
  for (const { name, scope } of all) {
    // "user" of [databases] is the server's user, not the setting of that name.
    if (name === "user") continue;
    const expected = name === "default_pool_size" ? "GDU" : scope;
    assert.is(databases.has(name), expected.includes("D"), `${name} in [databases]`);
    assert.is(users.has(name), expected.includes("U"), `${name} in [users]`);
  }
});

test("Settings holds every setting under its camelCase name, times in milliseconds", () => {
  const settings: Settings = configOf(iniWith()).settings;
  const keys = all.map(settingKey);
  assert.equal(Object.keys(settings).sort(), [...keys].sort());
  // Typed: these lines do not compile when a name, a unit or a type is off.
  const typed: [number, number, number, readonly string[], boolean, "text" | "json", string] = [
    settings.queryWaitTimeoutMs,
    settings.tcpUserTimeoutMs,
    settings.maxClientConn,
    settings.listenAddr,
    settings.logStats,
    settings.logFormat,
    settings.clientTls13Ciphers,
  ];
  assert.equal(typed, [120_000, 0, 100, [], true, "text", ""]);
});

test("findSetting() returns undefined when there is no such setting", () => {
  assert.is(findSetting("listen_port")?.default, "6432");
  assert.is(findSetting("constructor"), undefined);
});

test.run();
