// Clients that send anything at all: random bytes, random messages, random programs of right messages, thousands of
// connections that never get anywhere. Each seed is printed on failure; the oracle is PostgreSQL, or that others are well.
// limit: 360 s

import { concatBytes, type Message, startupPacket, writeInt32 } from "../../../shared/wire/mod.ts";
import process from "node:process";
import { assert, seededRandom, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import type { Pgweir } from "../../support/pgweir.ts";
import type { Postgres } from "../../support/postgres.ts";
import { openFiles, residentBytes } from "../../support/processes.ts";
import { RawClient } from "../../support/raw_client.ts";
import {
  ask,
  closeAll,
  inParallel,
  login,
  nothingHangs,
  open,
  startPair,
  startPooler,
  transcript,
  Twin,
  upTo,
} from "./support.ts";

needs("postgresql");

const test = suite("hostile clients");
let postgres: Postgres;
/** One server connection. */
let pooler: Pgweir;

test.before(async () => {
  // Thousands of connections that say nothing have to be there together, however long it takes to open them.
  ({ postgres, pooler } = await startPair({ settings: { client_login_timeout: 600 } }));
  await postgres.query("CREATE DATABASE twin");
});

test.after.each(closeAll);

test.after(async () => {
  await pooler.stop();
  await postgres.stop("immediate");
});

const startup = startupPacket({ user: "postgres", database: "postgres" });

/** The same programs in every run; PGWEIR_SEED starts elsewhere, to look for more. */
const firstSeed = Number(process.env["PGWEIR_SEED"] ?? 1);

class Dice {
  readonly #random: () => number;

  constructor(seed: number) {
    this.#random = seededRandom(seed);
  }

  below(limit: number): number {
    return Math.floor(this.#random() * limit);
  }

  chance(share: number): boolean {
    return this.#random() < share;
  }

  one<T>(items: readonly T[]): T {
    return items[this.below(items.length)]!;
  }

  bytes(length: number): Uint8Array {
    return Uint8Array.from({ length }, () => this.below(256));
  }
}

/** Replies up to the row with `end` and the ReadyForQuery behind it, or to the end of the connection. */
async function untilEnd(client: RawClient, end: string): Promise<string> {
  const messages: Message[] = [];
  for (let ended = false;;) {
    const message = await client.message();
    if (message === null) return `${transcript(messages)} closed`;
    messages.push(message);
    if (message.type === 0x44 && transcript([message]) === `D("${end}")`) ended = true;
    if (ended && message.type === 0x5a) return transcript(messages);
  }
}

test("random bytes end in an error or a close, and everybody else is well", async () => {
  // A parser that trusts one length too many reads past its buffer, waits for ever or ends the
  // process with all its clients.
  const seed = firstSeed;
  const dice = new Dice(seed);
  const bystander = await open(pooler);
  const files = openFiles(pooler.pid);
  try {
    await inParallel(upTo(300), 10, async (number) => {
      const client = await RawClient.connect(pooler);
      if (number % 2 === 0) {
        client.send(startup);
        assert.match(await client.replies(), /Z\(I\)$/);
      }
      client.send(dice.bytes(1 + dice.below(2000)));
      // What looks like the beginning of a message is waited for.
      client.halfClose();
      await client.repliesUntilClosed();
    });
    assert.equal(await bystander.query("SELECT 'well'"), [["well"]]);
    await until("all sockets to be closed", () => openFiles(pooler.pid) <= files + 2);
  } catch (error) {
    throw new Error(`seed ${seed}: ${(error as Error).message}`);
  }
  await bystander.end();
});

test("random messages end in an error or a close, and everybody else is well", async () => {
  // Frames that are right with bodies that are not: what one part lets pass another must bear.
  const seed = firstSeed;
  const dice = new Dice(seed);
  const bystander = await open(pooler);
  const types = "QPBDECSHFdcfpX";
  try {
    await inParallel(upTo(200), 5, async () => {
      const client = await open(pooler);
      for (let i = dice.below(6); i >= 0; i--) {
        const short = "SHcX";
        const type = dice.one([...types]);
        const body = short.includes(type) ? new Uint8Array(0) : dice.bytes(dice.below(60));
        // Bytes of text and ends of text, more often than by chance.
        for (let at = 0; at < body.length; at++) {
          if (dice.chance(0.3)) body[at] = dice.one([0, 0, 0x53, 0x50, 0x61]);
        }
        const head = new Uint8Array(5);
        head[0] = type.charCodeAt(0);
        writeInt32(head, 1, 4 + body.length);
        client.send(head, body);
      }
      client.send(f.S());
      client.halfClose();
      await client.repliesUntilClosed();
    });
    assert.equal(await bystander.query("SELECT 'well'"), [["well"]]);
    await until(
      "the server to be idle",
      async () => (await postgres.backends()).every((backend) => backend.state === "idle"),
    );
  } catch (error) {
    throw new Error(`seed ${seed}: ${(error as Error).message}`);
  }
  await bystander.end();
});

const names = ["", "a", "b", "c"] as const;
const texts = [
  "SELECT 1",
  "SELECT 2 AS two",
  "SELECT $1::int",
  "SELECT $1::text, $2::text",
  "SELECT generate_series(1, 3)",
  "SELEC",
  "",
  "BEGIN",
  "COMMIT",
  "ROLLBACK",
  "SELECT 1/0",
  "SET application_name = 'fuzz'",
  "RESET application_name",
  "DEALLOCATE ALL",
  "SAVEPOINT p",
  "ROLLBACK TO p",
  "SELECT 1; SELECT 2",
  "SELECT 1 AS one",
  "COPY (SELECT 5) TO STDOUT",
];

/** One message of a client, right in itself; what went before it may make it wrong. */
function anyMessage(dice: Dice, from: readonly string[] = names): Uint8Array {
  const name = dice.one(from);
  const portal = dice.one(["", "", "", "p"]);
  switch (dice.below(12)) {
    case 0:
      return f.Q(dice.one(texts));
    case 1:
    case 2:
      return f.P(name, dice.one(texts));
    case 3:
    case 4:
      return f.B(portal, name, dice.one([[], [], ["7"], ["x", null]]));
    case 5:
      return f.D(dice.chance(0.5) ? "S" : "P", dice.chance(0.5) ? name : portal);
    case 6:
    case 7:
      return f.E(portal, dice.one([0, 0, 1, 2]));
    case 8:
      return f.C(dice.chance(0.7) ? "S" : "P", name);
    case 9:
      return dice.chance(0.1) ? f.F(dice.one([2026, 0])) : f.H();
    case 10: {
      // A copy with its data, which may be bad, or too late, or for a table that is not there.
      const sql = `COPY ${dice.one(["pg_temp.data", "nowhere"])} FROM STDIN`;
      const command = dice.chance(0.5) ? [f.Q(sql)] : [f.P("", sql), f.B(), f.E()];
      const rows = ["1\n", "2\n3\n", "", "bad\n"].slice(0, dice.below(5)).map((row) => f.d(row));
      const end = dice.one([f.c(), f.c(), f.f("no")]);
      const late = dice.chance(0.2) ? [f.d("4\n"), f.c()] : [];
      return concatBytes(...command, ...rows, end, ...late);
    }
    default:
      return f.S();
  }
}

/** The error with which a failed transaction answers may depend on what the server was asked first. */
function leniently(replies: string): string {
  let failed = false;
  return replies.split(" ").map((word) => {
    if (word.startsWith("Z(")) failed = word === "Z(E)";
    return failed && word.startsWith("E(") ? "E(any)" : word;
  }).join(" ");
}

/** Sends the same random programs through a pooler and to PostgreSQL. */
async function comparePrograms(target: Pgweir, count: number, exactly: boolean): Promise<void> {
  const first = firstSeed;
  const other = await open(target);
  for (let seed = first; seed < first + count; seed++) {
    const dice = new Dice(seed);
    const twin = await Twin.login(target, postgres, login, { ...login, database: "twin" });
    for (const client of [twin.pooled, twin.direct]) {
      await client.query("CREATE TABLE IF NOT EXISTS data (i int); TRUNCATE data");
    }
    // Statements of somebody else, so that some of the texts are known.
    const known = texts.slice(0, 5);
    await ask(other, [
      ...known.map((sql, at) => f.P(`o${at}`, sql)),
      ...known.map((_, at) => f.C("S", `o${at}`)),
      f.S(),
    ]);
    const program = upTo(10 + dice.below(40)).map(() => anyMessage(dice));
    const transcripts = [untilEnd(twin.pooled, "end"), untilEnd(twin.direct, "end")];
    // In pieces of random size, with pauses here and there.
    let piece: Uint8Array[] = [];
    for (const part of [...program, f.S(), f.Q("ROLLBACK"), f.Q("SELECT 'end'")]) {
      piece.push(part);
      if (dice.chance(0.7)) continue;
      twin.pooled.send(...piece);
      twin.direct.send(...piece);
      piece = [];
      if (dice.chance(0.3)) await new Promise((resolve) => setTimeout(resolve, 1));
    }
    twin.pooled.send(...piece);
    twin.direct.send(...piece);
    const [pooled, direct] = (await Promise.all(transcripts)).map((replies) =>
      exactly ? replies : leniently(replies)
    );
    // A connection that PostgreSQL gives up for a message within a COPY may lose its last answers.
    const ended = pooled!.endsWith("closed") && direct!.endsWith("closed");
    if (pooled !== direct && !ended) throw new Error(`seed ${seed}:\n${pooled}\nwanted\n${direct}`);
    await twin.end();
  }
  await other.end();
}

function includes(bytes: Uint8Array, text: string): boolean {
  return new TextDecoder("latin1").decode(bytes).includes(text);
}

test("random programs of messages get PostgreSQL's answers", async () => {
  // Every order of messages that a client may send, cut and glued together at random: what the
  // pooler notes, rewrites, answers itself and skips must never show.
  await comparePrograms(pooler, 100, true);
});

test("random programs get PostgreSQL's answers also when statements must go for others", async () => {
  // With room for two statements on the server nearly every message makes one go and another come.
  const narrow = await startPooler(postgres, {
    settings: { default_pool_size: 1, max_prepared_statements: 2 },
  });
  try {
    await comparePrograms(narrow, 60, false);
  } finally {
    await narrow.stop();
  }
});

test("random programs of several clients on one server do not mix", async () => {
  // The same with the server changing hands between any two transactions; what lasts longer than
  // one, the unnamed statement and the temporary table, is left out.
  const all = upTo(4).map(async (lane) => {
    const first = lane * 1e9 + firstSeed;
    for (let seed = first; seed < first + 15; seed++) {
      const dice = new Dice(seed);
      const program = upTo(10 + dice.below(40)).map(() => anyMessage(dice, names.slice(1)));
      const twin = await Twin.login(pooler, postgres);
      const transcripts = [untilEnd(twin.pooled, "end"), untilEnd(twin.direct, "end")];
      for (const part of [...program, f.S(), f.Q("ROLLBACK"), f.Q("SELECT 'end'")]) {
        if (part[0] === 0x51 && includes(part, "pg_temp") || part[0] === 0x50 && part[5] === 0) {
          continue;
        }
        twin.pooled.send(part);
        twin.direct.send(part);
        if (dice.chance(0.1)) await new Promise((resolve) => setTimeout(resolve, 1));
      }
      const [pooled, direct] = await Promise.all(transcripts);
      if (pooled !== direct) throw new Error(`seed ${seed}:\n${pooled}\nwanted\n${direct}`);
      await twin.end();
    }
  });
  await Promise.all(all);
});

test("five thousand connections that never log in cost little and disturb nobody", async () => {
  // Half-open connections come by the thousand after a network fault or from a scanner; each kept
  // a buffer, or a place among the clients.
  const client = await open(pooler);
  await client.query("SELECT 1");
  const files = openFiles(pooler.pid);
  const before = residentBytes(pooler.pid);
  const crowd: RawClient[] = [];
  await inParallel(upTo(5000), 50, async (number) => {
    const stranger = await RawClient.connect(pooler);
    crowd.push(stranger);
    const kind = number % 4;
    if (kind > 0) stranger.send(startup.subarray(0, [0, 3, 8, startup.length - 1][kind]));
  });
  await until("all to be accepted", () => openFiles(pooler.pid) >= files + 5000);
  assert.equal(await client.query("SELECT 'well'"), [["well"]]);
  const late = await open(pooler);
  assert.equal(await late.query("SELECT 'well'"), [["well"]]);
  const grown = residentBytes(pooler.pid) - before;
  assert.ok(grown < 48 << 20, `the pooler grew by ${grown >> 20} MiB`);
  for (const stranger of crowd) stranger.close();
  await until("all to be gone", () => openFiles(pooler.pid) <= files + 2);
  assert.equal(await client.query("SELECT 'well'"), [["well"]]);
  await late.end();
  await client.end();
});

test("startup packets full of values leave no memory behind", async () => {
  // What a stranger asks for was kept to be recognised the next time, as often as it differed.
  let number = 0;
  const crowd = () =>
    inParallel(upTo(2500), 20, async () => {
      const client = await RawClient.connect(pooler);
      const value = `${number++} ${"x".repeat(9000)}`;
      client.send(startupPacket({ user: "nobody", database: "x", application_name: value }));
      assert.is(await client.repliesUntilClosed(), "E(28000) closed");
    });
  // What is garbage may lie about for a while, but no more and more of it.
  for (let i = 0; i < 2; i++) await crowd();
  const before = residentBytes(pooler.pid);
  for (let i = 0; i < 2; i++) await crowd();
  await until(
    "memory to stay",
    () => residentBytes(pooler.pid) - before < 64 << 20,
    30_000,
    100,
  );
});

test("half a message after the login costs nobody anything", async () => {
  // A server was taken for the first byte of a message whose rest never came.
  const slow: RawClient[] = [];
  for (let i = 0; i < 50; i++) {
    const client = await open(pooler);
    client.send(f.Q(`SELECT '${"x".repeat(2000)}'`).subarray(0, dividing(i)));
    slow.push(client);
  }
  const client = await open(pooler);
  for (const i of upTo(20)) assert.equal(await client.query(`SELECT ${i}`), [[String(i)]]);
  for (const [i, other] of slow.entries()) {
    other.send(f.Q(`SELECT '${"x".repeat(2000)}'`).subarray(dividing(i)));
    assert.is(await other.replies(), 'T D C"SELECT 1" Z(I)');
    await other.end();
  }
  await client.end();
});

function dividing(i: number): number {
  return [1, 3, 5, 6, 1000][i % 5]!;
}

test("the pooler and its servers are well after all this", async () => {
  // A server left in a transaction, or a pooler that had been restarted, showed only much later.
  await nothingHangs(pooler, postgres);
});

test.run();
