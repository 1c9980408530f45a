// Hostile input for the readers of files: no exception, no hang, and results that keep their promises: what parses is
// the same when it is printed and parsed again, a problem has its line, and no secret is in it. Inputs are valid
// examples that were changed, and the characters and words the grammars turn on. How many, and which:
// test/support/fuzz.ts.
// limit: 900 s

import {
  type Hba,
  type HbaClient,
  type HbaRule,
  mapsToUser,
  matchHba,
  parseHba,
  parseIdent,
} from "../../shared/config/hba.ts";
import { parseLdapOptions } from "../../shared/config/ldap.ts";
import { addressBytes } from "../../shared/config/network.ts";
import {
  formatValue,
  type Ini,
  loadConfig,
  parseConnectionString,
  parseUserlist,
  parseValue,
  type Problem,
  readIni,
  reportLines,
  secretsOf,
  type Setting,
  settingsTable,
  showConfigRows,
} from "../../shared/config/mod.ts";
import { type Dice, fuzz } from "../support/fuzz.ts";
import { assert, suite } from "../support/harness.ts";
import { filesOf, MAIN } from "./fixtures.ts";

const test = suite("fuzz");

const CHARACTERS = [..."'\"=[];#%*,. \t\r\n\0\\/@-_:$aZ09é\u00A0\uFFFD\uFEFF", "''", '""', "😀"];
const PIECES = [
  ...CHARACTERS,
  "\n[databases]\n",
  "\n[pgbouncer]\n",
  "\n[users]\n",
  "\n[groups]\n",
  "\n[group_rules]\n",
  "=~",
  " group=reports ",
  "(a|b)*",
  "%include ",
  "host=",
  "password='",
  "pool_mode = transaction\n",
  "listen_port = ",
  '"user" "secret"\n',
  "md5",
  "SCRAM-SHA-256$",
  "0x",
  "1e9",
  "-1",
];

/** Mostly a valid text that was changed, else any. */
function anyText(dice: Dice, samples: readonly string[], pieces: readonly string[]): string {
  return dice.chance(0.4) ? dice.text(pieces) : dice.mutateText(dice.pick(samples), pieces);
}

/** Each problem is one line of text, and says where it is. */
function checkProblems(problems: readonly Problem[], text: string): void {
  const last = text.split("\n").length;
  for (const { line, message } of problems) {
    assert.ok(line >= 1 && line <= last && message !== "");
    assert.not.match(message, "\n");
  }
}

const doubled = (text: string, quote = '"') => text.replaceAll(quote, quote + quote);
const quoted = (text: string) => `"${doubled(text)}"`;

// --- ini

const INIS = [
  `;comment\n[databases]\nshop = host=a port=5432 password='it''s'\n* = host=/tmp\n
[users]\n"a ""b" = pool_mode=session\n[pgbouncer]\nlisten_addr = *\nadmin_users = a, b\n`,
  `[pgbouncer] pool_mode = transaction\n%include a\n'key'=value # no comment\n[peers]\n1 = host=b\n`,
  `[databases]\nshop = host=a\n[groups]\nreports = max_concurrent_queries=8 max_queued=10 cpu_shares=256\n
monthly = parent=reports queue_timeout=1.5\n[group_rules]\nr1 = application_name=~^re(port|ad) group=monthly
r2 = client_addr=10.0.0.0/8 user=ann tag=x group=reports\n[pgbouncer]\npool_mode = transaction\n`,
];

function printIni({ entries }: Ini): string {
  return entries.map(({ section, key, value }) => `[${section}]\n${quoted(key)} = ${value}`)
    .join("\n");
}

const bare = ({ entries }: Ini) => entries.map(({ section, key, value }) => [section, key, value]);

fuzz(test, "readIni() survives any text", 70_000, (dice, note) => {
  const text = anyText(dice, INIS, PIECES);
  note(text);
  const ini = readIni(MAIN, filesOf({ [MAIN]: text }));
  checkProblems(ini.problems, text);
  for (const { line, key, value } of ini.entries) {
    assert.ok(line >= 1 && key !== "" && (text.length > 1000 || text.includes(value)));
  }
  const again = readIni(MAIN, filesOf({ [MAIN]: printIni(ini) }));
  assert.equal(again.problems, []);
  assert.equal(bare(again), bare(ini));
});

// --- connection strings

const CONNECTIONS = [
  "host=a port=5432 dbname=x",
  "host = a,b password='it''s a secret' pool_size=5",
  "connect_query='SELECT ''x''' auth_query='SELECT $1' timezone='Europe/Rome'",
  "user=a password=b pool_mode=session load_balance_hosts=disable",
];

