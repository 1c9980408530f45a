// Messages that are begun and not ended: lengths that are just possible, held open by the hundred, cost what has come of
// them and no work; and nothing of a message with an impossible length is passed on to a server.

import {
  commandComplete,
  concatBytes,
  Frontend,
  readyForQuery,
  rowDescription,
} from "../../../shared/wire/mod.ts";
import { queryText, startFakePostgres } from "../../support/fake_postgres.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { badFrame, f } from "../../support/notation.ts";
import type { Pgweir } from "../../support/pgweir.ts";
import type { Postgres } from "../../support/postgres.ts";
import { atRest, openFiles, residentBytes } from "../../support/processes.ts";
import { RawClient } from "../../support/raw_client.ts";
import {
  ask,
  closeAll,
  inParallel,
  nothingHangs,
  open,
  startPair,
  startPooler,
  upTo,
} from "./support.ts";

needs("postgresql");

const test = suite("claims");
/** The longest message PostgreSQL takes: a GiB but for two bytes. */
const LONGEST = 0x3ffffffe;
const junk = new Uint8Array(64).fill(0x41);

/** The beginning of the longest message of a type; with some bytes that mean something, and junk. */
function claim(type: string, ...bytes: readonly number[]): Uint8Array {
  return badFrame(type, LONGEST, Uint8Array.from([...bytes, ...junk]));
}

let postgres: Postgres;
/** Four server connections. */
let pooler: Pgweir;

test.before(async () => {
  ({ postgres, pooler } = await startPair({ settings: { default_pool_size: 4 } }));
  await inParallel(upTo(400), 20, async () => {
    const client = await open(pooler);
    await client.query("SELECT 1");
    await client.end();
  });
});

test.after.each(closeAll);

test.after(async () => {
  await pooler.stop();
  await postgres.stop("immediate");
});

test("two hundred claims of a GiB, held open, cost no memory, no work and no sockets", async () => {
  // Memory was set aside for what was announced. And a reader with half a message asked for the rest of it in a loop.
  const files = openFiles(pooler.pid);
  const before = residentBytes(pooler.pid);
  const claims = [
    claim("Q"),
    claim("F"),
    claim("P", 0),
    concatBytes(
      f.P("", "SELECT $1::text"),
      claim("B", 0, 0),
    ),
    claim("d"),
    // Small enough to be waited for, without a server.
    badFrame("Q", 30_000, junk),
    badFrame("P", 30_000, junk),
    badFrame("Q", 30_000).subarray(0, 3),
  ];
  const clients: RawClient[] = [];
  // In a wait of their own: some of the claims hold a server until it is known what becomes of them.
  for (let i = 0; i < 200; i++) {
    const client = await open(pooler);
    client.send(claims[i % claims.length]!);
    clients.push(client);
  }
  // A named Parse of this length is refused by its length.
  const refused = await open(pooler);
  refused.send(claim("P", 0x61, 0));
  await until("all to be taken in", async () => {
    const rows = await pooler.console("SHOW POOLS");
    return rows.some((row) => row["database"] === "postgres" && Number(row["cl_waiting"]) > 90);
  });
  const grown = residentBytes(pooler.pid) - before;
  assert.ok(grown < 16 << 20, `the pooler grew by ${grown >> 20} MiB`);
  await atRest(pooler.pid, 0.25);
  for (const client of clients) assert.is(client.closeReason, null);
  for (const client of [...clients, refused]) client.close();
  await until("the sockets to be closed", () => openFiles(pooler.pid) <= files + 4);
  const next = await open(pooler);
  assert.equal(await next.query("SELECT 'well'"), [["well"]]);
  await next.end();
});

test("nothing of a message with an impossible length reaches a server", async () => {
  // The head of such a message was passed on with what stood before it: the server waited for the rest of it, out of
  // step for the next client.
  const fake = await startFakePostgres();
  const front = await startPooler(fake, { settings: { default_pool_size: 1 } });
  const lies = [-2147483648, -1, 0, 3, 0x40000000, 0x7fffffff];
  const frames = ["Q", "P", "B", "d", "S", "p", "X", "\0"].flatMap((type) =>
    lies.map((length) => badFrame(type, length, junk))
  );
  frames.push(badFrame("S", 20_000, new Uint8Array(19_996)), badFrame("H", 5, Uint8Array.of(0)));
  try {
    for (const frame of frames) {
      for (const begin of [false, true]) {
        const client = await open(front);
        if (begin) assert.is(await ask(client, [f.Q("BEGIN")]), 'C"BEGIN" Z(T)');
        const held = begin ? fake.open : [];
        const before = fake.sessions.flatMap((session) => session.messages);
        // With a good one in front of it, in one write.
        client.send(f.Q("good"), frame);
        const replies = await client.repliesUntilClosed({ values: true });
        const what = `${frame.subarray(0, 5)} ${begin ? "in a transaction" : ""}: ${replies}`;
        assert.match(replies, /E\(08P01\) closed$/, what);
        await until(
          `the server to be left, ${what}`,
          () => held.every((session) => session.isClosed || session.transaction === "I"),
        );
        const all = fake.sessions.flatMap((session) => session.messages);
        const sent = all.filter((each) => !before.includes(each)).map((each) =>
          each.type === Frontend.query ? queryText(each) : String.fromCharCode(each.type)
        );
        // What the pooler says itself to leave the transaction is not meant.
        const others = sent.filter((each) => !/^(good|X|ROLLBACK|DISCARD ALL)$/.test(each));
        assert.is(others.join(), "", what);
      }
    }
  } finally {
    await front.stop();
    await fake.stop();
  }
});

