// The auth_hba_file and the auth_ident_file: what is read of each line, what is wrong with it, and which clients a rule
// is for.

import {
  type HbaClient,
  type HbaRule,
  mapsToUser,
  matchHba,
  parseHba,
  parseIdent,
} from "../../shared/config/hba.ts";
import { assert, suite } from "../support/harness.ts";
import { filesOf, lines } from "./fixtures.ts";

const test = suite("hba");

const files = filesOf({
  "etc/names": "one two, three # and no more\n\n@more\n",
  "etc/more": '"all" "a b"',
  "/abs": "absolute",
  "etc/everybody": "all",
  "etc/loop": "@loop",
  "etc/bad": 'fine\nnot"closed',
});

const parse = (text: string) => parseHba(text, "etc/hba.conf", files);

/** A rule in short: its fields as they were meant. */
function short(rule: HbaRule): string {
  const names = ({ all, sameuser, replication, names }: HbaRule["databases"]) =>
    [all && "*", sameuser && "=", replication && "<-", ...names].filter((word) => word).join("|");
  const network = rule.network === null
    ? ""
    : `${rule.network.bytes.join(".")}/${rule.network.bits} `;
  const map = rule.map === null ? "" : ` ${rule.map}`;
  return `${rule.line} ${rule.type} ${names(rule.databases)} ${
    names(rule.users)
  } ${network}${rule.method}${map}`;
}

test("parseHba() reads each kind of rule", () => {
  const rows: [string, string][] = [
    ["local all all trust", "1 local * * trust"],
    ["\tlocal\tall\t all  reject # why\r", "1 local * * reject"],
    ["host all all all md5", "1 host * * md5"],
    [
      "hostssl shop ann,bob 10.0.0.0/8 scram-sha-256",
      "1 hostssl shop ann|bob 10.0.0.0/8 scram-sha-256",
    ],
    ["hostnossl a, b ,c x all password", "1 hostnossl a|b|c x password"],
    ["host all all 127.0.0.1 255.255.255.255 plain", "1 host * * 127.0.0.1/32 password"],
    ["host all all 10.1.0.0 255.255.128.0 trust", "1 host * * 10.1.0.0/17 trust"],
    ["host all all 0.0.0.0 0.0.0.0 trust", "1 host * * 0.0.0.0/0 trust"],
    ["host all all ::1/128 trust", "1 host * * 0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.1/128 trust"],
    ["host all all ::/0 trust", "1 host * * 0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0/0 trust"],
    [
      "host all all 2001:db8:: ffff:ffff:: trust",
      "1 host * * 32.1.13.184.0.0.0.0.0.0.0.0.0.0.0.0/32 trust",
    ],
    ["host all all ::ffff:10.0.0.0/104 trust", "1 host * * 10.0.0.0/8 trust"],
    ["host sameuser,replication all all trust", "1 host =|<- * trust"],
    [`host "all","sameuser" "all" all trust`, "1 host all|sameuser all trust"],
    [`host "a ""b"", c#d" "@x" all trust`, `1 host a "b", c#d @x trust`],
    [`host db"  "x y all trust`, "1 host db  x y trust"],
    ["host @names all all trust", "1 host one|two|three|all|a b * trust"],
    ["host x,@/abs @everybody all trust", "1 host x|absolute * trust"],
    ["local all all peer", "1 local * * peer"],
    [`local all all peer map="my map"`, "1 local * * peer my map"],
    ["hostssl all all all cert map=certs", "1 hostssl * * cert certs"],
  ];
  for (const [text, expected] of rows) {
    const { rules, problems } = parse(text);
    assert.equal(lines(problems), [], text);
    assert.equal(rules.map(short), [expected], text);
  }
  assert.equal(parse("\n# nothing\n   # here\n\r\n").rules, []);
});