fuzz(test, "parseConnectionString() survives any text", 60_000, (dice, note) => {
  const text = anyText(dice, CONNECTIONS, PIECES);
  note(text);
  const parsed = parseConnectionString(text);
  if ("failure" in parsed) return assert.ok(parsed.failure !== "");
  for (const { key, value } of parsed.pairs) assert.ok(key !== "" && value !== "");
  const printed = parsed.pairs.map(({ key, value }) => `${key}='${doubled(value, "'")}'`);
  assert.equal(parseConnectionString(printed.join(" ")), parsed);
});

fuzz(test, "parseConnectionString() reads back what is quoted as it asks", 10_000, (dice, note) => {
  const value = dice.text(PIECES);
  note(value);
  if (value === "") return;
  const parsed = parseConnectionString(`a=b password='${doubled(value, "'")}' c=d`);
  assert.ok("pairs" in parsed);
  assert.is(parsed.pairs.length, 3);
  assert.is(parsed.pairs[1]?.value, value);
});

// --- auth_file

const stored = `SCRAM-SHA-256$4096:c2FsdA==$${"A".repeat(43)}=:${"B".repeat(43)}=`;
const LISTS = [
  `"ann" "secret" more\n;comment\n"b ""o b""" "md5${"0".repeat(32)}"\n"ann" "${stored}"\n"c" ""\n`,
  `"é" "SCRAM-SHA-256$x"\n\n"é" "two"\n"é" "three"\n"é" "four"\n"é" "five"\n`,
];

fuzz(test, "parseUserlist() survives any text", 60_000, (dice, note) => {
  const text = anyText(dice, LISTS, PIECES);
  note(text);
  const several = dice.chance(0.5);
  const list = parseUserlist(text, "users.txt", several);
  checkProblems([...list.problems, ...list.warnings], text);
  let printed = "";
  for (const [name, entry] of list.users) {
    for (const { user, kind, secret } of secretsOf(entry)) {
      assert.ok(name === user && user !== "");
      assert.is(kind === "none", secret === "");
      printed += `${quoted(user)} ${quoted(secret)}\n`;
    }
  }
  const again = parseUserlist(printed, "users.txt", several);
  assert.equal(again.problems, []);
  assert.equal([...again.users], [...list.users]);
});

fuzz(test, "parseUserlist() reads back what is quoted as it asks", 10_000, (dice, note) => {
  const text = dice.text(PIECES);
  note(text);
  const plain = text.replaceAll(/[\n\0\uFFFD]/g, "");
  const at = dice.below(plain.length);
  const [user, secret] = [plain.slice(0, at).slice(0, 20), plain.slice(at)];
  if (user === "") return;
  const list = parseUserlist(`${quoted(user)} ${quoted(secret)}`, "users.txt");
  assert.is(list.users.get(user)?.secret, secret);
});

// --- auth_hba_file, auth_ident_file

const RULES = [
  'local all "all" peer map=users\nhost shop,@names ann,"b o b" 10.0.0.0/8 md5 # comment\n',
  "hostssl sameuser all 2001:db8::/32 cert map=certs\nhostnossl all @names ::ffff:10.1.2.3/128 reject\n",
  "host replication,all all 192.168.0.0 255.255.0.0 scram-sha-256\nhost all all all trust\n",
  'host "a""b",c, d all ::1 ffff:: password\nlocal "" "" trust\n',
  'host all all all ldap ldapserver="a b" ldapport=1 ldapprefix="cn=" "ldapsuffix=,dc=x"\n',
  'host all all ::/0 ldap ldapurl="ldap://h:1/dc=x?uid?sub" ldapbinddn=cn=a ldapbindpasswd="it""s"\n',
];
const RULE_PIECES = [
  ...CHARACTERS,
  ...["local ", "host ", "hostssl ", "hostnossl ", "all", "sameuser", "replication", "@names"],
  ...[
    "@loop",
    "@none",
    "map=",
    "trust",
    "md5",
    "peer",
    "cert",
    "::",
    "ffff",
    "/32",
    "255.",
    "10.0",
  ],
];
const hbaFiles = filesOf({
  "etc/names": 'one, "t w o"\n#three\n',
  "etc/loop": "@loop",
  "etc/no": "",
});
const readHba = (text: string) => parseHba(text, "etc/hba.conf", hbaFiles);

function printNames({ all, sameuser, replication, names }: HbaRule["databases"]): string {
  const words = [all && "all", sameuser && "sameuser", replication && "replication"];
  return [...words, ...[...names].map(quoted)].filter((word) => word !== false).join(",") || "@no";
}

function printNetwork({ bytes, bits }: NonNullable<HbaRule["network"]>): string {
  if (bytes.length === 4) return `${bytes.join(".")}/${bits}`;
  const groups = bytes.flatMap((byte, i) =>
    i % 2 > 0 ? [] : [(byte * 256 + bytes[i + 1]!).toString(16)]
  );
  return `${groups.join(":")}/${bits}`;
}