test("a length that PostgreSQL refuses is refused before a server has seen it", async () => {
  // One byte more than PostgreSQL takes was passed on: it closed the connection, and the client heard of a crash.
  const warm = await open(pooler);
  const backends = async () => (await postgres.backends()).map((backend) => backend.pid).join();
  await warm.query("SELECT 1");
  const before = await backends();
  for (const type of ["Q", "P", "B", "F"]) {
    const direct = await open(postgres);
    direct.send(badFrame(type, LONGEST + 1, junk));
    await direct.closed;
    const client = await open(pooler);
    client.send(badFrame(type, LONGEST + 1, junk));
    assert.is(await client.repliesUntilClosed(), "E(08P01) closed", type);
  }
  // The ends of the direct ones may show later.
  await until(
    "the pooler's servers to be those of before",
    async () => await backends() === before,
  );
  await warm.end();
});

test("a name is taken whole up to 16 KiB, cut or not, and refused beyond", async () => {
  // The name in a Bind is looked for as it arrives: one that was cut was taken for the end of the message, or the
  // connection waited for room that never came.
  for (const length of [9_994, 16_384, 16_385, 32_700]) {
    const name = "n".repeat(length);
    const parts = [f.P(name, "SELECT 1"), f.S(), f.B("", name), f.E(), f.S()];
    const bytes = concatBytes(...parts);
    // Describe and Close have a limit of PostgreSQL's own.
    const more = length < 10_000 ? [f.D("S", name), f.C("S", name), f.S()] : [];
    const cuts = [[], [6], [length], [length + 50, length + 60], [1, 2 * length], [1.5 * length]];
    for (const cut of cuts) {
      const client = await open(pooler);
      await client.sendCut(concatBytes(bytes, ...more), cut, 3);
      const closed = more.length > 0 ? " t(0) T 3 Z(I)" : "";
      const replies = await client.replies(more.length > 0 ? 3 : 2, { values: true });
      const taken = `1 Z(I) 2 D("1") C"SELECT 1" Z(I)${closed}`;
      const wanted = length > 16_384 ? "E(54000) Z(I) E(26000) Z(I)" : taken;
      assert.is(replies, wanted, `${length} cut at ${cut}`);
      await client.end();
    }
  }
  const client = await open(pooler);
  client.send(f.P("n".repeat(100_000), "SELECT 1"), f.B("", "n".repeat(100_000)), f.E(), f.S());
  assert.match(await client.repliesUntilClosed(), /^(E\(54000\) )?E\(54000\) closed$/);
});

test("a server that claims a GiB and sends nothing of it costs nothing but its client", async () => {
  // The other side: room was made for a row as long as the server said.
  const row = rowDescription([{ name: "v", typeOid: 25, typeSize: -1 }]);
  const claims: [string, Uint8Array][] = [
    ["a row", claim("D", 0, 1)],
    ["copy data", claim("d")],
    ["a notice", claim("N")],
    ["an error", claim("E")],
    ["a row description", claim("T", 0, 1)],
  ];
  let at = 0;
  const fake = await startFakePostgres({
    onMessage: (session, message) => {
      if (message.type !== Frontend.query) session.answer(message);
      else if (queryText(message) === "claim") session.send(row, claims[at]![1]);
      else session.send(row, commandComplete("SELECT 0"), readyForQuery("I"));
    },
  });
  const front = await startPooler(fake, { settings: { default_pool_size: 100 } });
  try {
    for (; at < claims.length; at++) {
      const clients = await Promise.all(upTo(40).map(() => open(front)));
      const before = residentBytes(front.pid);
      for (const client of clients) client.send(f.Q("claim"));
      for (const client of clients) await until("the claim", () => client.unread > 0);
      const grown = residentBytes(front.pid) - before;
      assert.ok(grown < 16 << 20, `${claims[at]![0]}: the pooler grew by ${grown >> 20} MiB`);
      for (const client of clients) client.close();
      await until(
        "the servers to be closed",
        () => fake.open.every((s) => s.messages.length === 0),
      );
      const next = await open(front);
      assert.is(await ask(next, [f.Q("good")]), 'T C"SELECT 0" Z(I)', claims[at]![0]);
      await next.end();
    }
  } finally {
    await front.stop();
    await fake.stop();
  }
});

test("the pooler and its servers are well after all this", async () => {
  // A server left in a transaction, or a pooler that had been restarted, showed only much later.
  await nothingHangs(pooler, postgres);
});

test.run();
