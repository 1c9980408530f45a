// Loading a whole configuration: typed results, every problem at once with its place, what this version
// ignores or refuses, and secrets that stay out of all of it.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { assert, suite } from "../support/harness.ts";
import {
  loadConfig,
  lookupDatabase,
  poolModeFor,
  poolSizeFor,
  problemText,
} from "../../shared/config/mod.ts";
import { configOf, iniWith, lines, load, MAIN } from "./fixtures.ts";

const test = suite("load");

const TYPICAL = `
;; database name = connect string
[databases]
; over the unix socket
local =
shop = host=10.0.0.5 port=5433 dbname=shop_production pool_size=40
reports = host=10.0.0.6,10.0.0.7 user=reporter password='it''s' connect_query='set work_mem = ''64MB''' client_encoding=UTF8 application_name=reports
* = host=10.0.0.5

[users]
batch = pool_size=5 pool_mode=transaction

[pgbouncer]
listen_addr = 0.0.0.0, ::
listen_port = 6432
unix_socket_dir = /var/run/postgresql
unix_socket_mode = 0770

;client_tls_sslmode = disable
server_tls_sslmode = prefer
server_tls_protocols = secure
server_tls_ciphers = default

auth_type = scram-sha-256
auth_file = /etc/pgbouncer/userlist.txt
admin_users = postgres, admin
stats_users = stats

pool_mode = transaction
max_client_conn = 2000
default_pool_size = 25
min_pool_size = 0
reserve_pool_size = 0
max_db_connections = 0
max_prepared_statements = 200
ignore_startup_parameters = extra_float_digits, search_path
server_reset_query = DISCARD ALL
server_check_query = <empty>
server_idle_timeout = 300
query_wait_timeout = 30.5
log_connections = 0
log_disconnections = 0
tcp_keepalive = 1
tcp_keepidle = 60
`;

const USERS = { "/etc/pgbouncer/userlist.txt": '"postgres" "secret"\n"shop" "hunter2"\n' };

test("loadConfig() loads a usual pgbouncer.ini without a problem or a warning", () => {
  const { config, problems, warnings } = load(TYPICAL, USERS);
  assert.equal(lines(problems), []);
  assert.equal(lines(warnings), []);
  assert.ok(config);
  const { settings } = config;
  assert.equal(settings.listenAddr, ["0.0.0.0", "::"]);
  assert.is(settings.unixSocketMode, 0o770);
  assert.equal(settings.adminUsers, ["postgres", "admin"]);
  assert.is(settings.authType, "scram-sha-256");
  assert.is(settings.queryWaitTimeoutMs, 30_500);
  assert.is(settings.logConnections, false);
  assert.equal([...config.databases.keys()], ["local", "shop", "reports"]);
  assert.equal([...config.userlist.keys()], ["postgres", "shop"]);
});

test("loadConfig() fills every field of a database", () => {
  const config = configOf(TYPICAL, USERS);
  assert.equal(config.databases.get("reports"), {
    name: "reports",
    dbname: "reports",
    hosts: ["10.0.0.6", "10.0.0.7"],
    port: 5432,
    user: "reporter",
    password: "it's",
    authUser: null,
    authQuery: null,
    authDbname: null,
    poolSize: null,
    minPoolSize: null,
    reservePoolSize: null,
    poolMode: null,
    connectQuery: "set work_mem = '64MB'",
    loadBalanceHosts: "round-robin",
    maxDbConnections: null,
    maxDbClientConnections: null,
    serverLifetimeMs: null,
    queryWaitTimeoutMs: null,
    warnSessionFeatures: null,
    bounds: null,
    shed: null,
    startupParameters: { client_encoding: "UTF8", application_name: "reports" },
  });
  assert.is(config.databases.get("shop")?.dbname, "shop_production");
  assert.is(config.databases.get("shop")?.port, 5433);
});