function printRule({ type, databases, users, network, method, map }: HbaRule): string {
  const where = type === "local" ? "" : network === null ? "all" : printNetwork(network);
  const option = map === null ? "" : quoted(`map=${map}`);
  return [type, printNames(databases), printNames(users), where, method, option].join(" ");
}

const withoutLines = (rules: Hba["rules"]) => rules.map((rule) => ({ ...rule, line: 0 }));
const bitsOf = (bytes: readonly number[]) =>
  bytes.map((byte) => byte.toString(2).padStart(8, "0")).join("");

/** The same in other words, for rules that stand alone. */
function isFor(rule: HbaRule, { host, tls, database, user, replication }: HbaClient): boolean {
  const { databases: d, network } = rule;
  const address = host === null ? null : addressBytes(host);
  const types = host === null ? ["local"] : ["host", tls ? "hostssl" : "hostnossl"];
  const isInside = network === null || (address?.length === network.bytes.length &&
    bitsOf(address).startsWith(bitsOf(network.bytes).slice(0, network.bits)));
  const isDatabase = replication
    ? d.replication
    : d.all || d.names.has(database) || (d.sameuser && database === user);
  const isUser = rule.users.all || rule.users.names.has(user);
  return types.includes(rule.type) && isInside && isDatabase && isUser;
}

const NAMES = ["ann", "b o b", "shop", "one", "t w o", "all", "sameuser", "", 'a"b', "ann\0.evil"];
const HOSTS = ["10.1.2.3", "192.168.7.7", "::1", "2001:db8::9", "::ffff:10.9.9.9", "fe80::1%eth0"];

function anyClient(dice: Dice): HbaClient {
  return {
    host: dice.chance(0.2) ? null : dice.pick(HOSTS),
    tls: dice.chance(0.5),
    database: dice.pick(NAMES),
    user: dice.pick(NAMES),
    replication: dice.chance(0.2),
  };
}

fuzz(
  test,
  "parseHba() survives any text, and its rules are for whom they say",
  90_000,
  (dice, note) => {
    const text = anyText(dice, RULES, RULE_PIECES);
    note(text);
    const hba = readHba(text);
    checkProblems([...hba.problems, ...hba.warnings], text);
    // What LDAP options were written for a rule is not kept.
    const rules = hba.rules.filter(({ ldap }) => ldap === null);
    const again = readHba(rules.map(printRule).join("\n"));
    assert.equal(again.problems, []);
    assert.equal(withoutLines(again.rules), withoutLines(rules));
    const client = anyClient(dice);
    const first = hba.rules.find((rule) => isFor(rule, client)) ?? null;
    assert.is(matchHba(hba.rules, client), first, JSON.stringify(client));
  },
);

/** Right and wrong ones, none of which takes the next one for its value. */
const LDAP_WORDS = [
  ...["ldapserver=a", 'ldapserver="a b"', "ldapport=x", "ldapport=389", "ldapscheme=ldaps"],
  ...[
    "ldapscheme=x",
    "ldaptls=1",
    "ldapbasedn=dc=a",
    'ldapurl="ldap://h/dc=x?uid?sub?(a=$username)"',
  ],
  ...["ldapurl=x", 'ldapprefix="cn="', "ldapsuffix=", "nonsense=1", "ldaptls", ",", '""'],
];
const LDAP_PIECES = [...CHARACTERS, ...LDAP_WORDS, "ldapbindpasswd=", "ldap://", "?", "(&(uid="];

fuzz(test, "parseLdapOptions() survives any text, and repeats no secret", 20_000, (dice, note) => {
  const secret = `s3cr3t${dice.below(1e9)}`;
  const some = () => Array.from({ length: dice.below(5) }, () => dice.pick(LDAP_WORDS)).join(" ");
  const password = dice.pick([
    secret,
    `"${secret}"`,
    `"${secret}`,
    `a ${secret}=b`,
    `"a"${secret}`,
  ]);
  const known = `${some()} ldapbindpasswd=${password} ${some()}`;
  for (const text of [anyText(dice, [some()], LDAP_PIECES), known]) {
    note(text);
    const options = parseLdapOptions(text);
    if (!("failure" in options)) continue;
    assert.ok(options.failure !== "" && !options.failure.includes(secret), options.failure);
    assert.not.match(options.failure, "\n");
  }
});

const MAPS = [
  'certs "ann.example" ann\ncerts b all # comment\n',
  'users ann ann\nusers "all" "all"\n',
];

