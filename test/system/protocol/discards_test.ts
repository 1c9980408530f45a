// DISCARD ALL, DEALLOCATE ALL and DEALLOCATE in the middle of what a client sends in one go: drivers' pools put them in
// front of the first command. Compared with PostgreSQL, whether or not the server has any of the client's statements.

import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import type { Pgweir } from "../../support/pgweir.ts";
import type { Postgres } from "../../support/postgres.ts";
import { ask, closeAll, noServers, nothingHangs, open, startPair, Twin } from "./support.ts";

needs("postgresql");

const test = suite("discards in a pipe");
let postgres: Postgres;
/** One server connection. */
let pooler: Pgweir;

test.before(async () => {
  ({ postgres, pooler } = await startPair());
});

test.after.each(closeAll);

test.after(async () => {
  await pooler.stop();
  await postgres.stop("immediate");
});

/** The pooler's next server has none of anybody's statements. */
async function newServer(): Promise<void> {
  const pids = async () => (await postgres.backends()).map(({ pid }) => pid);
  const old = await pids();
  await postgres.query(`SELECT pg_terminate_backend(pid) FROM unnest(ARRAY[${old}]::int[]) pid`);
  await until(
    "the server to be gone",
    async () => !(await pids()).some((pid) => old.includes(pid)),
  );
  await noServers(pooler);
}

const run = (sql: string) => [f.P("", sql), f.B(), f.E()];
const use = [f.B("", "s"), f.E()];

for (const sql of ["DISCARD ALL", "DEALLOCATE ALL"]) {
  const ways: [string, Uint8Array[], number][] = [
    ["a query", [f.Q(sql)], 1],
    ["a cycle", [...run(sql), f.S()], 1],
    ["a group", run(sql), 0],
    ["a named statement", [f.P("all", sql), f.B("", "all"), f.E(), f.S()], 1],
  ];
  for (const [what, parts, count] of ways) {
    test(`${sql} as ${what}: what follows in the same write finds no name, and may take it`, async () => {
      // "already exists", and the dropped statement was executed; or the new one was lost.
      for (const isNew of [false, true]) {
        const told = isNew ? "on a new server" : "on the same server";
        const rests: [string, Uint8Array[], number][] = [
          ["Parse", [f.P("s", "SELECT 2"), ...use, f.S()], 1],
          ["Bind", [...use, f.S()], 1],
          ["Describe", [f.D("S", "s"), f.S()], 1],
          ["the same Parse", [f.P("s", "SELECT 1"), ...use, f.S(), f.P("t", "SELECT 1"), f.S()], 2],
          ["Close and Parse", [f.C("S", "s"), f.P("s", "SELECT 3"), f.S(), ...use, f.S()], 2],
          ["an error", [...run("SELECT 1/0"), f.P("s", "SELECT 3"), f.S()], 1],
        ];
        for (const [next, rest, more] of rests) {
          const pooled = await open(pooler);
          const direct = await open(postgres);
          for (const client of [pooled, direct]) await ask(client, [f.P("s", "SELECT 1"), f.S()]);
          if (isNew) {
            await direct.end();
            await newServer();
          }
          const straight = isNew ? await open(postgres) : direct;
          if (isNew) await ask(straight, [f.P("s", "SELECT 1"), f.S()]);
          for (const [at, asked] of [[...parts, ...rest], [...use, f.S()]].entries()) {
            const total = at === 0 ? count + more : 1;
            assert.is(
              await ask(pooled, asked, total),
              await ask(straight, asked, total),
              `${next} ${told}${at === 0 ? "" : ", later"}`,
            );
          }
          await pooled.end();
          await straight.end();
        }
      }
    });
  }
}

test("a DEALLOCATE behind a cycle without its Sync is answered once", async () => {
  // The tag of the command before it was taken for one of the DEALLOCATE's, and one that nobody asked for came.
  for (const sql of ["SELECT 1", "SELECT nope", "SET application_name = 'x'", ""]) {
    const twin = await Twin.login(pooler, postgres);
    await twin.same([f.P("s", "SELECT 7"), f.S()]);
    const pipe = [...run(sql), f.Q("DEALLOCATE s"), f.S(), f.Q("SELECT 'last'")];
    const count = sql === "SELECT nope" ? 2 : 3;
    await twin.same(pipe, count);
    await twin.same([...use, f.S()]);
    await twin.end();
  }
});

test("a name that a failed group has not closed can be deallocated behind it", async () => {
  const twin = await Twin.login(pooler, postgres);
  await twin.same([f.P("s", "SELECT 7"), f.S()]);
  await twin.same([...run("SELECT 1/0"), f.C("S", "s"), f.S(), f.Q("DEALLOCATE s")], 2);
  await twin.same([...use, f.S()]);
  await twin.same([f.P("s", "SELECT 8"), f.S(), f.C("S", "s"), f.S(), f.Q("DEALLOCATE s")], 3);
  await twin.end();
});

