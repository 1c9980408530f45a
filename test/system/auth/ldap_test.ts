// Logins by LDAP with a real worker and a real slapd: by a name made of the user's and by one that is looked for, in
// clear, by StartTLS and by LDAPS, with several servers; who is refused, what the log says, and that a server
// which does not answer stops nobody else.
// limit: 240 s

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { CertificateAuthority } from "../../support/certificates.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { type Pgweir, startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { RawClient } from "../../support/raw_client.ts";
import { READER, startSlapd, SUFFIX } from "../../support/slapd.ts";
import { freePort, tempDir } from "../../support/temp.ts";
import { loginEnd } from "./support.ts";

needs("postgresql", "openssl", "slapd");

const RIGHT = "the right one";
const WRONG = "not the right one";
const ODD = "o,d*(d)+\\x";
const person = (dn: string, uid: string, more = "") =>
  `dn: ${dn},${SUFFIX}
objectClass: inetOrgPerson
uid: ${uid}
cn: ${uid}
sn: ${uid}
userPassword: ${RIGHT}
${more}
`;

const authority = new CertificateAuthority();
const slapd = await startSlapd({
  certificate: authority.issue("localhost", ["localhost"]),
  // With the name in the DN, not the address.
  ldif: [
    person("uid=ann", "ann", "mail: ann@example.net"),
    person("uid=o\\,d*(d)\\+\\5Cx", ODD),
    person("cn=one", "twin"),
    person("cn=two", "twin"),
    person("uid=nobody_here", "nobody_here"),
  ].join("\n"),
});

// PostgreSQL asks for the same password: servers are logged in to with the one that was found right.
const postgres = await startPostgres({
  hba: ["host all ann,twin,nobody_here 127.0.0.1/32 scram-sha-256"],
});
await postgres.query(`CREATE ROLE ann LOGIN PASSWORD '${RIGHT}'; CREATE ROLE twin LOGIN;
  CREATE ROLE "${ODD}" LOGIN; CREATE ROLE local LOGIN`);
const server = `host=127.0.0.1 port=${postgres.port} dbname=postgres`;

const nowhere = await freePort();
const at = (host: string, port = slapd.port) => `ldapserver=${host} ldapport=${port}`;
const simple = `ldapprefix="uid=" ldapsuffix=",${SUFFIX}"`;
const reader = `ldapbinddn="${READER.dn}" ldapbindpasswd="${READER.password}"`;
const search = `ldapbasedn="${SUFFIX}" ${reader}`;
/** Lines of auth_hba_file, by the database that they are for. */
const lines: Readonly<Record<string, string>> = {
  simple: `${at("127.0.0.1")} ${simple}`,
  search: `${at("127.0.0.1")} ${search}`,
  mail: `${at("127.0.0.1")} ${search} ldapsearchfilter="(&(mail=$username@example.net)(sn=*))"`,
  url: `ldapurl="ldap://127.0.0.1:${slapd.port}/${SUFFIX}?uid?one" ${reader}`,
  base_only: `ldapurl="ldap://127.0.0.1:${slapd.port}/${SUFFIX}?uid" ${reader}`,
  anonymous: `${at("127.0.0.1")} ldapbasedn="${SUFFIX}"`,
  wrong_reader: `${at("127.0.0.1")} ldapbasedn="${SUFFIX}" ldapbinddn="${READER.dn}" ` +
    `ldapbindpasswd="${WRONG}"`,
  start_tls: `${at("localhost")} ldaptls=1 ${search}`,
  ldaps: `${at("localhost", slapd.tlsPort)} ldapscheme=ldaps ${simple}`,
  wrong_host: `${at("127.0.0.1")} ldaptls=1 ${simple}`,
  several: `ldapserver="127.0.0.1:${nowhere} 127.0.0.1:${slapd.port}" ${simple}`,
  down: `${at("127.0.0.1", nowhere)} ${simple}`,
};
const hbaFile = join(tempDir("hba"), "hba.conf");
writeFileSync(
  hbaFile,
  Object.entries(lines).map(([database, options]) => `host ${database} all all ldap ${options}\n`)
    .join("") + "host here all all trust\nhost pgbouncer admin all trust\n",
);
const databases = Object.fromEntries([...Object.keys(lines), "here"].map((name) => [name, server]));
const pooler = await startPgweir({
  ini: { databases, pgbouncer: { auth_type: "hba", auth_hba_file: hbaFile } },
  userlist: { local: "", admin: "" },
  environment: { LDAPTLS_CACERT: authority.caFile },
});
// By auth_ldap_options, nobody in the auth_file, and an authority that has not signed the certificate.
const ownOptions = `ldapurl="ldap://127.0.0.1:${slapd.port}/${SUFFIX}?uid?sub" ${reader}`;
const settings = { auth_type: "ldap", auth_ldap_options: ownOptions };
const whole = await startPgweir({
  ini: { databases: { shop: server, other: server }, pgbouncer: settings },
  userlist: {},
  environment: { LDAPTLS_CACERT: new CertificateAuthority("another").caFile },
});

