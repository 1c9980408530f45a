// Logins by PAM with a real worker and the system's libpam: who gets in, what a refused client and the log are told, and
// that a module which does not come to its end stops nobody else, nor the end of the worker.
// limit: 240 s

import { spawnSync } from "node:child_process";
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { passwordMessage } from "../../../shared/wire/mod.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { needsPam, PamServices } from "../../support/pam.ts";
import { startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { RawClient } from "../../support/raw_client.ts";
import { tempDir } from "../../support/temp.ts";
import { loginEnd } from "./support.ts";

needs("postgresql");
needsPam();

const RIGHT = "the right one";
const WRONG = "not the right one";
const services = new PamServices();
const check = `[ "$given" = "${RIGHT}" ]`;
services.addScript("pgbouncer", `echo "$PAM_USER $PAM_RHOST" >> "$folder/seen"\n${check}`);
services.addScript("another", check);
// Until it is let go, or its folder is gone.
services.addScript(
  "hangs",
  `echo $$ >> "$folder/hanging"
while [ ! -e "$folder/go" ] && [ -d "$folder" ]; do sleep 0.05; done; ${check}`,
);
services.add("closed", "auth required pam_permit.so\naccount required pam_deny.so");

const postgres = await startPostgres({ hba: ["host all ann 127.0.0.1/32 scram-sha-256"] });
await postgres.query(`CREATE ROLE ann LOGIN PASSWORD '${RIGHT}'; CREATE ROLE local LOGIN`);
const server = `host=127.0.0.1 port=${postgres.port} dbname=postgres`;
const hbaFile = join(tempDir("hba"), "hba.conf");
writeFileSync(
  hbaFile,
  `host  usual   all all pam
local usual   all     pam
host  another all all pam pamservice=another
host  hangs   all all pam pamservice=hangs
host  closed  all all pam pamservice=closed
host  missing all all pam pamservice=not_there
host  here    all all trust
`,
);
const names = ["usual", "another", "hangs", "closed", "missing", "here"];
const databases = Object.fromEntries(names.map((name) => [name, server]));
const own = { pam_config_dir: services.folder };
const pooler = await startPgweir({
  ini: { databases, pgbouncer: { ...own, auth_type: "hba", auth_hba_file: hbaFile } },
  userlist: { local: "" },
});
const whole = await startPgweir({
  ini: { databases: { usual: server }, pgbouncer: { ...own, auth_type: "pam" } },
  userlist: {},
});

const tests = suite("auth_type pam");

tests.after(async () => {
  await pooler.stop();
  await whole.stop();
  await postgres.stop("immediate");
});

const refused = "28000 PAM authentication failed";
const rows: readonly (readonly [
  database: string,
  password: string,
  end: string,
  log?: string,
])[] = [
  ["usual", RIGHT, "in"],
  ["usual", WRONG, refused, "pam_authenticate() failed: "],
  ["usual", "", refused, "PAM login with an empty password"],
  ["closed", "", refused, "PAM login with an empty password"],
  ["another", RIGHT, "in"],
  ["another", WRONG, refused],
  ["closed", RIGHT, refused, "pam_acct_mgmt() failed: Authentication failure"],
  ["missing", RIGHT, refused, " failed: "],
];
for (const [database, password, end, log] of rows) {
  tests(`${database}: with the password "${password}"`, async () => {
    const before = pooler.log().length;
    assert.is(await loginEnd(pooler, database, "ann", password), end);
    if (log === undefined) return;
    const lines = () => pooler.log().slice(before).split("\n");
    await until(`the log to have ${log}`, () => {
      return lines().some((line) => line.includes(log) && / WARNING C-0x[0-9a-f]+: /.test(line));
    });
  });
}

tests("auth_type = pam asks for every user, and is told where it comes from", async () => {
  assert.is(await loginEnd(whole, "usual", "ann", RIGHT), "in");
  assert.is(await loginEnd(whole, "usual", "ann", WRONG), refused);
  assert.is(await loginEnd(whole, "usual", "nobody", WRONG), refused);
  assert.is(await loginEnd({ path: pooler.socketPath }, "usual", "ann", RIGHT), "in");
  const seen = readFileSync(join(services.folder, "seen"), "utf8").trim().split("\n");
  assert.equal(seen.slice(-4), ["ann 127.0.0.1", "ann 127.0.0.1", "nobody 127.0.0.1", "ann unix"]);
});

tests("a module that hangs stops only the logins that wait for PAM", async () => {
  let ended = 0;
  const begin = (database: string) =>
    loginEnd(pooler, database, "ann", RIGHT).finally(() => ended++);
  const waiting = [begin("hangs")];
  await until("the module to hang", () => existsSync(join(services.folder, "hanging")));
  waiting.push(begin("another"));
  for (let i = 0; i < 5; i++) assert.is(await loginEnd(pooler, "here", "local", ""), "in");
  assert.is(ended, 0);
  writeFileSync(join(services.folder, "go"), "");
  assert.equal(await Promise.all(waiting), ["in", "in"]);
});

tests("no password is in the log", () => {
  for (const secret of [RIGHT, WRONG]) assert.not.match(pooler.log() + whole.log(), secret);
});

tests("a worker ends while a module hangs", async () => {
  const held = new PamServices();
  held.addScript(
    "pgbouncer",
    `echo here >> "$folder/hanging"; while [ -d "$folder" ]; do sleep 0.05; done`,
  );
  const other = await startPgweir({
    ini: {
      databases: { usual: server },
      pgbouncer: { auth_type: "pam", pam_config_dir: held.folder },
    },
  });
  const client = await RawClient.connect(other);
  client.startup({ user: "ann", database: "usual" });
  await client.message();
  client.send(passwordMessage(RIGHT));
  await until("the module to hang", () => existsSync(join(held.folder, "hanging")));
  client.close();
  assert.equal(await other.stop(), { code: 0, signal: null });
  // The module's script goes by that.
  rmSync(held.folder, { recursive: true });
});

const script = "for file in /lib/*/libpam.so.0 /usr/lib/*/libpam.so.0 /usr/lib/libpam.so.0; do " +
  'if [ -e "$file" ]; then mount --bind /dev/null "$file"; fi; done; exec "$0" "$@"';
const prefix = ["unshare", "--mount", "sh", "-c", script];
const mayHide =
  spawnSync(prefix[0]!, [...prefix.slice(1), "true"], { stdio: "ignore" }).status === 0;

if (mayHide) {
  tests("without libpam a worker that needs it says so and does not start", async () => {
    for (const workers of [undefined, 1]) {
      const supervised = workers === undefined ? {} : { workers };
      const ini = { databases: { usual: server }, pgbouncer: { auth_type: "pam" } };
      try {
        await startPgweir({ ini, prefix, ...supervised });
        assert.unreachable("it started");
      } catch (error) {
        assert.match((error as Error).message, /load PAM: .*; wanted Linux-PAM \(libpam\.so\.0\)/);
      }
    }
  });
}

tests.run();
