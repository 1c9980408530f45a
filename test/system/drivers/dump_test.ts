// pg_dump, pg_restore and the other programs for whole databases, in both pool modes, one worker and four. The oracle
// is a direct connection: a dump through the pooler is its dump byte for byte, and so is the dump of what was restored.
// limit: 240 s

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

/**
 * The programs set these for their session before their transactions begin: pg_dump writes names in full then, and a
 * function may be made before what it uses. In transaction mode such a setting holds only when it comes with the login.
 */
const forSession = { environment: { PGOPTIONS: "-c search_path= -c check_function_bodies=off" } };

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
    const options = inSession ? {} : forSession;
    const place = `in ${mode} mode, ${side.name}`;
    const path = (name: string) => join(dir, `${name}.${mode}.${side.workers}`);

    tests(`pg_dump writes what it writes past the pooler, ${place}`, async () => {
      const plain = await program(side, ["pg_dump", ...asText, source], options);
      assert.ok(plain === original);
      await program(side, ["pg_dump", "-Fc", "-f", path("archive"), source], options);
      assert.ok(await scriptOf(path("archive")) === await scriptOf(archive));
      // In parallel it has a transaction open on every connection, which are more than the servers here.
      const jobs = inSession ? ["-j", "2"] : [];
      await program(side, ["pg_dump", "-Fd", ...jobs, "-f", path("d"), source], options);
      assert.ok(await scriptOf(path("d")) === await scriptOf(folder));
      const inserts = ["pg_dump", ...asText, "--inserts", "--rows-per-insert=50", "-t", "things"];
      assert.ok(
        await program(side, [...inserts, source], options) ===
          await program(sides.postgres, [...inserts, "source"]),
      );
    });

    for (const what of RESTORES) {
      tests(`a database is restored from ${what}, ${place}`, async () => {
        await program(side, ["createdb", "copy"]);
        try {
          if (what === "an archive") {
            await program(side, ["pg_restore", "-j", "2", "-d", copy, archive], options);
          } else if (what === "a folder") {
            await program(side, ["pg_restore", "-1", "-d", copy, folder], options);
          } else {
            const args = ["-X", "-q", "-o", "/dev/null", "-v", "ON_ERROR_STOP=1", "-d", copy];
            await program(side, ["psql", ...args], { ...options, input: original });
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

sides.check(tests);
tests.run();