test("parseHba() says what is wrong with a line, and in which", () => {
  const methods = "trust, reject, password, md5, scram-sha-256, peer, cert, ldap, pam";
  const rows: [string, string][] = [
    [
      "locale all all trust",
      `type "locale" is not one of local, host, hostssl, hostnossl, did you mean "local"`,
    ],
    [
      "hostgssenc all all all trust",
      `type "hostgssenc" is not one of local, host, hostssl, hostnossl: there is no GSSAPI`,
    ],
    ["local", "the database is missing"],
    ["local all", "the user is missing"],
    ["local all all", "the method is missing"],
    [
      "host all all trust",
      `"trust" is no address: wanted all, address/bits, or an address and a mask`,
    ],
    ["host all all", "the address is missing"],
    [
      "host all all samehost md5",
      `"samehost" is not supported: wanted all, address/bits, or an address and a mask`,
    ],
    [
      "host all all db.example md5",
      `"db.example" is no address: wanted all, address/bits, or an address and a mask`,
    ],
    [
      "host all all .example.com md5",
      `".example.com" is no address: wanted all, address/bits, or an address and a mask`,
    ],
    [
      "host all all 10.0.0.0 md5",
      `"md5" is no mask for "10.0.0.0": wanted address/bits, or a mask behind it`,
    ],
    ["host all all 10.0.0.0", "the mask of the address is missing"],
    [
      "host all all 10.0.0.0 255.0.255.0 md5",
      `"255.0.255.0" is no mask for "10.0.0.0": wanted address/bits, or a mask behind it`,
    ],
    [
      "host all all 10.0.0.0 ffff:: md5",
      `"ffff::" is no mask for "10.0.0.0": wanted address/bits, or a mask behind it`,
    ],
    [
      "host all all 10.0.0.0/33 md5",
      `"10.0.0.0/33" has bits behind the address that are not from 0 to 32: wanted all, address/bits, or an address and a mask`,
    ],
    [
      "host all all 10.0.0.0/-1 md5",
      `"10.0.0.0/-1" has bits behind the address that are not from 0 to 32: wanted all, address/bits, or an address and a mask`,
    ],
    [
      "host all all 10.0.0.0/8/8 md5",
      `"10.0.0.0/8/8" is no address: wanted all, address/bits, or an address and a mask`,
    ],
    [
      "host all all ::1/129 md5",
      `"::1/129" has bits behind the address that are not from 0 to 128: wanted all, address/bits, or an address and a mask`,
    ],
    [
      "host all all ::ffff:1.2.3.4/32 md5",
      `"::ffff:1.2.3.4/32" has bits behind the address that are not from 96 to 128: wanted all, address/bits, or an address and a mask`,
    ],
    [
      "host all all 010.0.0.1/32 md5",
      `"010.0.0.1/32" is no address: wanted all, address/bits, or an address and a mask`,
    ],
    [
      "host all all 1.2.3/24 md5",
      `"1.2.3/24" is no address: wanted all, address/bits, or an address and a mask`,
    ],
    [
      "host all all 1.2.3.4.5/24 md5",
      `"1.2.3.4.5/24" is no address: wanted all, address/bits, or an address and a mask`,
    ],
    [
      "local all all scram-sha256",
      `method "scram-sha256" is not one of ${methods}, did you mean "scram-sha-256"`,
    ],
    [
      "local all all ldap ldapserver=x",
      "one of ldapbasedn, ldapurl, ldapprefix and ldapsuffix is needed",
    ],
    ["local all all pam pamservice=../x", 'pamservice "../x" is no name of a service'],
    ["local all all pam pamservice=", 'pamservice "" is no name of a service'],
    [
      "local all all pam pam_use_hostname=1",
      "pam_use_hostname is not supported: PAM gets addresses",
    ],
    ["local all all pam map=x", 'method pam has no option "map"'],
    ["local all all gss", `method "gss" is not supported: this version has ${methods}`],
    ["local all all md5 map=x", `method md5 has no option "map"`],
    ["local all all peer mop=x", `method peer has no option "mop"`],
    ["local all all peer x", `method peer has no option "x"`],
    ["local all all peer map=", "option map names no map"],
    ["local all all a,b", "the method is a list, wanted one word"],
    [
      "local all +staff trust",
      `user "+staff": groups and patterns are not supported, wanted names`,
    ],
    [
      "local samerole all trust",
      `database "samerole": groups and patterns are not supported, wanted names`,
    ],
    ["local all /^a trust", `user "/^a": groups and patterns are not supported, wanted names`],
    [`local "" all trust`, "the database is empty"],
    [`local "a all trust`, "a quote is not closed"],
    [`local a"b all trust`, "a quote is not closed"],
    ["local a,,b all trust", 'a word is missing before ","'],
    [",local a all trust", 'a word is missing before ","'],
    ["local a all trust,", 'a word is missing after ","'],
    ["local @missing all trust", `read databases from "etc/missing": no such file`],
    ["local all @loop trust", `files include each other 10 deep`],
    ["local all @bad trust", `in "etc/bad", line 2: a quote is not closed`],
    ["local a\0b all trust", "line is not valid UTF-8, or holds a NUL character"],
  ];
  for (const [text, expected] of rows) {
    const { rules, problems } = parse(`\n${text}\nlocal all all reject`);
    const [problem] = lines(problems);
    assert.ok(problem?.endsWith(expected), `${text}: ${problem}`);
    assert.match(String(problem), /^2: /);
    assert.equal(rules.map(short), ["3 local * * reject"], text);
  }
  assert.equal(lines(parse("host all all all peer").warnings), [
    "1: method peer is for unix sockets (local): nobody can log in by this rule",
  ]);
});

test("parseHba() knows the service that PAM is asked for", () => {
  const text =
    "local a all pam\nlocal b all pam pamservice=sshd pam_use_hostname=0\nlocal c all peer\n";
  assert.equal(parse(text).rules.map(({ pamService }) => pamService), ["pgbouncer", "sshd", null]);
});

const anybody: HbaClient = {
  host: "10.1.2.3",
  tls: false,
  database: "shop",
  user: "ann",
  replication: false,
};