fuzz(test, "parseIdent() survives any text, and maps nobody to another", 50_000, (dice, note) => {
  const text = anyText(dice, MAPS, RULE_PIECES);
  note(text);
  const { maps, problems } = parseIdent(text, "ident.conf");
  checkProblems(problems, text);
  const lines = [...maps].flatMap(([map, entries]) =>
    entries.map(({ systemUser, user }) =>
      [quoted(map), quoted(systemUser), user === null ? "all" : quoted(user)].join(" ")
    )
  );
  const again = parseIdent(lines.join("\n"), "ident.conf");
  assert.equal(again.problems, []);
  assert.equal([...again.maps], [...maps]);
  // A name of a certificate may be anything.
  const name = dice.pick([...NAMES, "ann.example", dice.text(CHARACTERS, 5)]);
  const [user, map] = [dice.pick(NAMES), dice.pick(["certs", "users", "none"])];
  const isListed = (maps.get(map) ?? []).some((entry) =>
    entry.systemUser === name && (entry.user ?? user) === user
  );
  assert.is(mapsToUser(maps, map, name, user), isListed);
  assert.is(mapsToUser(maps, null, name, user), name === user);
});

// --- values, and all of it together

const settings = settingsTable as readonly Setting[];

fuzz(test, "parseValue() reads back what formatValue() writes", 20_000, (dice, note) => {
  const setting = dice.pick(settings);
  const pieces = [...CHARACTERS, "0x", "1e9", "-1", "07", "kB", "auto", "on", setting.default];
  const text = dice.chance(0.3) ? setting.default : dice.text(pieces, 6);
  note(`${setting.name} = ${text}`);
  const parsed = parseValue(setting.kind, text, setting);
  if ("wanted" in parsed) return assert.ok(parsed.wanted !== "");
  const printed = formatValue(setting.kind, parsed.value);
  assert.equal(parseValue(setting.kind, printed, setting), parsed);
});

fuzz(
  test,
  "loadConfig() survives any text, and has a configuration or a problem",
  20_000,
  (dice, note) => {
    // With a secret in it the hash of a configuration takes long, on purpose.
    const text = anyText(dice, INIS, PIECES).replaceAll("password", "dbname");
    const setting = dice.pick(settings.filter(({ secret }) => secret !== true)).name;
    const main = dice.chance(0.5)
      ? text
      : `[pgbouncer]\npool_mode=transaction\n${setting} = ${dice.text(PIECES)}`;
    note(main);
    const { config, problems } = loadConfig(MAIN, filesOf({ [MAIN]: main, a: INIS[1]! }));
    assert.is(config === null, problems.length > 0);
  },
);

/** Words in any order, right and wrong ones, but none that takes the next one for its value. */
const WORDS = [
  ...["host=a", "port=x", "port=99999", "pool_size=5", "pool_size=-1", "user='a b'", "nonsense=1"],
  ...["pool_mode=none", "auth_user=b", "=", "''", "'x'=1", "a b", "pasword=1"],
];

fuzz(
  test,
  "no secret is in a problem, a warning, SHOW CONFIG or the report",
  20_000,
  (dice, note) => {
    const secret = `s3cr3t${dice.below(1e9)}`;
    const some = () => Array.from({ length: dice.below(4) }, () => dice.pick(WORDS)).join(" ");
    const password = dice.pick([
      `password=${secret}`,
      `password='${secret}'`,
      `password='${secret}`,
      `password = '${secret}'x`,
      `password=a ${secret}=b`,
    ]);
    const main = [
      "[databases]",
      `shop = ${some()} ${password} ${some()}`,
      dice.pick(["", `shop ${secret}`, `[users`, `"shop = password=${secret}`]),
      "[pgbouncer]",
      `auth_type = ${dice.pick(["md5", "any", "hba", "none"])}`,
      "auth_file = users.txt",
      dice.pick(["", "auth_hba_file = hba.conf"]),
      dice.pick([
        "",
        `budget_auth = user=a password=${secret} ${some()}`,
        `budget_auth = '${secret}`,
      ]),
      dice.pick(["", `bus_url = nats://a:${secret}@b`, `bus_url = x://a:${secret}@b`]),
      dice.pick(["", `console_admin = a:${secret}`, "pool_mode = x", "listen_port = y"]),
    ].join("\n");
    const line = `"ann" "${secret}"`;
    const users = dice.pick([
      `${line}\n${line}`,
      `"ann" "${secret}`,
      `ann ${secret}`,
      `"ann" ${secret}`,
      `#${line}`,
      `"ann" "SCRAM-SHA-256$${secret}"`,
      `"" "${secret}"`,
      `"ann" "${secret}\0"`,
    ]);
    const hba = "host all all all scram-sha-256\nhost all all all nonsense";
    note(`${main}\n--- users\n${users}`);
    const loaded = loadConfig(
      MAIN,
      filesOf({ [MAIN]: main, "users.txt": users, "hba.conf": hba }),
    );
    const { config, problems, warnings } = loaded;
    const told = JSON.stringify([
      problems,
      warnings,
      reportLines(MAIN, loaded),
      config === null ? [] : showConfigRows(config),
    ]);
    assert.not(told.includes(secret), told);
  },
);

test.run();
