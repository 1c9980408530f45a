// auth_type = hba with a real worker: which rule a client comes under by its socket, database and user, what each
// method asks of it, who it is by its system user, and what a refused client is told.
// limit: 240 s

import { execFile, execFileSync } from "node:child_process";
import { chmodSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { runtimeCommand } from "../../../shared/sys/mod.ts";
import { Backend } from "../../../shared/wire/mod.ts";
import { assert, suite } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { CertificateAuthority } from "../../support/certificates.ts";
import { type Pgweir, startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { RawClient, ServerError } from "../../support/raw_client.ts";
import { tempDir } from "../../support/temp.ts";

needs("postgresql", "openssl");

const me = execFileSync("id", ["-un"], { encoding: "utf8" }).trim();
const postgres = await startPostgres();
await postgres.query(`CREATE ROLE ann LOGIN; CREATE ROLE bob LOGIN; CREATE ROLE "all" LOGIN;
  CREATE ROLE looked_up LOGIN PASSWORD 'right'`);
if (me !== "postgres") await postgres.query(`CREATE ROLE "${me}" LOGIN`);
const server = `host=127.0.0.1 port=${postgres.port} dbname=postgres`;

const files = tempDir("hba");
// The look at the files is by another system user too.
chmodSync(files, 0o755);
const hbaFile = join(files, "hba.conf");
const identFile = join(files, "ident.conf");
writeFileSync(join(files, "rejected"), "bob # and nobody else\n");
writeFileSync(
  hbaFile,
  `# the first rule that matches decides
host  all          @rejected 127.0.0.0/8               reject
local sameuser     all                                 peer
local mapped       all                                 peer map=own
local open         all                                 trust
hostssl all        all       all                       trust
host  open         all       127.0.0.1 255.255.255.255 trust
host  clear        all       127.0.0.1/32              password
host  md5          all       127.0.0.1/32              md5
host  scram        all       all                       scram-sha-256
host  cert         all       all                       cert
host  not_here     all       10.0.0.0/8                trust
host  replication  ann       all                       trust
host  pgbouncer    admin     all                       scram-sha-256
`,
);
writeFileSync(
  join(files, "tls.conf"),
  `hostnossl plain  all all trust
hostssl   secure all all scram-sha-256
hostssl   shown  all all cert
hostssl   mapped all all cert map=people
`,
);
const authority = new CertificateAuthority();
const own = authority.issue("127.0.0.1", ["127.0.0.1"]);
const tls = {
  client_tls_cert_file: own.certFile,
  client_tls_key_file: own.keyFile,
  client_tls_ca_file: authority.caFile,
};
writeFileSync(identFile, `people "Ann A." ann\n` + `own ${me} ann\nown nobody "all"\n`);
const entries = ["open", "clear", "md5", "scram", "cert", "not_here", "mapped", "ann", "bob", me];
const userlist: Record<string, string> = {
  ann: "right",
  bob: "right",
  all: "right",
  admin: "right",
  [me]: "right",
  asker: "",
};
await postgres.query("CREATE ROLE asker SUPERUSER LOGIN");
const settings = {
  auth_type: "hba",
  auth_hba_file: hbaFile,
  auth_ident_file: identFile,
  auth_user: "asker",
};
const pooler = await startPgweir({
  ini: {
    databases: Object.fromEntries([...entries, "stranger"].map((name) => [name, server])),
    pgbouncer: settings,
  },
  userlist,
});
chmodSync(pooler.dir, 0o755);

const tests = suite("auth_type hba");

tests.after(async () => {
  await pooler.stop();
  await postgres.stop("immediate");
});

interface Seen {
  /** Authentication requests but the last, and the end: "in", or code and text. */
  readonly asked: readonly number[];
  readonly end: string;
}

async function login(
  user: string,
  database: string,
  options: { unix?: boolean; password?: string; replication?: string } = {},
): Promise<Seen> {
  const asked: number[] = [];
  const { password = "right", replication } = options;
  const target = options.unix ? { path: pooler.socketPath } : pooler;
  const probe = await RawClient.connect(target);
  const parameters = { user, database, ...(replication === undefined ? {} : { replication }) };
  probe.startup(parameters);
  const first = await probe.message();
  if (first?.type === Backend.authentication && first.body[3] !== 0) asked.push(first.body[3]!);
  probe.close();
  try {
    const more = replication === undefined ? {} : { parameters: { replication } };
    const client = await RawClient.login(target, { user, database, password, ...more });
    await client.end();
    return { asked, end: "in" };
  } catch (error) {
    if (!(error instanceof ServerError)) throw error;
    return { asked, end: `${error.code} ${error.fields.message}` };
  }
}

const none = "28000 no authentication method is found";
const peer = "28000 unix socket login rejected";
const wrong = "28P01 password authentication failed";

const rows: readonly (readonly [
  user: string,
  database: string,
  options: { unix?: boolean; password?: string; replication?: string },
  asked: readonly number[],
  end: string,
])[] = [
  ["ann", "open", { password: "wrong" }, [], "in"],
  ["stranger", "open", {}, [], '28000 "trust" authentication failed'],
  ["bob", "open", {}, [], "28000 login rejected"],
  ["bob", "nowhere", {}, [], "28000 login rejected"],
  ["bob", "open", { unix: true }, [], "in"],
  ["ann", "clear", {}, [3], "in"],
  ["ann", "clear", { password: "wrong" }, [3], wrong],
  ["ann", "md5", {}, [5], "in"],
  ["ann", "md5", { password: "wrong" }, [5], wrong],
  // Taken for one that auth_query would have found.
  ["stranger", "md5", {}, [10], "28P01 SASL authentication failed"],
  ["looked_up", "md5", {}, [10], "in"],
  ["looked_up", "scram", {}, [10], "in"],
  ["ann", "scram", {}, [10], "in"],
  ["stranger", "scram", {}, [10], "28P01 SASL authentication failed"],
  ["ann", "cert", {}, [], "28000 certificate authentication failed"],
  ["ann", "not_here", {}, [], none],
  ["ann", "nowhere", {}, [], none],
  ["ann", "md5", { unix: true }, [], none],
  ["ann", "scram", { replication: "true" }, [], "in"],
  ["looked_up", "scram", { replication: "true" }, [], none],
  ["ann", "not_here", { replication: "database" }, [], none],
  ["admin", "pgbouncer", {}, [10], "in"],
  ["ann", "pgbouncer", {}, [], none],
  [me, me, { unix: true }, [], "in"],
  ["ann", "ann", { unix: true }, [], peer],
  ["stranger", "stranger", { unix: true }, [], peer],
  ["ann", "mapped", { unix: true }, [], "in"],
  ["all", "mapped", { unix: true }, [], peer],
  [me, "mapped", { unix: true }, [], peer],
];

for (const [user, database, options, asked, end] of rows) {
  const name = user === me ? "the system user" : user;
  const what = `${name} of ${database === me ? "the system user" : database}`;
  tests(`${what} ${JSON.stringify(options)}`, async () => {
    const seen = await login(user, database, options);
    // Physical replication is refused by the server here, or not: it is let in by the rule.
    if (options.replication === "true" && end === "in") {
      assert.not.match(seen.end, /^28000 (no|lo)/);
    } else assert.is(seen.end, end);
    assert.equal(seen.asked, asked);
  });
}

/** Who is let in over TLS, with a certificate of this name or none. */
async function overTls(to: Pgweir, name: string | null, user: string, database: string) {
  const shown = name === null ? null : authority.issue(name);
  const client = await RawClient.connect(to);
  try {
    await client.startTls({
      rejectUnauthorized: false,
      ...(shown === null
        ? {}
        : { cert: readFileSync(shown.certFile), key: readFileSync(shown.keyFile) }),
    });
    await client.login({ user, database, password: "right" });
    const [row] = await client.query("SELECT session_user");
    await client.end();
    return row![0];
  } catch (error) {
    client.close();
    if (!(error instanceof ServerError)) throw error;
    return `${error.code} ${error.fields.message}`;
  }
}

tests("hostssl is for TLS, and cert for who has a certificate with the name", async () => {
  const rejected = "28000 certificate authentication failed";
  const secure = await startPgweir({
    ini: {
      databases: { plain: server, secure: server, shown: server, mapped: server },
      pgbouncer: {
        ...settings,
        ...tls,
        client_tls_sslmode: "prefer",
        auth_hba_file: join(files, "tls.conf"),
      },
    },
    userlist,
  });
  const rows: [name: string | null, user: string, database: string, expected: string][] = [
    [null, "ann", "plain", none],
    [null, "ann", "secure", "ann"],
    [null, "ann", "shown", rejected],
    ["ann", "ann", "shown", "ann"],
    ["ann", "all", "shown", rejected],
    ["stranger", "stranger", "shown", rejected],
    ["Ann A.", "ann", "shown", rejected],
    ["Ann A.", "ann", "mapped", "ann"],
    ["Ann A.", "all", "mapped", rejected],
    ["ann", "ann", "mapped", rejected],
  ];
  for (const [name, user, database, expected] of rows) {
    assert.is(await overTls(secure, name, user, database), expected, `${name} ${user} ${database}`);
  }
  // Without TLS.
  for (
    const [database, expected] of [["plain", "in"], ["secure", none], ["shown", none]] as const
  ) {
    let end = "in";
    await RawClient.login(secure, { user: "ann", database, password: "right" })
      .then((client) => client.end())
      .catch((error: ServerError) => end = `${error.code} ${error.fields.message}`);
    assert.is(end, expected, database);
  }
  await secure.stop();
});

tests("auth_type cert takes who has a certificate with the name", async () => {
  const secure = await startPgweir({
    ini: {
      databases: { open: server },
      pgbouncer: { ...tls, auth_type: "cert", client_tls_sslmode: "verify-full" },
    },
    userlist,
  });
  assert.is(await overTls(secure, "ann", "ann", "open"), "ann");
  for (const user of ["all", "stranger"]) {
    assert.is(
      await overTls(secure, "ann", user, "open"),
      "28000 certificate authentication failed",
    );
  }
  await secure.stop();
});

tests("another system user is who the map says", async () => {
  if (process.getuid?.() !== 0) return;
  const run = async (user: string, database: string) => {
    const address = `host=${pooler.dir} port=${pooler.port} user=${user} dbname=${database}`;
    try {
      const { stdout } = await promisify(execFile)(
        "setpriv",
        ["--reuid=nobody", "--clear-groups", "psql", "-XAtc", "SELECT session_user", address],
        { env: { ...process.env, HOME: "/" }, cwd: "/" },
      );
      return stdout.trim();
    } catch (error) {
      return String((error as { stderr: string }).stderr).match(/FATAL: {2}(.*)/)?.[1] ??
        String(error);
    }
  };
  assert.is(await run("all", "mapped"), "all");
  assert.is(await run("ann", "mapped"), "unix socket login rejected");
  assert.is(await run(me, me), "unix socket login rejected");
  assert.is(await run("pgbouncer", "pgbouncer"), "unix socket login rejected");
});

// As in PgBouncer, whatever the rules say.
tests(
  "the pooler's own system user is pgbouncer at the console, over the unix socket",
  async () => {
    const target = { path: pooler.socketPath };
    const client = await RawClient.login(target, { user: "pgbouncer", database: "pgbouncer" });
    assert.ok((await client.table("SHOW POOLS")).length > 0);
    await client.end();
    assert.is((await login("pgbouncer", "pgbouncer")).end, none);
    assert.is(
      (await login("pgbouncer", "open", { unix: true })).end,
      '28000 "trust" authentication failed',
    );
  },
);

tests("check prints what is wrong with the rules, by file and line", () => {
  const bad = join(files, "bad.conf");
  writeFileSync(
    bad,
    "local all all trust\nhost all all 10.0.0.0/33 md5\nlocal all all gss\nlocal all all peer map=x\n",
  );
  const ini = join(files, "bad.ini");
  writeFileSync(
    ini,
    `[databases]\nshop = host=127.0.0.1\n[pgbouncer]\nauth_type = hba\nauth_hba_file = ${bad}\nauth_user = a\n`,
  );
  const cli = resolve(import.meta.dirname!, "../../../services/cli.ts");
  const [command, ...parameters] = [...runtimeCommand(), cli, "check", ini];
  let said = "";
  try {
    execFileSync(command!, parameters, { encoding: "utf8", stdio: "pipe" });
  } catch (error) {
    const { stdout, stderr } = error as { stdout: string; stderr: string };
    said = stdout + stderr;
  }
  assert.match(
    said,
    `${bad}:2: "10.0.0.0/33" has bits behind the address that are not from 0 to 32`,
  );
  assert.match(said, `${bad}:3: method "gss" is not supported`);
  assert.match(said, `${bad}:4: map "x" is not in auth_ident_file`);
});

tests.run();
