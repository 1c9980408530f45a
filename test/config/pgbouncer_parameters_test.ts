// Every parameter of PgBouncer 1.25.2 and of its development branch: where it may stand, whether RELOAD changes it, and
// its default, read from PgBouncer's sources; the table of settings has to say the same. And that each does what it
// says, or is named when a file sets it.

import { assert, suite } from "../support/harness.ts";
import {
  findSetting,
  formatValue,
  parseValue,
  type Setting,
  settingsTable,
} from "../../shared/config/mod.ts";
import { iniWith, load } from "./fixtures.ts";

/** Name, scope (global, database, user), R for reloadable, default. */
const PGBOUNCER = `
admin_users G R
application_name_add_host G R 0
auth_dbname GD R
auth_file G R
auth_hba_file G R
auth_ident_file G R
auth_ldap_options G R
auth_query GD R SELECT rolname, CASE WHEN rolvaliduntil < now() THEN NULL ELSE rolpassword END FROM pg_authid WHERE rolname=$1 AND rolcanlogin
auth_type G R md5
auth_user GD R
autodb_idle_timeout G R 3600
cancel_wait_timeout G R 10
client_idle_timeout GU R 0
client_login_timeout G R 60
client_tls13_ciphers G R
client_tls_ca_file G R
client_tls_cert_file G R
client_tls_ciphers G R default
client_tls_dheparams G R auto
client_tls_ecdhcurve G R auto
client_tls_key_file G R
client_tls_protocols G R secure
client_tls_sslmode G R disable
conffile G R
default_pool_size G R 20
disable_pqexec G - 0
dns_max_ttl G R 15
dns_nxdomain_ttl G R 15
dns_zone_check_period G R 0
idle_transaction_timeout GU R 0
ignore_startup_parameters G R
job_name G - pgbouncer
listen_addr G -
listen_backlog G - 128
listen_port G - 6432
log_connections G R 1
log_disconnections G R 1
log_pooler_errors G R 1
log_stats G R 1
logfile G R
login_notify_message G R
max_client_conn G R 100
max_db_client_connections GD R 0
max_db_connections GD R 0
max_packet_size G R 2147483647
max_prepared_statements G R 200
max_user_client_connections GU R 0
max_user_connections GU R 0
min_pool_size GD R 0
peer_id G R 0
pidfile G -
pkt_buf G - 4096
pool_idle_timeout G R 0
pool_mode GDU R session
query_timeout GU R 0
query_wait_notify G R 5
query_wait_timeout GDU R 120
reserve_pool_size GDU R 0
reserve_pool_timeout G R 5
resolv_conf G -
sbuf_loopcnt G R 5
scram_iterations G R 4096
server_check_delay G R 30
server_check_query G R <empty>
server_connect_timeout G R 15
server_fast_close G R 0
server_idle_timeout G R 600
server_lifetime GD R 3600
server_login_retry G R 15
server_reset_query G R DISCARD ALL
server_reset_query_always G R 0
server_round_robin G R 0
server_tls13_ciphers G R
server_tls_ca_file G R
server_tls_cert_file G R
server_tls_ciphers G R default
server_tls_key_file G R
server_tls_protocols G R secure
server_tls_sslmode G R prefer
service_name G - pgbouncer
so_reuseport G - 0
stats_period G R 60
stats_users G R
suspend_timeout G R 10
syslog G R 0
syslog_facility G R daemon
syslog_ident G R pgbouncer
tcp_defer_accept G R 1
tcp_keepalive G R 1
tcp_keepcnt G R 0
tcp_keepidle G R 0
tcp_keepintvl G R 0
tcp_socket_buffer G R 0
tcp_user_timeout G R 0
track_extra_parameters G - IntervalStyle
transaction_timeout GU R 0
unix_socket_dir G - /tmp
unix_socket_group G -
unix_socket_mode G - 0777
user G -
verbose G R 0
`.trim().split("\n").map((line) => {
  const [, name, scope, reload, text] = /^(\S+) (\S+) (\S)(?: (.*))?$/.exec(line)!;
  return {
    name: name!,
    scope: scope!,
    when: reload === "R" ? "reload" : "start",
    text: text ?? "",
  };
});

const test = suite("PgBouncer's parameters");

test("all 101 are known, by default and scope and whether they can be reloaded", () => {
  assert.is(PGBOUNCER.length, 101);
  for (const { name, scope, when, text } of PGBOUNCER) {
    const setting = findSetting(name);
    assert.ok(setting?.pgbouncer, name);
    const ours = { name, scope: setting.scope, when: setting.when, text: setting.default };
    assert.equal(ours, { name, scope, when, text });
  }
  const all: readonly Setting[] = settingsTable;
  assert.is(all.filter(({ pgbouncer }) => pgbouncer).length, 101);
});

/** A value that is not the default and would be one. */
function otherValue(setting: Setting): string {
  const { kind } = setting;
  const candidates = typeof kind === "object"
    ? kind.oneOf
    : ["1", "0", "2", "12", "1024", "0700", "x", "1.5"];
  const other = candidates.find((text) => {
    const parsed = parseValue(kind, text, setting);
    return "value" in parsed && formatValue(kind, parsed.value) !== setting.default &&
      !(setting.working ?? []).includes(text);
  });
  assert.ok(other !== undefined, setting.name);
  return other;
}

test("a parameter that does not do what it says is named, with a reason, when a file sets it", () => {
  for (const { name } of PGBOUNCER) {
    const setting = findSetting(name)!;
    if (setting.support === "works") continue;
    assert.ok(setting.instead, `${name}: neither does it work nor does the table say why not`);
    const { problems, warnings } = load(iniWith(`${name} = ${otherValue(setting)}`));
    const found = setting.support === "refused" ? problems : warnings;
    assert.ok(found.some(({ line, message }) => line === 5 && message.startsWith(name)), name);
  }
});

test.run();