test("loadConfig() takes unix_socket_dir for a database without a host, wherever it stands", () => {
  const config = configOf(TYPICAL, USERS);
  assert.equal(config.databases.get("local")?.hosts, ["/var/run/postgresql"]);
  assert.equal(configOf(iniWith("", "a =")).databases.get("a")?.hosts, ["/tmp"]);
  const hosts = "a = host=/run/pg\nb = host=@pg\nc = host='h1, h2'";
  const { databases } = configOf(iniWith("", hosts));
  assert.equal([...databases.values()].map(({ hosts }) => hosts), [["/run/pg"], ["@pg"], [
    "h1",
    "h2",
  ]]);
});

test("loadConfig() fills every field of a user", () => {
  const config = configOf(iniWith() + "[users]\nu = pool_size=3 reserve_pool_size=0\n");
  assert.equal(config.users.get("u"), {
    name: "u",
    poolMode: null,
    poolSize: 3,
    reservePoolSize: 0,
    maxUserConnections: null,
    maxUserClientConnections: null,
    queryTimeoutMs: null,
    queryWaitTimeoutMs: null,
    idleTransactionTimeoutMs: null,
    transactionTimeoutMs: null,
    clientIdleTimeoutMs: null,
    shed: null,
  });
});

test("loadConfig() returns a frozen configuration that survives a structured clone", () => {
  const config = configOf(TYPICAL, USERS);
  assert.ok(Object.isFrozen(config) && Object.isFrozen(config.settings));
  assert.ok(Object.isFrozen(config.settings.listenAddr));
  for (const database of config.databases.values()) {
    assert.ok(Object.isFrozen(database) && Object.isFrozen(database.hosts));
    assert.ok(Object.isFrozen(database.startupParameters));
  }
  assert.ok(Object.isFrozen(config.userlist.get("shop")));
  assert.equal(structuredClone(config), config);
});

test("loadConfig() reports all problems at once, each with its file and line", () => {
  const text = `[databases]
shop = host=a prot=5433
pgbouncer = host=a
shop2 = host='a
[pgbuncer]
x = 1
[pgbouncer]
pool_mode = sesion
listen_prot = 6432
listen_port = 99999
query_wait_timeout = 5min
auth_type = hba
auth_file = users.txt
client_tls_protocols = tlsv9
console_listen = x
verbose = 1 ; more
nonsense
%include more.ini
`;
  const { config, problems } = load(text, {
    "users.txt": '"a" "b"\n"c"\n',
    "more.ini": "resolv_conf = /r\nbudget_mode = loose\nproxy_protocol = 1\n",
  });
  assert.is(config, null);
  assert.equal(problems.map(problemText).sort(), [
    `main.ini:10: listen_port: "99999" is not a whole number from 1 to 65535`,
    `main.ini:11: query_wait_timeout: "5min" is not a number of seconds, without a unit, from 0 to 1000000000000`,
    "main.ini:12: auth_type = hba needs an auth_hba_file",
    `main.ini:14: client_tls_protocols names no TLS versions: wanted versions from tlsv1.0 to tlsv1.3, or all, secure, legacy`,
    `main.ini:16: verbose: "1 ; more" is not a whole number from 0 to 2147483647, and comments have lines of their own`,
    `main.ini:17: no "=" in the line: "key = value", a section or a comment is wanted`,
    `main.ini:2: database "shop": unrecognized connection parameter: prot, did you mean "port"`,
    `main.ini:3: database name "pgbouncer" is reserved for the admin console`,
    `main.ini:4: database "shop2": the quote of "host" is not closed`,
    `main.ini:5: invalid section "pgbuncer", did you mean "pgbouncer"`,
    `main.ini:8: pool_mode: "sesion" is not one of session, transaction, statement`,
    `main.ini:9: unknown parameter: pgbouncer/listen_prot, did you mean "listen_port"`,
    `more.ini:1: resolv_conf = "/r" is not supported: names are resolved as the system does`,
    `more.ini:2: budget_mode: "loose" is not one of static, leased`,
    `more.ini:3: proxy_protocol = "1" is not supported: this version does not read the PROXY header`,
    `users.txt:2: no secret in quotes after the user`,
  ]);
});