test("matchHba() gives the first rule that is for a client", () => {
  const rows: [string, Partial<HbaClient>, boolean][] = [
    ["host all all all md5", {}, true],
    ["host all all all md5", { tls: true }, true],
    ["host all all all md5", { host: null }, false],
    ["host all all all md5", { host: "unknown" }, true],
    ["host all all 0.0.0.0/0 md5", { host: "unknown" }, false],
    ["local all all md5", {}, false],
    ["local all all md5", { host: null }, true],
    ["hostssl all all all md5", {}, false],
    ["hostssl all all all md5", { tls: true }, true],
    ["hostnossl all all all md5", {}, true],
    ["hostnossl all all all md5", { tls: true }, false],
    ["host shop all all md5", {}, true],
    ["host a,shop all all md5", {}, true],
    ["host Shop all all md5", {}, false],
    ["host sameuser all all md5", {}, false],
    ["host sameuser all all md5", { database: "ann" }, true],
    [`host "sameuser" all all md5`, { database: "ann" }, false],
    [`host "all" all all md5`, {}, false],
    [`host "all" all all md5`, { database: "all" }, true],
    ["host all bob,ann all md5", {}, true],
    ["host all bob all md5", {}, false],
    [`host all "all" all md5`, {}, false],
    // Physical replication is no database; logical is.
    ["host all all all md5", { replication: true }, false],
    ["host shop,sameuser all all md5", { replication: true, database: "shop" }, false],
    ["host replication all all md5", { replication: true }, true],
    ["host replication all all md5", { database: "replication" }, false],
    [`host "replication" all all md5`, { database: "replication" }, true],
    ["host all all 10.0.0.0/8 md5", {}, true],
    ["host all all 10.1.2.3/32 md5", {}, true],
    ["host all all 10.1.2.2/31 md5", {}, true],
    ["host all all 10.1.2.4/31 md5", {}, false],
    ["host all all 10.1.3.0/23 md5", {}, true],
    ["host all all 10.1.4.0/22 md5", {}, false],
    ["host all all 10.9.9.9 255.0.0.0 md5", {}, true],
    ["host all all 0.0.0.0/0 md5", {}, true],
    ["host all all ::/0 md5", {}, false],
    ["host all all 0.0.0.0/0 md5", { host: "::1" }, false],
    ["host all all ::/0 md5", { host: "::1" }, true],
    ["host all all 2001:db8::/33 md5", { host: "2001:db8:7fff::1" }, true],
    ["host all all 2001:db8::/33 md5", { host: "2001:db8:8000::1" }, false],
    ["host all all fe80::/10 md5", { host: "fe80::1%eth0" }, true],
    // IPv4 is IPv4, however it is written.
    ["host all all 10.0.0.0/8 md5", { host: "::ffff:10.1.2.3" }, true],
    ["host all all ::ffff:10.0.0.0/104 md5", {}, true],
    ["host all all ::ffff:11.0.0.0/104 md5", {}, false],
  ];
  for (const [rule, client, expected] of rows) {
    const { rules, problems } = parse(`${rule}\nhost x x 1.1.1.1/32 trust`);
    assert.equal(problems, []);
    const found = matchHba(rules, { ...anybody, ...client });
    assert.is(found?.line ?? null, expected ? 1 : null, `${rule} ${JSON.stringify(client)}`);
  }
  const { rules } = parse(
    "host shop bob all reject\nhost shop all all trust\nhost all all all md5",
  );
  assert.is(matchHba(rules, anybody)?.method, "trust");
  assert.is(matchHba(rules, { ...anybody, user: "bob" })?.method, "reject");
  assert.is(matchHba(rules, { ...anybody, database: "other" })?.method, "md5");
  assert.is(matchHba([], anybody), null);
});

test("parseIdent() reads maps, and mapsToUser() says who may be whom", () => {
  const { maps, problems } = parseIdent(
    `# comment
ops  root   postgres
ops  root   admin
ops  "a b"  all
ops  "/x"   "all"
own  ann    bob # no more`,
    "ident.conf",
  );
  assert.equal(problems, []);
  const rows: [string | null, string, string, boolean][] = [
    [null, "ann", "ann", true],
    [null, "ann", "bob", false],
    ["ops", "root", "postgres", true],
    ["ops", "root", "admin", true],
    ["ops", "root", "root", false],
    ["ops", "a b", "whoever", true],
    ["ops", "/x", "all", true],
    ["ops", "/x", "root", false],
    ["own", "ann", "bob", true],
    ["own", "ann", "ann", false],
    ["none", "ann", "ann", false],
  ];
  for (const [map, systemUser, user, expected] of rows) {
    assert.is(mapsToUser(maps, map, systemUser, user), expected, `${map} ${systemUser} ${user}`);
  }
  assert.equal(
    lines(parseIdent('a\na b\na b c d\na /^x$ c\na b +c\na,b c d\na "b c', "f").problems),
    [
      "1: the system user is missing",
      "2: the database user is missing",
      "3: more than three words",
      '4: "/^x$": groups and patterns are not supported, wanted names',
      '5: "+c": groups and patterns are not supported, wanted names',
      "6: the map is a list, wanted one word",
      "7: a quote is not closed",
    ],
  );
});

test.run();
