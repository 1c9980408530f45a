// Clients that disappear in the middle of a COPY: killed programs, broken lines, inside a transaction and without one,
// while others use the second server. What counts: not a row, not a busy backend and not a socket is left.

import { type ChildProcess, spawn } from "node:child_process";
import { concatBytes } from "../../../shared/wire/mod.ts";
import { atExit } from "../../support/at_exit.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import type { Pgweir } from "../../support/pgweir.ts";
import type { Postgres } from "../../support/postgres.ts";
import { isAlive, openFiles, signal } from "../../support/processes.ts";
import type { RawClient } from "../../support/raw_client.ts";
import { halfClosed } from "../../support/sockets.ts";
import { ask, closeAll, nothingHangs, open, startPair, upTo } from "./support.ts";

needs("postgresql");

const test = suite("the end of a client in a COPY");
let postgres: Postgres;
/** Two server connections. */
let pooler: Pgweir;
let files = 0;

test.before(async () => {
  ({ postgres, pooler } = await startPair({ settings: { default_pool_size: 2 } }));
  await postgres.query("CREATE TABLE target (i int)");
  const warm = [await open(pooler), await open(pooler)];
  await Promise.all(warm.map((client) => client.query("SELECT pg_sleep(0.05)")));
  for (const client of warm) await client.end();
  files = openFiles(pooler.pid);
});

test.after.each(closeAll);

test.after(async () => {
  await pooler.stop();
  await postgres.stop("immediate");
});

async function freeAgain(what: string): Promise<void> {
  await until(
    `the servers to be free, ${what}`,
    async () => (await postgres.backends()).every((backend) => backend.state === "idle"),
  );
  await until(`the sockets to be closed, ${what}`, () => openFiles(pooler.pid) <= files + 2);
  await until(`no socket to be half closed, ${what}`, () => halfClosed(pooler.port) === 0);
}

async function nothingCopied(what: string): Promise<void> {
  assert.equal(await postgres.query("SELECT count(*)::int AS n FROM target"), [{ n: 0 }], what);
}

/** Another client, on the other server, all the time. */
async function beside(work: () => Promise<void>): Promise<void> {
  const other = await open(pooler);
  let over = false;
  const asking = (async () => {
    for (let i = 0; !over; i++) {
      assert.is(await ask(other, [f.Q(`SELECT ${i}`)]), `T D("${i}") C"SELECT 1" Z(I)`);
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
  })();
  try {
    await work();
  } finally {
    over = true;
    await asking;
    await other.end();
  }
}

const endings: [string, (client: RawClient) => void][] = [
  ["Terminate and FIN", (client) => void client.end()],
  ["FIN", (client) => client.halfClose()],
  ["close", (client) => client.close()],
  ["RST", (client) => client.reset()],
];

test("a COPY that is broken off inside a transaction leaves neither rows nor transaction", async () => {
  // The server was given to the next client inside the transaction of the one that had left.
  const rows = concatBytes(...upTo(1000).map((i) => f.d(`${i}\n`)));
  const moments: [string, Uint8Array][] = [
    ["at its beginning", new Uint8Array(0)],
    ["after a thousand rows", rows],
    ["within a message", concatBytes(rows, f.d("1".repeat(100_000)).subarray(0, 70_000))],
    ["after its end", concatBytes(rows, f.c())],
  ];
  await beside(async () => {
    for (const [when, sent] of moments) {
      for (const [how, leave] of endings) {
        // A message within a message is none.
        if (how.startsWith("Terminate") && when.startsWith("within")) continue;
        const client = await open(pooler);
        client.send(
          f.Q("BEGIN"),
          f.Q("INSERT INTO target VALUES (0)"),
          f.Q("COPY target FROM STDIN"),
        );
        await client.repliesUntil("G");
        client.send(sent);
        leave(client);
        const what = `${how} ${when}`;
        await until(
          `the transaction to end, ${what}`,
          async () =>
            (await postgres.backends()).every(({ state, query }) =>
              state === "idle" || (state === "active" && !query.includes("COPY"))
            ),
        );
        await nothingCopied(what);
        client.close();
      }
    }
  });
  await freeAgain("after all");
});

test("a COPY to a client that has left stops, in either protocol", async () => {
  // The server went on to its last row for nobody.
  const sql = "COPY (SELECT repeat('x', 1000), generate_series(1, 100000000)) TO STDOUT";
  for (const extended of [false, true]) {
    for (const begin of [false, true]) {
      for (const [how, leave] of endings) {
        const client = await open(pooler);
        if (begin) await client.query("BEGIN");
        if (extended) client.send(f.P("", sql), f.B(), f.E(), f.S());
        else client.send(f.Q(sql));
        await until("some of it to come", () => client.unread > 65_536);
        client.pauseReading();
        leave(client);
        const what = `${how}, extended ${extended}, in a transaction ${begin}`;
        await until(
          `the server to be free, ${what}`,
          async () => (await postgres.backends()).every((backend) => backend.state === "idle"),
        );
        client.close();
      }
    }
  }
  await freeAgain("after all");
});

const running = new Set<ChildProcess>();
atExit(() => {
  for (const child of running) if (child.exitCode === null) signal(child.pid!, "SIGKILL");
});

function psql(...commands: string[]): ChildProcess {
  const at = ["-h", pooler.host, "-p", String(pooler.port), "-U", "postgres", "-X", "-q"];
  const child = spawn("psql", [...at, ...commands.flatMap((each) => ["-c", each])], {
    stdio: ["pipe", "pipe", "ignore"],
    env: { ...process.env, PGDATABASE: "postgres" },
  });
  child.stdin!.on("error", () => {});
  running.add(child);
  return child;
}

async function kill(child: ChildProcess): Promise<void> {
  signal(child.pid!, "SIGKILL");
  await until("psql to end", () => !isAlive(child.pid!));
  running.delete(child);
}

test("a psql that is killed in the middle of \\copy leaves nothing behind", async () => {
  // The commonest way to leave a COPY: whoever runs it presses Ctrl-C twice, or is shot for its memory.
  for (const begin of [false, true]) {
    const start = begin ? ["BEGIN"] : [];
    const reading = psql(...start, "\\copy target from pstdin");
    reading.stdin!.write(upTo(100_000).map((i) => `${i}\n`).join(""));
    await until(
      "psql to have sent rows",
      async () =>
        (await postgres.query("SELECT tuples_processed > 0 AS some FROM pg_stat_progress_copy"))
          .some((row) => row["some"]),
    );
    await kill(reading);
    await freeAgain("a killed \\copy from");
    await nothingCopied("a killed \\copy from");

    const sql = "SELECT repeat('x', 1000), generate_series(1, 100000000)";
    const writing = psql(...start, `\\copy (${sql}) to pstdout`);
    // Nobody reads what it prints.
    writing.stdout!.pause();
    await until(
      "the copy to be stuck",
      async () => (await postgres.backends()).some((each) => each.wait_event === "ClientWrite"),
      30_000,
    );
    await kill(writing);
    await freeAgain("a killed \\copy to");
  }
});

test("the pooler and its servers are well after all this", async () => {
  // A server left in a transaction, or a pooler that had been restarted, showed only much later.
  await nothingHangs(pooler, postgres);
});

test.run();