/** Settings, and what they are answered with; `error` or `warning` and the message, or nothing. */
const verdicts: readonly (readonly [string, string])[] = [
  ["auth_type = any", `error database "shop": auth_type = any needs a user = in every database`],
  ["auth_type = trust", ""],
  ["auth_type = PLAIN", ""],
  ["auth_type = md5", ""],
  ["auth_type = pam", ""],
  ["auth_type = ldap", "error auth_type = ldap needs auth_ldap_options"],
  ["auth_type = ldap\nauth_ldap_options = ldapserver=a ldapprefix=uid=", ""],
  [
    "auth_type = ldap\nauth_ldap_options = ldapserver=a ldapbindpasswd=hunter2",
    "error auth_ldap_options: one of ldapbasedn, ldapurl, ldapprefix and ldapsuffix is needed",
  ],
  [
    "auth_type = cert",
    "error auth_type = cert requires client_tls_sslmode = verify-full (or verify-ca)",
  ],
  ["auth_type = hba", "error auth_type = hba needs an auth_hba_file"],
  [
    "auth_type = hba\nauth_hba_file = none.conf",
    `error read auth_hba_file "none.conf": no such file`,
  ],
  ["auth_hba_file = none.conf", ""],
  ["auth_user = pooler", ""],
  ["auth_dbname = shop", ""],
  [
    "auth_dbname = pgbouncer",
    `error auth_dbname: database "pgbouncer" is reserved for the admin console`,
  ],
  [
    "auth_dbname = nowhere",
    `warning auth_dbname "nowhere" is not in [databases]: auth_query fails`,
  ],
  ["client_tls_sslmode = disable", ""],
  [
    "client_tls_sslmode = allow",
    "error To allow TLS connections from clients, client_tls_key_file and client_tls_cert_file must be set",
  ],
  ["server_tls_sslmode = disable", ""],
  [
    "server_tls_cert_file = x.crt",
    "error server_tls_cert_file is set and server_tls_key_file is empty: both are needed",
  ],
  ["max_user_connections = 9", ""],
  [
    "max_user_connections = -2",
    `error max_user_connections: "-2" is not a whole number from -1 to 2147483647`,
  ],
  [
    "resolv_conf = /r",
    `error resolv_conf = "/r" is not supported: names are resolved as the system does`,
  ],
  ["logfile = /var/log/p.log\npidfile = /run/p.pid\nuser = nobody\nunix_socket_group = g", ""],
  ["syslog = 1\nsyslog_facility = LOCAL3\nsyslog_ident = p", ""],
  ["job_name = p", `warning job_name = "p" has no effect: it names a Windows service in PgBouncer`],
  ["min_pool_size = 5", ""],
  ["query_wait_notify = 5.0", ""],
  ["budget_auth = user=root password='it''s' dbname=postgres", ""],
  ["budget_auth = user=root", ""],
  [
    "budget_auth = root:hunter2",
    `error budget_auth: no "=" after the key at column 1, wanted user=a password=b dbname=c`,
  ],
  [
    "budget_auth = user=root password=my hunter2=x",
    "error budget_auth: key 3 is unknown, wanted user=a password=b dbname=c",
  ],
  [
    "budget_auth = password=hunter2",
    "error budget_auth: it names no user, wanted user=a password=b dbname=c",
  ],
  [
    "budget_auth = user=a user=b",
    "error budget_auth: user stands twice, wanted user=a password=b dbname=c",
  ],
  ["budget_mode = leased\nbudget_lease = 2.5", ""],
  [
    "budget_lease = 0.5",
    `error budget_lease: "0.5" is not a number of seconds, without a unit, from 1 to 1000000000000`,
  ],
  ["bus_url = tls://a\nbus_credentials = /c\nbus_tls_ca_file = /ca", ""],
  ["bus_url = tls://a\nbus_tls_cert_file = /c\nbus_tls_key_file = /k", ""],
  [
    "bus_credentials = /c",
    "error bus_credentials is set and bus_url is empty: without bus_url the bus is one of this host alone, with no login and no TLS",
  ],
  [
    "bus_url = nats://a\nbus_tls_cert_file = /c",
    "error bus_tls_cert_file is set and bus_tls_key_file is empty: both are needed",
  ],
  [
    "bus_url = nats://a\nbus_tls_key_file = /k",
    "error bus_tls_key_file is set and bus_tls_cert_file is empty: both are needed",
  ],
  ["bus_url = nats://u:hunter2@a, nats://b", ""],
  ["bus_url = a, tls://b:4222", ""],
  ...["http://a", "a:4222:hunter2", "nats://a, nats://"].map((servers): [string, string] => [
    `bus_url = ${servers}`,
    "error bus_url is no list of NATS servers: wanted nats://host:port or tls://host:port, with commas between several",
  ]),
  ["workers = 4", ""],
  ["workers = many", `error workers: "many" is not auto or a whole number from 1 to 1024`],
  [
    "unix_socket_dir =",
    `error nothing to listen on: listen_addr and unix_socket_dir are both empty`,
  ],
  ["unix_socket_dir = @pg", ""],
  [
    `unix_socket_dir = /${"d".repeat(99)}`,
    "error unix_socket_dir makes a socket path longer than 107 bytes",
  ],
  [
    "default_pool_size = 0",
    "warning default_pool_size = 0: no server connection is opened, clients wait for ever",
  ],
  ["max_prepared_statements = 1", ""],
  [
    "max_prepared_statements = 0",
    "warning max_prepared_statements = 0: in transaction and statement pooling a client may execute what another " +
    "one has prepared under the same name",
  ],
  ["auth_file = gone.txt", `error read auth_file "gone.txt": no such file`],
  [
    "drain_timeout = \x1b[2J",
    String
      .raw`error drain_timeout: "\x1b[2J" is not a number of seconds, without a unit, from 0 to 1000000000000`,
  ],
];