test("a DISCARD ALL that was bound and never executed is nobody else's", async () => {
  const gone = await open(pooler);
  await ask(gone, [f.P("x", "SELECT 1"), f.S()]);
  gone.send(f.P("", "DISCARD ALL"), f.B(), f.H());
  await gone.repliesUntil("2");
  gone.close();
  const twin = await Twin.login(pooler, postgres);
  await twin.same([f.P("s", "SELECT 7"), ...use, f.S()]);
  for (let round = 0; round < 2; round++) await twin.same([...use, f.S()]);
  await twin.end();
});

test("a DEALLOCATE that is prepared, described or bound, or that fails, has dropped nothing", async () => {
  // The name was gone with the Parse, or the Bind, of what was never executed.
  for (const name of ["", "d"]) {
    const parse = f.P(name, "DEALLOCATE s");
    const tooMany = f.B("", name, ["1"]);
    const ways: [string, Uint8Array[], number][] = [
      ["prepared", [f.S()], 1],
      ["described", [f.D("S", name), f.S()], 1],
      ["bound", [f.B("", name), f.S()], 1],
      ["bound and closed", [f.B("p", name), f.D("P", "p"), f.C("P", "p"), f.S()], 1],
      ["bound again", [f.B("", name), f.P("o", "SELECT 3"), f.B("", "o"), f.E(), f.S()], 1],
      ["bound elsewhere", [f.B("p", name), f.P("o", "SELECT 3"), f.B("", "o"), f.E(), f.S()], 1],
      ["with a Bind that fails", [tooMany, f.S()], 1],
      ["with a Bind that fails in front", [tooMany, f.E(), f.S()], 1],
      ["behind an error", [...run("SELECT 1/0"), f.B("", name), f.E(), f.S()], 1],
      ["behind a Query", [f.Q("SELECT 1"), f.B("o", name), f.S()], 2],
      ["skipped", [...run("SELECT 1/0"), f.P("", "DEALLOCATE s"), f.S(), f.B(), f.E(), f.S()], 2],
      ["in a failed transaction", [
        ...[f.Q("BEGIN"), f.Q("SELECT 1/0"), f.B("", name), f.E(), f.S(), f.Q("ROLLBACK")],
      ], 4],
    ];
    for (const [how, parts, count] of ways) {
      const twin = await Twin.login(pooler, postgres);
      await twin.same([f.P("s", "SELECT 10"), f.S()]);
      await twin.same([parse, ...parts], count);
      assert.match(await twin.same([...use, f.S()]), "10", `${how}, as "${name}"`);
      await twin.same([f.P("s", "SELECT 20"), f.S(), ...use, f.S()], 2);
      await twin.same([...run("DEALLOCATE s"), f.P("s", "SELECT 20"), ...use, f.S()]);
      await twin.end();
    }
  }
});

test("a DEALLOCATE takes effect with its Execute, by whatever portal and in whatever order", async () => {
  const twin = await Twin.login(pooler, postgres);
  const prepare = async () => {
    await twin.same([f.Q("DEALLOCATE ALL"), f.P("s", "SELECT 1"), f.P("t", "SELECT 2"), f.S()], 2);
    await twin.same([f.P("ds", "DEALLOCATE s"), f.P("dt", "DEALLOCATE t"), f.S()]);
  };
  const both = [f.B("p", "ds"), f.B("q", "dt")];
  const left = async () => {
    for (const name of ["s", "t"]) await twin.same([f.B("", name), f.E(), f.S()]);
  };
  const pipes: [Uint8Array[], number][] = [
    [[...both, f.E("q"), f.E("p"), f.S()], 1],
    [[...both, f.E("q"), f.S()], 1],
    [[...both, f.E("q"), ...run("SELECT 1/0"), f.E("p"), f.S()], 1],
    // Behind a Sync, in a transaction.
    [[f.Q("BEGIN"), ...both, f.S(), f.E("p"), f.S(), f.Q("COMMIT")], 4],
    [[f.Q("BEGIN"), ...both, f.S(), f.Q("COMMIT"), f.E("p"), f.S()], 4],
    // The same one twice.
    [[f.B("p", "ds"), f.B("q", "ds"), f.E("p"), f.E("q"), f.S()], 1],
    [[f.B("p", "ds"), f.E("p"), f.E("p"), f.S()], 1],
    // Prepared anew between.
    [[f.B("p", "ds"), f.C("S", "s"), f.P("s", "SELECT 3"), f.E("p"), f.B("", "s"), f.S()], 1],
    // A portal of that name is there already, and is another's.
    [[
      ...[f.Q("BEGIN"), f.P("o", "SELECT 4"), f.B("p", "o"), f.S(), f.Q("SAVEPOINT a")],
      ...[f.B("p", "ds"), f.S(), f.Q("ROLLBACK TO a"), f.E("p"), f.S(), f.Q("COMMIT")],
    ], 7],
  ];
  for (const [parts, count] of pipes) {
    await prepare();
    await twin.same(parts, count);
    await left();
  }
  await twin.end();
});

test("the pooler and its servers are well after all this", async () => {
  await nothingHangs(pooler, postgres);
});

test.run();
