// pg_dump, pg_restore and the other programs for whole databases, in both pool modes, one worker and four. The oracle
// is a direct connection: a dump through the pooler is its dump byte for byte, and so is the dump of what was restored.
// limit: 400 s

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { assert, suite } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { tempDir } from "../../support/temp.ts";
import { run, type RunOptions, startSides } from "./support.ts";

needs("postgresql");

const MODES = ["session", "transaction"] as const;
const RESTORES = ["an archive", "a folder", "a script"] as const;

// A name through the pooler for each database and mode; what is not in the list is in transaction mode.
const sides = await startSides({
  databases: {
    source_in_session: "dbname=source pool_mode=session pool_size=4",
    copy_in_session: "dbname=copy pool_mode=session pool_size=4",
    for_owner: "dbname=postgres user=dumping_owner",
    for_reader: "dbname=postgres user=dumping_reader",
  },
});
const tests = suite("dumps");
const dir = tempDir("dumps");

interface Server {
  readonly host: string;
  readonly port: number;
}

async function program(server: Server, command: readonly string[], options: RunOptions = {}) {
  const [name = "", ...args] = command;
  const target = ["-h", server.host, "-p", String(server.port), "-U", "postgres"];
  const ran = await run([name, ...target, ...args], options);
  assert.equal([ran.code, ran.stderr], [0, ""], `${command.join(" ")}: ${ran.stderr}`);
  return ran.stdout;
}

// The key is a random one in every dump unless it is given, and older versions of the program have none.
const hasKey = (await run(["pg_dump", "--help"])).stdout.includes("--restrict-key");
const asText = hasKey ? ["--restrict-key=x"] : [];

/** An archive as the script it stands for. */
async function scriptOf(archive: string): Promise<string> {
  const ran = await run(["pg_restore", ...asText, "-f", "-", archive]);
  assert.equal([ran.code, ran.stderr], [0, ""]);
  return ran.stdout;
}

await sides.postgres.query("CREATE DATABASE source");
const schema = readFileSync(join(import.meta.dirname!, "dumped.sql"), "utf8");
await sides.postgres.query(schema, [], "source");
const dumpOf = (database: string) => program(sides.postgres, ["pg_dump", ...asText, database]);
const original = await dumpOf("source");
const archive = join(dir, "original");
const folder = join(dir, "original.d");
await program(sides.postgres, ["pg_dump", "-Fc", "-f", archive, "source"]);
await program(sides.postgres, ["pg_dump", "-Fd", "-f", folder, "source"]);

for (const side of sides.all) {
  for (const mode of MODES) {
    const inSession = mode === "session";
    const source = inSession ? "source_in_session" : "source";
    const copy = inSession ? "copy_in_session" : "copy";
    const place = `in ${mode} mode, ${side.name}`;
    const path = (name: string) => join(dir, `${name}.${mode}.${side.workers}`);

    tests(`pg_dump writes what it writes past the pooler, ${place}`, async () => {
      const plain = await program(side, ["pg_dump", ...asText, source]);
      assert.ok(plain === original);
      await program(side, ["pg_dump", "-Fc", "-f", path("archive"), source]);
      assert.ok(await scriptOf(path("archive")) === await scriptOf(archive));
      // In parallel it has a transaction open on every connection, which are more than the servers here.
      const jobs = inSession ? ["-j", "2"] : [];
      await program(side, ["pg_dump", "-Fd", ...jobs, "-f", path("d"), source]);
      assert.ok(await scriptOf(path("d")) === await scriptOf(folder));
      const inserts = ["pg_dump", ...asText, "--inserts", "--rows-per-insert=50", "-t", "things"];
      assert.ok(
        await program(side, [...inserts, source]) ===
          await program(sides.postgres, [...inserts, "source"]),
      );
    });

    for (const what of RESTORES) {
      tests(`a database is restored from ${what}, ${place}`, async () => {
        await program(side, ["createdb", "copy"]);
        try {
          if (what === "an archive") {
            await program(side, ["pg_restore", "-j", "2", "-d", copy, archive]);
          } else if (what === "a folder") {
            await program(side, ["pg_restore", "-1", "-d", copy, folder]);
          } else {
            const args = ["-X", "-q", "-o", "/dev/null", "-v", "ON_ERROR_STOP=1", "-d", copy];
            await program(side, ["psql", ...args], { input: original });
          }
          await program(side, ["vacuumdb", "-q", "-j", "2", "--analyze", copy]);
          await program(side, ["reindexdb", "-q", "-S", "public", "-S", "other", copy]);
          assert.ok(await dumpOf("copy") === original);
          // The pooler holds connections to it.
          await program(side, ["dropdb", "--force", "copy"]);
        } finally {
          await sides.postgres.query("DROP DATABASE IF EXISTS copy WITH (FORCE)");
        }
      });
    }
  }
}

// pg_dump sets row_security to off, which makes it an error that rows would be hidden from it. When that was lost with
// the transaction, the rows were missing from the dump and nothing was said.
await sides.postgres.query(`
  CREATE ROLE dumping_reader LOGIN; CREATE ROLE dumping_owner LOGIN;
  CREATE TABLE guarded AS SELECT i, i % 2 = 0 AS is_open FROM generate_series(1, 10) i;
  CREATE POLICY only_open ON guarded FOR SELECT USING (is_open);
  ALTER TABLE guarded ENABLE ROW LEVEL SECURITY; ALTER TABLE guarded OWNER TO dumping_owner;
  GRANT SELECT ON guarded TO dumping_reader`);

for (const side of sides.all) {
  tests(`pg_dump of a table with row policies is complete or fails, ${side.name}`, async () => {
    const rows = [
      ["postgres", "postgres", 0],
      ["dumping_owner", "for_owner", 0],
      ["dumping_reader", "for_reader", 1],
    ] as const;
    for (const [user, name, code] of rows) {
      for (const more of [[], ["--enable-row-security"]]) {
        const dump = async (server: Server, ...login: string[]) => {
          const target = ["-h", server.host, "-p", String(server.port), "-U", ...login];
          return await run(["pg_dump", ...asText, "-t", "guarded", ...more, ...target]);
        };
        const direct = await dump(sides.postgres, user, "postgres");
        assert.equal(await dump(side, "postgres", name), direct, `${user} ${more}`);
        assert.is(direct.code, more.length === 0 ? code : 0, direct.stderr);
      }
    }
  });
}

sides.check(tests);
tests.run();
