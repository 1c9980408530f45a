// `pgweir check`, and the commands that start something: all problems of a file, with their places, and how the
// process ends.
// limit: 240 s

import { assert, suite, until } from "../../support/harness.ts";
import { Folder, Instance } from "./support.ts";

const test = suite("pgweir check");
const folder = new Folder();

folder.write(
  "bad.ini",
  `[databases]
shop = host=h prot=5433
[pgbouncer]
listen_prot = 6432
pool_mode = sesion
%include more.ini
`,
);
folder.write("more.ini", "auth_file = users.txt\n\n[nonsense]\n");
folder.write("users.txt", '"u" "hunter2"\nhunter2\n');

const report = `error: more.ini:3: invalid section "nonsense"
error: bad.ini:4: unknown parameter: pgbouncer/listen_prot, did you mean "listen_port"
error: bad.ini:5: pool_mode: "sesion" is not one of session, transaction, statement
error: bad.ini:2: database "shop": unrecognized connection parameter: prot, did you mean "port"
error: users.txt:2: line does not start with a quote: "user" "secret" is wanted
bad.ini: 5 errors, 0 warnings
`;

test("check prints every problem with its file and line, and exits with 1", async () => {
  const run = await folder.run("check", "bad.ini");
  assert.equal(run, { code: 1, signal: null, stdout: report, stderr: "" });
});

for (const command of ["up", "pooler", "budget"]) {
  test(`${command} prints the same to standard error, and exits with 1`, async () => {
    const run = await folder.run(command, "bad.ini");
    assert.is(run.code, 1);
    assert.is(run.stdout, "");
    assert.ok(run.stderr.startsWith(report), run.stderr);
  });
}

test("check says ok of a file without problems, and exits with 0 in spite of warnings", async () => {
  folder.write("good.ini", "[databases]\nshop = host=h\n[pgbouncer]\nauth_type = trust\n");
  folder.write("warn.ini", "[databases]\nshop = host=h\n[pgbouncer]\nauth_type = trust\n[peers]\n");
  const good = await folder.run("check", "good.ini");
  assert.is(good.code, 0);
  assert.match(good.stdout, /^good\.ini: ok, 1 database, .*0 errors, \d+ warnings?\n$/m);
  const warned = await folder.run("check", "warn.ini");
  assert.is(warned.code, 0);
  assert.match(warned.stdout, /^warning: warn\.ini:5: section \[peers\] is not needed: .*$/m);
});

test("check of a file that is not there says where it was sought", async () => {
  const run = await folder.run("check", "gone.ini");
  assert.is(run.code, 1);
  assert.match(run.stdout, /^error: gone\.ini: read "gone\.ini": no such file \(in ".*"\)$/m);
});

// The address of a standby, which it does not have yet: PgBouncer warns, and serves the others.
const listens = [
  ["127.0.0.1, 192.0.2.1", 0, /^warning: listen\.ini:4: .*no address "192\.0\.2\.1"/m],
  ["192.0.2.1", 1, /^error: listen\.ini:4: .*no such address: 192\.0\.2\.1$/m],
  ["nosuch.invalid", 1, /^error: listen\.ini:4: listen_addr: look up "nosuch\.invalid": /m],
] as const;
for (const [addresses, code, text] of listens) {
  test(`check of listen_addr = ${addresses}`, async () => {
    const settings = `listen_addr = ${addresses}\nauth_type = trust\nunix_socket_dir =\n`;
    folder.write("listen.ini", `[databases]\nshop = host=h\n[pgbouncer]\n${settings}`);
    const run = await folder.run("check", "listen.ini");
    assert.is(run.code, code, run.stdout);
    assert.match(run.stdout, text);
  });
}

for (const command of ["pooler", "up"]) {
  test(`${command} serves the addresses of listen_addr that this host has`, async () => {
    const instance = await Instance.make({ listen_addr: "192.0.2.1, 127.0.0.1" });
    const running = await instance.start(command);
    const why = "bind(): Cannot assign requested address";
    const line = `WARNING cannot listen on 192.0.2.1:${instance.port}: ${why}\n`;
    await until("the warning", () => running.output().includes(line));
    if (command === "up") {
      await until("the banner", () => running.stdout().includes("pgweir is ready: "));
      assert.match(running.stdout(), / on 127\.0\.0\.1:/);
    }
    await running.stop();
  });
}

test("pooler that can listen nowhere ends, and names the setting", async () => {
  const { folder } = await Instance.make({ listen_addr: "192.0.2.1" });
  const nowhere = await folder.run("pooler", "p.ini");
  assert.is(nowhere.code, 1);
  const text = "failed to listen on any address in listen_addr list: 192.0.2.1\n";
  assert.ok(nowhere.stderr.includes(text), nowhere.stderr);
});

test("pooler with a name in listen_addr that nobody knows names both", async () => {
  const { folder } = await Instance.make({ listen_addr: "nosuch.invalid" });
  const unknown = await folder.run("pooler", "p.ini");
  assert.is(unknown.code, 1);
  assert.match(unknown.stderr, /listen_addr: look up "nosuch\.invalid": /);
});

test("an unknown unix_socket_group does not matter without a unix socket", async () => {
  const instance = await Instance.make({ unix_socket_dir: "", unix_socket_group: "nosuchgroup" });
  const running = await instance.start();
  await running.stop();
});

test.run();