const tests = suite("auth_type ldap");

tests.after(async () => {
  await pooler.stop();
  await whole.stop();
  await slapd.stop();
  await postgres.stop("immediate");
});

const refused = "28000 LDAP authentication failed";
const failed = `LDAP login failed for user`;

/** What the client gets, and what the log says. */
const rows: readonly (readonly [
  database: string,
  user: string,
  password: string,
  end: string,
  log?: string,
])[] = [
  ["simple", "ann", RIGHT, "in"],
  [
    "simple",
    "ann",
    WRONG,
    refused,
    `${failed} uid=ann,${SUFFIX} on server 127.0.0.1:${slapd.port}: Invalid credentials`,
  ],
  // slapd would take these for a bind of nobody.
  ["simple", "ann", "", refused, "LDAP login with an empty password"],
  ["search", "ann", "", refused, "LDAP login with an empty password"],
  ["simple", "missing", RIGHT, refused, `${failed} uid=missing,${SUFFIX}`],
  ["simple", ODD, RIGHT, "in"],
  [
    "simple",
    `ann,${SUFFIX}`,
    RIGHT,
    refused,
    `${failed} uid=ann\\,dc\\=example\\,dc\\=net,${SUFFIX}`,
  ],
  ["search", "ann", RIGHT, "in"],
  ["search", "ann", WRONG, refused, `${failed} uid=ann,${SUFFIX}`],
  ["search", ODD, RIGHT, "in"],
  ["search", "missing", RIGHT, refused, 'LDAP user "missing" does not exist'],
  ["search", "*", RIGHT, refused, 'LDAP user "*" does not exist'],
  ["search", "x)(|(uid=ann", RIGHT, refused, 'LDAP user "x)(|(uid=ann" does not exist'],
  ["search", "twin", RIGHT, refused, 'LDAP user "twin" is not unique'],
  ["mail", "ann", RIGHT, "in"],
  ["mail", "nobody_here", RIGHT, refused, 'LDAP user "nobody_here" does not exist'],
  ["url", "ann", RIGHT, "in"],
  ["base_only", "ann", RIGHT, refused, 'LDAP user "ann" does not exist'],
  ["anonymous", "ann", RIGHT, refused, 'could not search LDAP for filter "(uid=ann)"'],
  [
    "wrong_reader",
    "ann",
    RIGHT,
    refused,
    `could not perform initial LDAP bind for ldapbinddn "${READER.dn}"`,
  ],
  ["start_tls", "ann", RIGHT, "in"],
  [
    "start_tls",
    "ann",
    WRONG,
    refused,
    `${failed} uid=ann,${SUFFIX} on server localhost:${slapd.port}: Invalid credentials`,
  ],
  ["ldaps", "ann", RIGHT, "in"],
  [
    "ldaps",
    "ann",
    WRONG,
    refused,
    `${failed} uid=ann,${SUFFIX} on server localhost:${slapd.tlsPort}: Invalid credentials`,
  ],
  [
    "wrong_host",
    "ann",
    RIGHT,
    refused,
    `could not connect to LDAP server 127.0.0.1:${slapd.port}: TLS: `,
  ],
  ["several", "ann", RIGHT, "in"],
  ["several", "ann", WRONG, refused],
  ["down", "ann", RIGHT, refused, `could not connect to LDAP server 127.0.0.1:${nowhere}: `],
  // The directory says yes, PostgreSQL no: it has no password of it.
  [
    "simple",
    "nobody_here",
    RIGHT,
    '28P01 password authentication failed for user "nobody_here"',
  ],
];

