// Processes of a fleet that are killed while a RELOAD is under way, with files that are half written: no worker ever
// goes by a half of a configuration, consoles say who did not answer, and in the end all go by one.
// limit: 200 s
// load: waits

import { readFileSync, writeFileSync } from "node:fs";
import { Backend, cancelKeyWorker, parseErrorFields } from "../../../shared/wire/mod.ts";
import { assert, seededRandom, suite, until } from "../../support/harness.ts";
import { f } from "../../support/notation.ts";
import { type Pgweir, startPgweir } from "../../support/pgweir.ts";
import { freeze, isAlive, signal } from "../../support/processes.ts";
import { type Login, RawClient } from "../../support/raw_client.ts";
import { closeAll, open } from "../protocol/support.ts";

const seed = Date.now();
const random = seededRandom(seed);
const tests = suite(`killed during RELOAD (seed ${seed})`);

const admin: Login = { user: "admin", database: "pgbouncer" };
const patienceMs = 30_000;
let pgweir: Pgweir;
/** The text of its file while that is whole. */
let whole: string | null = null;

/** So large that it is handed over in pieces. Two settings far apart say which version it is. */
async function start(version: number): Promise<void> {
  const entries = Array.from({ length: 2000 }, (_, i) => [`db_${i}`, "host=127.0.0.1 port=1"]);
  pgweir = await startPgweir({
    workers: 2,
    ini: {
      databases: Object.fromEntries(entries),
      pgbouncer: { default_pool_size: version },
      users: { probe: `pool_size=${version}` },
    },
  });
}

/** Writes the file of another version, to its end or up to the middle of a value. */
function write(version: number, isHalf = false): void {
  whole ??= readFileSync(pgweir.iniFile, "utf8");
  const changed = whole.replace(/(pool_size *= *)\d+/g, `$1${version}`);
  writeFileSync(
    pgweir.iniFile,
    isHalf ? changed.slice(0, changed.indexOf("pool_mode = trans") + 17) : changed,
  );
}

const workerOf = (client: RawClient) => cancelKeyWorker(client.key!.processId, client.key!.secret);

/** A console on each of the workers. */
async function consoles(): Promise<RawClient[]> {
  const found = new Map<number, RawClient>();
  await until("a console on each worker", async () => {
    const console = await open(pgweir, admin).catch(() => null);
    if (console === null) return false;
    if (found.has(workerOf(console))) console.close();
    else found.set(workerOf(console), console);
    return found.size === 2;
  }, patienceMs);
  return [...found.values()];
}

async function pidOf(console: RawClient): Promise<number> {
  return Number((await console.table("SHOW WORKER"))[0]!["pid"]);
}

/** The version that a worker goes by; fails when it is of two minds. Null: the worker is gone. */
async function versionOf(console: RawClient): Promise<number | null> {
  const size = async () => {
    const rows = await console.table("SHOW CONFIG");
    return rows.find(({ key }) => key === "default_pool_size")!["value"];
  };
  try {
    for (;;) {
      const before = await size();
      const users = await console.table("SHOW USERS");
      if (await size() !== before) continue;
      assert.is(users.find(({ name }) => name === "probe")!["pool_size"], before);
      return Number(before);
    }
  } catch (error) {
    if (console.closeReason !== null) return null;
    throw error;
  }
}

/** Waits until a worker goes by a version: one that is busy does so a little later. */
async function goesBy(console: RawClient, version: number, when = ""): Promise<void> {
  await until(
    `a worker to go by ${version} ${when}`,
    async () => await versionOf(console) === version,
    patienceMs,
  );
}

/** What a console has answered RELOAD with: its notices and errors. */
async function answer(console: RawClient): Promise<string[]> {
  const messages = await console.messagesUntil("Z", 1, patienceMs);
  return messages.flatMap(({ type, body }) => {
    if (type !== Backend.noticeResponse && type !== Backend.errorResponse) return [];
    const { severity, message } = parseErrorFields(body);
    return [`${severity} ${message}`];
  });
}

const readyCount = () => pgweir.log().match(/worker \d+ is ready/g)?.length ?? 0;
const shortly = () => new Promise((resolve) => setTimeout(resolve, random() * 30));
const failed = "ERROR RELOAD failed, see logs for additional details";

tests.before.each(async () => {
  whole = null;
  await start(1);
});

tests.after.each(async () => {
  closeAll();
  await pgweir.stop();
});

tests(
  "workers killed in the middle of a RELOAD, of files that are whole or half written",
  async () => {
    let current = 1;
    let pair = await consoles();
    const kills: number[] = [];
    for (let round = 0; round < 6; round++) {
      // Of five deaths within 10 s the supervisor makes a crash loop, and ends the fleet.
      const mayKill = () => kills.length < 4 || performance.now() - kills.at(-4)! > 12_000;
      await until("a death not to be one of a crash loop", mayKill, patienceMs);
      const isHalf = round % 3 === 1;
      const [boss, other] = [pair[round % 2]!, pair[(round + 1) % 2]!];
      const victim = await pidOf(other);
      const name = `worker ${workerOf(other)}`;
      const before = readyCount();
      write(current + 1, isHalf);
      boss.send(f.Q("RELOAD"));
      await shortly();
      signal(victim, "SIGKILL");
      kills.push(performance.now());
      const said = await answer(boss);
      if (isHalf) assert.equal(said, [failed]);
      else assert.ok(said.every((text) => text === `NOTICE no answer from: ${name}`), said.join());
      if (!isHalf) current++;
      await until("another worker", () => readyCount() > before, patienceMs);
      for (const console of pair) console.close();
      pair = await consoles();
      for (const console of pair) await goesBy(console, current, `in round ${round}`);
    }
  },
);

tests(
  "a worker that does not answer a RELOAD is named; it follows, or the next one does",
  async () => {
    const [boss, other] = await consoles() as [RawClient, RawClient];
    const victim = await pidOf(other);
    await freeze(victim);
    const named = [`NOTICE no answer from: worker ${workerOf(other)}`];
    write(2);
    boss.send(f.Q("RELOAD"));
    assert.equal(await answer(boss), named);
    await goesBy(boss, 2);
    signal(victim, "SIGCONT");
    await goesBy(other, 2);
    await freeze(victim);
    write(3);
    const before = readyCount();
    boss.send(f.Q("RELOAD"));
    signal(victim, "SIGKILL");
    const said = await answer(boss);
    assert.ok(said.length === 0 || said.join() === named.join(), said.join());
    await until("another worker", () => readyCount() > before, patienceMs);
    for (const console of await consoles()) assert.is(await versionOf(console), 3);
  },
);

tests(
  "the supervisor killed in the middle of a RELOAD: all or nothing, and the next start has all",
  async () => {
    for (let version = 2; version <= 3; version++) {
      const pair = await consoles();
      const pids = pgweir.workerPids();
      write(version);
      pair[0]!.send(f.Q("RELOAD"));
      await shortly();
      pgweir.signal("SIGKILL");
      // They end by themselves, and until then are of one mind.
      while (pair[1]!.closeReason === null) {
        const seen = await versionOf(pair[1]!);
        if (seen !== null) assert.ok(seen === version - 1 || seen === version, `${seen}`);
      }
      await until("the workers' end", () => !pids.some(isAlive), patienceMs);
      for (const console of pair) console.close();
      const ini = readFileSync(pgweir.iniFile, "utf8");
      pgweir = await startPgweir({ workers: 2, port: pgweir.port, ini });
      whole = null;
      for (const console of await consoles()) assert.is(await versionOf(console), version);
    }
  },
);

tests.run();
