// Programs and servers that speak the replication protocol through the pooler, one worker and four: a base backup
// that starts as a server, a standby that follows, write-ahead log and decoded changes that are exactly PostgreSQL's
// own, a subscription. When they leave, nothing of theirs is left in PostgreSQL.
// limit: 400 s

import { execFileSync } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { assert, suite, until } from "../../support/harness.ts";
import { needs, postgresFolders } from "../../support/needs.ts";
import { type Postgres, startPostgres } from "../../support/postgres.ts";
import { signal } from "../../support/processes.ts";
import { tempDir } from "../../support/temp.ts";
import { run, type RunOptions, type Side, startSides } from "./support.ts";

needs("postgresql");

// Who follows sees only what is written, which is at commit unless that is put off.
const settings = { wal_level: "logical", synchronous_commit: "on" };
const sides = await startSides({ postgres: { settings } });
const tests = suite("replication tools");
const dir = tempDir("replication");
const { postgres } = sides;

async function program(side: Side, command: readonly string[], options: RunOptions = {}) {
  const [name = "", ...args] = command;
  const target = ["-h", side.host, "-p", String(side.port), "-U", "postgres"];
  const ran = await run([name, ...target, ...args], options);
  assert.is(ran.code, 0, `${command.join(" ")}: ${ran.stderr}`);
  return ran.stdout;
}

/** Starts a server of its own on a copy of a data folder. */
async function startOn(backup: string): Promise<Postgres> {
  const server = await startPostgres();
  await server.stop("immediate");
  const { dataDir } = server;
  const own = ["postgresql.conf", "pg_hba.conf"].map((name) => join(dataDir, name));
  const contents = own.map((path) => readFileSync(path));
  const { uid, gid } = statSync(dataDir);
  execFileSync("rm", ["-r", dataDir]);
  execFileSync("cp", ["-a", backup, dataDir]);
  for (const [at, path] of own.entries()) writeFileSync(path, contents[at]!);
  execFileSync("chown", ["-R", `${uid}:${gid}`, dataDir]);
  execFileSync("chmod", ["-R", "go-rwx", dataDir]);
  await server.start();
  return server;
}

const rowsOf = (server: Postgres, tag: string) =>
  server.query("SELECT n FROM mine WHERE tag = $1 ORDER BY n", [tag]);
const insert = (tag: string, n: number) =>
  postgres.query("INSERT INTO mine VALUES ($1, $2)", [tag, n]);
const currentLsn = async () =>
  String((await postgres.query("SELECT pg_current_wal_lsn() AS lsn"))[0]!["lsn"]);

const slotsOf = (name: string) =>
  postgres.query("SELECT active FROM pg_replication_slots WHERE slot_name LIKE $1 || '%'", [name]);

async function noSenders(): Promise<void> {
  await until("replication connections to end", async () => {
    const left = await postgres.query(
      `SELECT pid FROM pg_stat_activity WHERE backend_type = 'walsender'`,
    );
    return left.length === 0;
  });
}