test("loadConfig() answers each setting with an error, a warning or nothing", () => {
  for (const [line, expected] of verdicts) {
    const { problems, warnings } = load(iniWith(line));
    const found = [
      ...problems.map(({ message }) => `error ${message}`),
      ...warnings.filter(({ message }) => !message.endsWith("nobody can log in"))
        .map(({ message }) => `warning ${message}`),
    ];
    assert.equal(found, expected === "" ? [] : [expected], line);
  }
});

const entryVerdicts: readonly (readonly [string, string])[] = [
  ["a = host=h pool_mode=session", ""],
  [
    "a = host=h warn_session_features=on",
    `error database "a": warn_session_features: "on" is not one of off, notice, refuse`,
  ],
  ["a = host=h pool_mode=transaction", ""],
  ["a = host=h max_db_connections=5 max_db_client_connections=0", ""],
  ["a = host=h auth_user=x auth_query='SELECT $1, 2' auth_dbname=a", ""],
  [
    "a = host=h auth_dbname=b",
    `warning auth_dbname "b" is not in [databases]: auth_query fails`,
  ],
  [
    "a = host=h auth_dbname=pgbouncer",
    `error auth_dbname: database "pgbouncer" is reserved for the admin console`,
  ],
  ["a = host=h query_wait_timeout=120", ""],
  ["a = host=h reserve_pool=5", ""],
  ["a = host=h port=0", `error database "a": port: "0" is not a whole number from 1 to 65535`],
  [
    "a = host=h pool_size=x",
    `error database "a": pool_size: "x" is not a whole number from -1 to 2147483647`,
  ],
  ["a = host=,", `error database "a": host: "," is not a list without empty items`],
  ["a = host=h,,g", `error database "a": host: "h,,g" is not a list without empty items`],
  ["a = host=h port=1 port=2", `warning database "a": port stands twice, the last one wins`],
  [
    "a = host=h hots=g",
    `error database "a": unrecognized connection parameter: hots, did you mean "host"`,
  ],
  [
    "a = host=h password=my hunter2=x",
    `error database "a": unrecognized connection parameter after password, a value with blanks needs single quotes`,
  ],
  ["a = host=h password='hunter2", `error database "a": the quote of "password" is not closed`],
  [
    `a = host=/${"d".repeat(99)}`,
    `error database "a": host makes a socket path longer than 107 bytes`,
  ],
  [`a = host=h user=${"u".repeat(129)}`, `error database "a": user is longer than 128 bytes`],
  [`${"a".repeat(63)} = host=h`, ""],
  [
    `${"a".repeat(64)} = host=h`,
    `error database "${"a".repeat(64)}": the name is longer than 63 bytes`,
  ],
  ["a = host=h\na = host=g", `warning "a" stood in line 2 already, this line wins`],
  ["a = host=h\n[users]\nu = pool_mode=statement", ""],
  ["a = host=h\n[users]\nu = max_user_connections=5 max_user_client_connections=6", ""],
  ["a = host=h\n[users]\nu = query_timeout=0.5 client_idle_timeout=0", ""],
  ["a = host=h\n[users]\nu = host=h", `error user "u": unrecognized user parameter: host`],
  ["a = host=h\n[groups]\ng = max_concurrent_queries=4\n[group_rules]\nr = group=g", ""],
  [
    "a = host=h\n[groups]\ng = cpu_shares=200\n[group_rules]\nr = group=g",
    `warning group "g": cpu_shares divides slots only, not CPU without bus_url, by which a monitor on the database host is heard`,
  ],
  [
    "a = host=h\n[groups]\ng = soft_max_memory=4GB\n[group_rules]\nr = group=g",
    `warning group "g": soft_max_memory goes by estimates without bus_url, by which a monitor on the database host is heard`,
  ],
  [
    "a = host=h\n[pgweir]\nbus_url = nats://h:4222\n[groups]\ng = cpu_shares=200 soft_max_memory=4GB\n" +
    "[group_rules]\nr = group=g",
    "",
  ],
  [
    "a = host=h\n[peers]\n1 = host=/tmp/p1",
    "warning section [peers] is not needed: workers find each other on the bus",
  ],
];

