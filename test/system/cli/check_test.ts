// `pgweir check`, and the commands that start something: all problems of a file, with their places, and how the
// process ends.
// limit: 240 s

import { assert, suite } from "../../support/harness.ts";
import { Folder } from "./support.ts";

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

test.run();