for (const side of sides.all) {
  const path = (name: string) => join(dir, `${name}${side.workers}`);
  const tag = `backup ${side.workers}`;

  tests(
    `a base backup starts as a standby that follows through the pooler, ${side.name}`,
    async () => {
      await insert(tag, 1);
      const backup = path("streamed");
      const conninfo = ["-c", "fast", "-X", "stream", "-R", "-N", "-D", backup];
      await program(side, ["pg_basebackup", ...conninfo]);
      await insert(tag, 2);
      const bin = [...postgresFolders().values()].find((folder) => folder.startsWith("/usr/lib/"))!;
      const verified = await run([join(bin, "pg_verifybackup"), "-q", backup]);
      assert.equal([verified.code, verified.stderr], [0, ""]);
      const standby = await startOn(backup);
      try {
        await until("the standby to follow", async () => (await rowsOf(standby, tag)).length === 2);
        await insert(tag, 3);
        await until("the standby to follow", async () => (await rowsOf(standby, tag)).length === 3);
        const senders = () =>
          postgres.query(
            "SELECT state FROM pg_stat_replication WHERE application_name = 'walreceiver'",
          );
        await until("the standby to have caught up", async () => {
          return (await senders()).map(({ state }) => state).join() === "streaming";
        });
        // The connection it has now is broken off by a restart of neither side.
        await standby.query("SELECT pg_promote()");
        await standby.query("INSERT INTO mine VALUES ('promoted', 1)");
        assert.equal(await rowsOf(standby, tag), [{ n: 1 }, { n: 2 }, { n: 3 }]);
      } finally {
        await standby.stop("immediate");
      }
      await noSenders();
    },
  );

  tests(`a base backup as a tar file starts as a server, ${side.name}`, async () => {
    const backup = path("packed");
    await program(side, [
      ...["pg_basebackup", "-c", "fast", "-X", "fetch", "-F", "t", "-N", "-D", backup],
    ]);
    const unpacked = path("unpacked");
    mkdirSync(unpacked);
    execFileSync("tar", ["-xf", join(backup, "base.tar"), "-C", unpacked]);
    const server = await startOn(unpacked);
    try {
      assert.equal(await rowsOf(server, tag), [{ n: 1 }, { n: 2 }, { n: 3 }]);
      const count = "SELECT count(*)::int AS count, sum(n)::int AS sum FROM numbers";
      assert.equal(await server.query(count), await postgres.query(count));
    } finally {
      await server.stop("immediate");
    }
    await noSenders();
  });

  tests(`write-ahead log is received as PostgreSQL wrote it, ${side.name}`, async () => {
    const slot = `receiver_${side.workers}`;
    const files = path("wal");
    mkdirSync(files);
    let inserted = 0;
    const receive = async () => {
      const end = await currentLsn();
      // It looks whether it has enough when something more comes.
      await insert(slot, ++inserted);
      await program(side, ["pg_receivewal", "-S", slot, "-n", "-E", end, "--no-sync", "-D", files]);
    };
    await program(side, ["pg_receivewal", "--create-slot", "-S", slot]);
    await receive();
    await postgres.query(
      `INSERT INTO copied SELECT '${slot}', n, repeat('x', 1000) FROM generate_series(1, 2500) n;
      SELECT pg_switch_wal()`,
    );
    // It goes on where it was.
    await receive();
    const complete = readdirSync(files).filter((name) => /^[0-9A-F]{24}$/.test(name));
    assert.ok(complete.length >= 2, String(complete.length));
    for (const name of complete) {
      const [received, written] = [join(files, name), join(postgres.dataDir, "pg_wal", name)];
      assert.ok(readFileSync(received).equals(readFileSync(written)), name);
    }
    await program(side, ["pg_receivewal", "--drop-slot", "-S", slot]);
    assert.equal(await slotsOf(slot), []);
    await noSenders();
  });

  tests(`changes are decoded as PostgreSQL decodes them, ${side.name}`, async () => {
    const slot = `decoder_${side.workers}`;
    const logical = ["pg_recvlogical", "-d", "postgres", "-S", slot];
    await program(side, [...logical, "--create-slot", "-P", "test_decoding"]);
    await postgres.query(
      `SELECT pg_create_logical_replication_slot('${slot}_twin', 'test_decoding')`,
    );
    for (const n of [1, 2, 3]) await insert(slot, n);
    await postgres.query(
      `INSERT INTO copied SELECT '${slot}', n, repeat('ü', n) FROM generate_series(1, 700) n;
      UPDATE mine SET n = n + 10 WHERE tag = '${slot}'; DELETE FROM mine WHERE tag = '${slot}'`,
    );
    const end = await currentLsn();
    const options = ["-o", "include-xids=0", "-o", "skip-empty-xacts=1"];
    const decoded = await program(side, [
      ...[...logical, "--start", "-n", "-E", end, ...options, "-f", "-"],
    ]);
    const twin = await postgres.query(
      `SELECT data FROM pg_logical_slot_get_changes('${slot}_twin', NULL, NULL,
        'include-xids', '0', 'skip-empty-xacts', '1')`,
    );
    assert.ok(twin.length > 700);
    assert.ok(decoded === twin.map((row) => `${row["data"]}\n`).join(""));
    await program(side, [...logical, "--drop-slot"]);
    await postgres.query(`SELECT pg_drop_replication_slot('${slot}_twin')`);
    assert.equal(await slotsOf(slot), []);
    await noSenders();
  });

  tests(`a receiver that is killed leaves its slot to the next, ${side.name}`, async () => {
    const slot = `killed_${side.workers}`;
    const logical = ["pg_recvlogical", "-d", "postgres", "-S", slot];
    const active = async () => (await slotsOf(slot))[0]?.["active"] === true;
    await program(side, [...logical, "--create-slot", "-P", "test_decoding"]);
    await insert(slot, 1);
    const target = ["-h", side.host, "-p", String(side.port), "-U", "postgres"];
    await run([...logical, ...target, "--start", "-n", "-f", "-"], {
      running: async (pid) => {
        await until("the slot to be in use", active);
        signal(pid, "SIGKILL");
      },
    });
    await until("the slot to be free", async () => !(await active()));
    await insert(slot, 2);
    const decoded = await program(side, [
      ...[...logical, "--start", "-n", "-E", await currentLsn(), "-f", "-"],
    ]);
    for (const n of [1, 2]) assert.match(decoded, `tag[text]:'${slot}' n[integer]:${n}`);
    await program(side, [...logical, "--drop-slot"]);
    await noSenders();
  });

  tests(`a subscription gets what is published, ${side.name}`, async () => {
    const published = `published_${side.workers}`;
    const subscriber = await startPostgres({ settings: { wal_level: "logical" } });
    const subscription = `subscription_${side.workers}`;
    const table = `CREATE TABLE ${published} (n int PRIMARY KEY, body text)`;
    const sum = `SELECT count(*)::int AS count, sum(n)::int AS sum,
      md5(string_agg(body, ',' ORDER BY n)) AS body FROM ${published}`;
    try {
      await postgres.query(
        `${table}; CREATE PUBLICATION ${published} FOR TABLE ${published};
        INSERT INTO ${published} SELECT n, repeat('é', n) FROM generate_series(1, 500) n`,
      );
      await subscriber.query(table);
      const conninfo = `host=${side.host} port=${side.port} user=postgres dbname=postgres`;
      await subscriber.query(
        `CREATE SUBSCRIPTION ${subscription} CONNECTION '${conninfo}' PUBLICATION ${published}`,
      );
      await postgres.query(
        `INSERT INTO ${published} SELECT n, 'later' FROM generate_series(501, 600) n;
        UPDATE ${published} SET body = 'changed' WHERE n % 7 = 0;
        DELETE FROM ${published} WHERE n % 11 = 0`,
      );
      const wanted = JSON.stringify(await postgres.query(sum));
      await until("the subscriber to have it all", async () => {
        return JSON.stringify(await subscriber.query(sum)) === wanted;
      });
      await subscriber.query(`DROP SUBSCRIPTION ${subscription}`);
      assert.equal(await slotsOf(subscription), []);
    } finally {
      await subscriber.stop("immediate");
    }
    await noSenders();
  });

  tests(`commands of the replication protocol, ${side.name}`, async () => {
    const target = `host=${side.host} port=${side.port} user=postgres dbname=postgres`;
    const ask = async (kind: string, ...sql: string[]) => {
      const commands = sql.flatMap((text) => ["-c", text]);
      const ran = await run([
        "psql",
        "-X",
        "-A",
        "-t",
        `${target} replication=${kind}`,
        ...commands,
      ]);
      assert.equal([ran.code, ran.stderr], [0, ""]);
      return ran.stdout.trim().split("\n");
    };
    const [system] = await postgres.query(
      "SELECT system_identifier::text AS id FROM pg_control_system()",
    );
    const [physical] = await ask("true", "IDENTIFY_SYSTEM");
    assert.match(physical!, new RegExp(`^${system!["id"]}\\|1\\|[0-9A-F]+/[0-9A-F]+\\|$`));
    const [logical, value, setting] = await ask(
      "database",
      "IDENTIFY_SYSTEM",
      "SELECT 40 + 2",
      "SHOW wal_level",
    );
    assert.match(logical!, /\|postgres$/);
    assert.equal([value, setting], ["42", "logical"]);
    await noSenders();
  });
}

sides.check(tests);
tests.run();