test("loadConfig() answers each entry with an error, a warning or nothing", () => {
  for (const [text, expected] of entryVerdicts) {
    const { problems, warnings } = load(iniWith("auth_file = u.txt", text), {
      "u.txt": '"u" "hunter2"',
    });
    const found = [
      ...problems.map(({ message }) => `error ${message}`),
      ...warnings.map(({ message }) => `warning ${message}`),
    ];
    assert.equal(found, expected === "" ? [] : [expected], text);
  }
});

test("loadConfig() takes what PgBouncer takes for no limit, for ever and as without the key", () => {
  const { settings, databases, users } = configOf(
    iniWith(
      "max_db_connections = -1\nmax_user_connections = -1\nmax_db_client_connections = -1\n" +
        "max_user_client_connections = -1\nlisten_backlog = 0\nmax_packet_size = 4294967295\n" +
        "server_lifetime = 99999999999",
      "a = host=h pool_size=-1 min_pool_size=-1 reserve_pool=-1 max_db_connections=-1",
    ) + "[users]\nu = pool_size=-1 reserve_pool_size=-1 max_user_connections=-1\n",
  );
  assert.is(settings.maxDbConnections, -1);
  assert.is(settings.listenBacklog, 0);
  assert.is(settings.maxPacketSize, 4294967295);
  assert.is(settings.serverLifetimeMs, 99_999_999_999_000);
  const { poolSize, minPoolSize, reservePoolSize, maxDbConnections } = databases.get("a")!;
  assert.equal([poolSize, minPoolSize, reservePoolSize, maxDbConnections], [
    null,
    null,
    null,
    null,
  ]);
  const user = users.get("u")!;
  assert.equal([user.poolSize, user.reservePoolSize, user.maxUserConnections], [null, null, null]);
});