/** How a login ends; a worker waits only some seconds for slapd, and who was hit by that comes again. */
async function endOf(of: Pgweir, database: string, user: string, password: string) {
  for (let attempt = 1;; attempt++) {
    const before = of.log().length;
    const end = await loginEnd(of, database, user, password);
    if (attempt === 5 || !/ WARNING .*: timeout$/m.test(of.log().slice(before))) return end;
  }
}

for (const [database, user, password, end, log] of rows) {
  const how = password === RIGHT ? "right" : password === WRONG ? "wrong" : "empty";
  tests(`${database}: "${user}" with the ${how} password`, async () => {
    const before = pooler.log().length;
    assert.is(await endOf(pooler, database, user, password), end);
    if (log === undefined) return;
    const said = () => pooler.log().slice(before);
    await until(`the log to have ${log}`, () => said().includes(log));
    // With whose login it was.
    const line = said().split("\n").find((each) => each.includes(log))!;
    assert.match(line, /WARNING.* C-0x[0-9a-f]+: /);
  });
}

tests("auth_ldap_options: nobody need be in the auth_file, and each reload counts", async () => {
  assert.is(await endOf(whole, "shop", "ann", RIGHT), "in");
  assert.is(await endOf(whole, "shop", "ann", WRONG), refused);
  assert.is(await endOf(whole, "nowhere", "ann", WRONG), refused);
  assert.is(await endOf(whole, "nowhere", "ann", RIGHT), "3D000 no such database: nowhere");
  const reload = (options: string) => {
    whole.rewrite({
      databases: { shop: server, other: server },
      pgbouncer: { ...settings, auth_ldap_options: options },
    });
    whole.signal("SIGHUP");
  };
  const soon = (end: string) =>
    until(
      `a login to come to ${end}`,
      async () => await loginEnd(whole, "shop", "ann", RIGHT) === end,
    );
  reload(`${at("localhost", slapd.tlsPort)} ldapscheme=ldaps ${simple}`);
  await soon(refused);
  await until("the log to say why", () => /localhost:\d+: TLS: /.test(whole.log()));
  reload(ownOptions);
  await soon("in");
});

// A warm connection of the pool is no proof.
tests("every login is checked anew", async () => {
  const client = await RawClient.login(pooler, {
    user: "ann",
    database: "search",
    password: RIGHT,
  });
  await client.query("SELECT 1");
  assert.is(await loginEnd(pooler, "search", "ann", WRONG), refused);
  await client.end();
});

tests("a server that does not answer stops its own logins only", async () => {
  for (let attempt = 1;; attempt++) {
    await slapd.pause();
    const began = performance.now();
    let ended = 0;
    const waiting = Array.from(
      { length: 40 },
      () => loginEnd(pooler, "simple", "ann", RIGHT).finally(() => ended++),
    );
    let hadEnded = 0;
    try {
      for (let i = 0; i < 5; i++) assert.is(await loginEnd(pooler, "here", "local", ""), "in");
      hadEnded = ended;
    } finally {
      slapd.resume();
    }
    const ends = await Promise.all(waiting);
    // A worker gives a server up after 5 s: a machine that took as long shows nothing.
    if (performance.now() - began > 4_500 && attempt < 5) continue;
    assert.is(hadEnded, 0);
    return assert.equal([...new Set(ends)], ["in"]);
  }
});

tests("no secret is in the log or the console", async () => {
  const shown = JSON.stringify(await pooler.console("SHOW CONFIG"));
  for (const secret of [RIGHT, READER.password]) {
    assert.not.match(pooler.log() + whole.log() + shown, secret);
  }
});

tests.run();