test("loadConfig() refuses the peers that PgBouncer refuses", () => {
  const peers: readonly (readonly [string, string])[] = [
    ["65535 = host=x port=6432 pool_size=-1", ""],
    ["a = host=x", `peer "a": its id is not a whole number from 1 to 65535`],
    ["0 = host=x", `peer "0": its id is not a whole number from 1 to 65535`],
    ["99999 = host=x", `peer "99999": its id is not a whole number from 1 to 65535`],
    ["3 = port=1", `peer "3": it has no host`],
    ["3 = host=x foo=1", `peer "3": unrecognized peer parameter: foo`],
  ];
  for (const [line, expected] of peers) {
    const { problems } = load(iniWith("", `a = host=h\n[peers]\n${line}`));
    const found = problems.map(({ line, message }) => `${line}: ${message}`);
    assert.equal(found, expected === "" ? [] : [`4: ${expected}`], line);
  }
});

test("poolModeFor() asks the user, then the database, then the setting, whose default is session", () => {
  const config = configOf(
    "[databases]\nshop = host=h pool_mode=transaction\nplain = host=h\n[pgbouncer]\n" +
      "auth_type = trust\n[users]\nbatch = pool_mode=statement\n",
  );
  const mode = (database: string, user: string) =>
    poolModeFor(config, lookupDatabase(config, database)!, user);
  assert.is(mode("shop", "batch"), "statement");
  assert.is(mode("shop", "web"), "transaction");
  assert.is(mode("plain", "web"), "session");
});

test("loadConfig() reports a file without the section [pgbouncer]", () => {
  const messages = lines(load("[databases]\na = host=h\n").problems);
  assert.is(messages[0], "0: no section [pgbouncer]");
});

test("loadConfig() reads [pgweir] as [pgbouncer]", () => {
  const config = configOf("[pgweir]\npool_mode = transaction\nworkers = 3\nlisten_port = 7000\n");
  assert.is(config.settings.workers, 3);
  assert.is(config.settings.listenPort, 7000);
  const both = load(iniWith("listen_port = 1\n[pgweir]\nlisten_port = 2"));
  assert.is(both.config?.settings.listenPort, 2);
  assert.ok(
    lines(both.warnings).includes(
      `7: "listen_port" stood in line 5 already, this line wins`,
    ),
  );
});

test("loadConfig() keeps earlier settings when [pgbouncer] is opened again, and says so", () => {
  const { config, warnings } = load(iniWith("listen_port = 7000\n[pgbouncer]\nverbose = 1"));
  assert.is(config?.settings.listenPort, 7000);
  assert.is(
    lines(warnings)[0],
    "6: section [pgbouncer] was opened in line 3 already: the settings there stay, " +
      "PgBouncer would put them back to their defaults",
  );
});

test("loadConfig() judges the last value when a setting stands twice", () => {
  const { config, warnings } = load(iniWith("resolv_conf = /r\nresolv_conf ="));
  assert.is(config?.settings.resolvConf, "");
  assert.is(lines(warnings)[0], `6: "resolv_conf" stood in line 5 already, this line wins`);
});

test("loadConfig() warns when nobody can connect or log in", () => {
  assert.equal(lines(load("[pgbouncer]\npool_mode = transaction\n").warnings), [
    "0: auth_type = md5 and no user in auth_file: nobody can log in",
    "0: section [databases] names no database: nobody can connect",
  ]);
});

test("loadConfig() knows that users may be looked up, and by whom", () => {
  const scram = `SCRAM-SHA-256$4096:c2FsdA==$${"A".repeat(43)}=:${"A".repeat(43)}=`;
  const files = { "users.txt": `"asker" "${scram}"` };
  assert.equal(lines(load(iniWith("auth_user = asker")).warnings), []);
  assert.equal(lines(load(iniWith("auth_user = asker\nauth_file = users.txt"), files).warnings), [
    '5: auth_user "asker" has a SCRAM secret in auth_file: only its password can log in to a server',
  ]);
  assert.equal(lines(load(iniWith("", "shop = host=h auth_user=asker")).warnings), []);
});

test("loadConfig() reads the rules of auth_type = hba and the maps they name", () => {
  const text = iniWith("auth_type = hba\nauth_hba_file = hba\nauth_ident_file = ident");
  const files = {
    hba: "local all all peer map=own\nhost all all all trust\n",
    ident: "own root all\n",
    "users.txt": "",
  };
  const { hba, identMaps, hash } = configOf(text, files);
  assert.equal(hba.map(({ line, method, map }) => [line, method, map]), [
    [1, "peer", "own"],
    [2, "trust", null],
  ]);
  assert.equal(identMaps.get("own"), [{ systemUser: "root", user: null }]);
  assert.is.not(hash, configOf(text, { ...files, ident: "own root root\n" }).hash);
  assert.is.not(hash, configOf(text, { ...files, hba: "host all all all trust\n" }).hash);
  assert.is.not(
    configOf(text, { ...files, hba: "host all a all trust\n" }).hash,
    configOf(text, { ...files, hba: "host all b all trust\n" }).hash,
  );
  const broken = load(text, { ...files, hba: "local all all peer map=other\nx\n", ident: "a\n" });
  assert.equal(broken.problems.map(({ file, line }) => `${file}:${line}`), [
    "ident:1",
    "hba:2",
    "hba:1",
  ]);
  const empty = load(text, { ...files, hba: "# nothing\n" });
  assert.ok(
    lines(empty.warnings).includes("0: auth_hba_file has no rule: nobody can log in"),
    String(lines(empty.warnings)),
  );
});

test("loadConfig() counts all secrets of a user only where it is told to", () => {
  const files = { "users.txt": '"u" "1"\n"u" "2"\n' };
  const text = (several: number) =>
    iniWith(`auth_file = users.txt\nauth_several_secrets = ${several}`);
  const [last, all] = [configOf(text(0), files), configOf(text(1), files)];
  assert.is(last.userlist.get("u")?.secret, "2");
  assert.is(last.userlist.get("u")?.others, undefined);
  assert.is(all.userlist.get("u")?.secret, "1");
  assert.equal(all.userlist.get("u")?.others?.map(({ secret }) => secret), ["2"]);
  assert.is.not(all.hash, configOf(text(1), { "users.txt": '"u" "1"\n"u" "3"\n' }).hash);
});

test("loadConfig() lists a thousand problems and counts the others", () => {
  const { problems } = load(`[pgbouncer]\n${"nonsense\n".repeat(300_000)}`);
  assert.is(problems.length, 1001);
  assert.is(problems.at(-1)?.message, "299000 more problem(s) are not listed");
});

test("loadConfig() puts no secret into problems and warnings", () => {
  const text = `[databases]
a = host=h password=hunter2 port=x
b = host=h password='hunter2
c = host=h password=hunter2 hunter2=1
hunter2
[pgbouncer]
auth_file = users.txt
budget_auth = hunter2
bus_url = nats://hunter2@h
auth_ldap_options = hunter2
console_admin = hunter2
`;
  const { problems, warnings } = load(text, { "users.txt": '"a" "hunter2\n"a" hunter2\nhunter2' });
  assert.ok(problems.length >= 7);
  assert.not.match(JSON.stringify([problems, warnings]), "hunter2");
});

test("loadConfig() hash is equal for files that mean the same and differs when the meaning does", () => {
  const base = configOf(iniWith("verbose = 0", "a = host=h\nb = host=h port=5432"));
  assert.match(base.hash, /^[0-9a-f]{64}$/);
  const same = [
    iniWith("; comment", "b = port=5432 host=h\n\na = host='h'"),
    iniWith("query_wait_timeout = 120.0\nlisten_port=6432", "a = host=h\nb = host=h dbname=b"),
  ];
  for (const text of same) assert.is(configOf(text).hash, base.hash, text);
  const different = [
    iniWith("verbose = 1", "a = host=h\nb = host=h"),
    iniWith("", "a = host=h\nb = host=g"),
    iniWith("", "a = host=h\nb = host=h\n* = host=h"),
    iniWith("", "a = host=h\nb = host=h\n[users]\nu = pool_size=1"),
    iniWith("", "a = host=h\nb = host=h password=x"),
    iniWith("", "a = host=h\nb = host=h password=y"),
    iniWith("bus_url = nats://a", "a = host=h\nb = host=h"),
    iniWith("bus_url = nats://b", "a = host=h\nb = host=h"),
  ];
  const hashes = [base.hash, ...different.map((text) => configOf(text).hash)];
  const list = iniWith("auth_file = u", "a = host=h\nb = host=h");
  for (const users of ['"u" ""', '"u" "1"', '"u" "2"', '"v" "2"']) {
    hashes.push(configOf(list, { u: users }).hash);
  }
  assert.is(new Set(hashes).size, hashes.length);
});

test("lookupDatabase() returns the entry, else the fallback under the name asked for, else null", () => {
  const config = configOf(iniWith("", "a = host=h dbname=x\n* = host=g port=1 pool_size=2"));
  assert.is(lookupDatabase(config, "a")?.dbname, "x");
  const other = lookupDatabase(config, "other");
  assert.is(other?.name, "other");
  assert.is(other?.dbname, "other");
  assert.equal(other?.hosts, ["g"]);
  assert.is(lookupDatabase(config, "pgbouncer"), null);
  assert.is(lookupDatabase(config, ""), null);
  assert.is(lookupDatabase(config, "a".repeat(64)), null);
  assert.is(lookupDatabase(configOf(iniWith("", "a = host=h")), "other"), null);
  const fixed = configOf(iniWith("", "* = host=h dbname=x"));
  assert.is(lookupDatabase(fixed, "other")?.dbname, "x");
});

test("poolSizeFor() takes the user's size, then the database's, then the default", () => {
  const config = configOf(
    iniWith("default_pool_size = 7", "a = host=h\nb = host=h pool_size=3\n* = host=h pool_size=4") +
      "[users]\nu = pool_size=2\nv =\nzero = pool_size=0\n",
  );
  const rows: readonly (readonly [string, string, number])[] = [
    ["a", "x", 7],
    ["b", "x", 3],
    ["other", "x", 4],
    ["a", "u", 2],
    ["b", "u", 2],
    ["b", "v", 3],
    ["b", "zero", 0],
  ];
  for (const [database, user, size] of rows) {
    assert.is(poolSizeFor(config, database, user), size, `${database}/${user}`);
  }
});

test("loadConfig() reads files from disk, and says why when it cannot", () => {
  const folder = mkdtempSync(join(tmpdir(), "pgweir-config-"));
  try {
    const path = join(folder, MAIN);
    const users = join(folder, "users.txt");
    writeFileSync(users, '"u" "x"\n');
    writeFileSync(path, `\uFEFF${iniWith(`auth_file = ${users}`)}`);
    const { config, problems } = loadConfig(path);
    assert.equal(problems, []);
    assert.is(config?.userlist.get("u")?.secret, "x");
    const latin1 = new Uint8Array([...new TextEncoder().encode('"u" "'), 0xe4, 0x22]);
    writeFileSync(users, latin1);
    assert.equal(loadConfig(path).problems.map(problemText), [
      `${users}:1: line is not valid UTF-8, or holds a NUL character`,
    ]);
    rmSync(users);
    assert.equal(loadConfig(path).problems.map(problemText), [
      `${path}:5: read auth_file "${users}": no such file`,
    ]);
    const [directory] = loadConfig(folder).problems;
    assert.is(directory?.message, `read "${folder}": it is a directory`);
    const [device] = loadConfig("/dev/zero").problems;
    assert.is(device?.message, `read "/dev/zero": the file is larger than 67108864 bytes`);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test.run();
