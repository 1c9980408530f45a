// What servers say unasked, and servers that say it wrong: notices, notifications and settings between transactions,
// errors without their fields, a server that ends while idle. No client gets what is not its own, none is left waiting.

import {
  authenticationOk,
  commandComplete,
  concatBytes,
  dataRow,
  errorResponse,
  Frontend,
  message,
  noticeResponse,
  parameterStatus,
  readyForQuery,
  rowDescription,
  writeInt16,
} from "../../../shared/wire/mod.ts";
import {
  type FakeOptions,
  type FakePostgres,
  type FakeSession,
  queryText,
  startFakePostgres,
} from "../../support/fake_postgres.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { badFrame, f } from "../../support/notation.ts";
import type { Pgweir } from "../../support/pgweir.ts";
import type { Postgres } from "../../support/postgres.ts";
import { RawClient, ServerError } from "../../support/raw_client.ts";
import {
  ask,
  closeAll,
  login,
  nothingHangs,
  open,
  startPair,
  startPooler,
  Twin,
} from "./support.ts";

needs("postgresql");

const test = suite("unasked and wrong");
let postgres: Postgres;
let pooler: Pgweir;

test.before(async () => {
  ({ postgres, pooler } = await startPair());
});

test.after.each(closeAll);

test.after(async () => {
  await pooler.stop();
  await postgres.stop("immediate");
});

const text = (value: string) => new TextEncoder().encode(value);

function notification(channel: string, payload: string): Uint8Array {
  return message(0x41, Uint8Array.of(0, 0, 0, 1), text(`${channel}\0${payload}\0`));
}

/** A scripted server behind a pooler with one server connection, for the time of `work`. */
async function withFake(
  options: FakeOptions,
  work: (fake: FakePostgres, front: Pgweir) => Promise<void>,
  settings: Record<string, string | number> = {},
): Promise<void> {
  const fake = await startFakePostgres(options);
  const front = await startPooler(fake, { settings: { default_pool_size: 1, ...settings } });
  try {
    await work(fake, front);
  } finally {
    await front.stop();
    await fake.stop();
  }
}

const good = 'T D("good") C"SELECT 1" Z(I)';

test("a notification reaches nobody who has not listened", async () => {
  // LISTEN sticks to the shared server: what came while it was idle, or ran another client's query,
  // was passed on to whoever had the server next.
  const listener = await open(pooler);
  const other = await open(pooler);
  await listener.query("LISTEN news");
  await postgres.query("NOTIFY news, 'secret'");
  await new Promise((resolve) => setTimeout(resolve, 50));
  assert.is(await ask(other, [f.Q("SELECT 1")]), 'T D("1") C"SELECT 1" Z(I)');
  other.send(f.Q("BEGIN"), f.Q("SELECT pg_sleep(0.1)"), f.Q("COMMIT"));
  await postgres.query("NOTIFY news, 'secret'");
  assert.is(await other.replies(3), 'C"BEGIN" Z(T) T D C"SELECT 1" Z(T) C"COMMIT" Z(I)');
  assert.is(await ask(other, [f.Q("SELECT 2")]), 'T D("2") C"SELECT 1" Z(I)');
  await other.readNothingFor(20);
  await listener.query("UNLISTEN *");
  await listener.end();
  await other.end();
});

test("what a server says while idle is nobody's answer", async () => {
  // Notices and changed settings of an idle server were passed on to the next client, or counted as
  // answers, or ended the pooler: "packet from server when not linked". A default that a reload has changed
  // the next client is told, as it would be by its own server.
  await withFake({}, async (fake, front) => {
    const client = await open(front);
    assert.is(await ask(client, [f.Q("good")]), good);
    const [session] = fake.open as [FakeSession];
    const unasked: [string, Uint8Array][] = [
      ["a notice", noticeResponse({ severity: "WARNING", code: "01000", message: "unasked" })],
      ["a setting", parameterStatus("TimeZone", "Europe/Rome")],
      ["a setting nobody follows", parameterStatus("in_hot_standby", "on")],
      ["a notification", notification("news", "secret")],
    ];
    for (const [what, bytes] of unasked) {
      for (const cut of [0, 1, 4, 5, 6, bytes.length - 1]) {
        await session.sendCut(bytes, [cut]);
        await until("the pooler to have read it", () => session.unreadByPeer === 0);
        // Half of it may come before the next query and half behind it.
        const told = what === "a setting" && cut === 0 ? "S{TimeZone=Europe/Rome} " : "";
        assert.is(await ask(client, [f.Q("good")]), told + good, `${what}, cut at ${cut}`);
        session.send(bytes.subarray(0, cut));
        await new Promise((resolve) => setTimeout(resolve, 5));
        client.send(f.Q("good"));
        session.send(bytes.subarray(cut));
        assert.match(await client.replies(), /^([NSA] )?T D C"SELECT 1" Z\(I\)$/);
      }
    }
    assert.equal(fake.open, [session]);
    await client.end();
  });
});

test("several things that a server says while idle, at once, are nobody's answer", async () => {
  // Of a notice, a setting and a notification in one packet the first was looked at, and the others were taken for the
  // beginning of the next answer.
  await withFake({}, async (fake, front) => {
    const [client, other] = [await open(front), await open(front)];
    assert.is(await ask(client, [f.Q("good")]), good);
    const [session] = fake.open as [FakeSession];
    const all = concatBytes(
      noticeResponse({ severity: "WARNING", code: "01000", message: "unasked" }),
      parameterStatus("TimeZone", "UTC"),
      notification("news", "secret"),
    );
    for (let round = 0; round < 3; round++) {
      session.send(all, all);
      await until("the pooler to have read it", () => session.unreadByPeer === 0);
      assert.is(await ask(other, [f.Q("good")]), good);
      assert.is(await ask(client, [f.Q("good")]), good);
    }
    await client.readNothingFor(20);
    assert.equal(fake.open, [session]);
    for (const each of [client, other]) await each.end();
  });
});

test("an idle server that speaks out of turn is given to nobody any more", async () => {
  // Rows and ReadyForQuery that nobody had asked for answered the next client's query.
  const answers: [string, Uint8Array][] = [
    ["a row", dataRow(["stale"])],
    ["a result", concatBytes(dataRow(["stale"]), commandComplete("SELECT 1"), readyForQuery("I"))],
    ["ReadyForQuery", readyForQuery("I")],
    ["an error", errorResponse({ severity: "ERROR", code: "XX000", message: "stale" })],
    ["copy data", message(0x64, text("stale"))],
    ["nonsense", Uint8Array.of(0, 1, 2, 3, 4, 5, 6, 7)],
  ];
  await withFake({}, async (fake, front) => {
    const client = await open(front);
    for (const [what, bytes] of answers) {
      assert.is(await ask(client, [f.Q("good")]), good, what);
      const [session] = fake.open as [FakeSession];
      session.send(bytes);
      await until(`the server to be closed after ${what}`, () => session.isClosed);
      assert.is(await ask(client, [f.Q("good")]), good, `after ${what}`);
    }
    await client.end();
  });
});

test("a server that ends while idle costs no client its query", async () => {
  // The pooler noticed the end only when it gave the server away: the client got an error for a
  // query that had never run.
  const client = await open(pooler);
  const other = await open(pooler);
  await client.query("SELECT 1");
  for (let round = 0; round < 3; round++) {
    // Until they have ended.
    await postgres.query(
      "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
    );
    assert.is(await ask(other, [f.Q("SELECT 2")]), 'T D("2") C"SELECT 1" Z(I)');
    assert.is(await ask(client, [f.Q("SELECT 3")]), 'T D("3") C"SELECT 1" Z(I)');
  }
  await client.end();
  await other.end();
});

test("settings that change within a pipeline are reported where PostgreSQL reports them", async () => {
  // A reader that expected one ParameterStatus at most lost step with the second.
  const twin = await Twin.login(pooler, postgres);
  const parts = [f.P("", "SELECT 1"), f.B(), f.E(), f.S()];
  const two = "SET application_name='x'; SET DateStyle='SQL, DMY'";
  const replies = await twin.same([f.Q(two), ...parts], 2);
  assert.match(replies, /^C"SET" C"SET" S\{.*\} S\{.*\} Z\(I\) 1 2 D\("1"\) C"SELECT 1" Z\(I\)$/);
  await twin.same([f.Q("BEGIN"), f.Q("SET TimeZone='Asia/Tokyo'"), f.Q("ROLLBACK"), ...parts], 4);
  await twin.same([f.Q("DO $$ BEGIN RAISE NOTICE 'n'; RAISE WARNING 'w'; END $$"), ...parts], 2);
  await twin.same([f.Q("SELECT set_config('IntervalStyle', 'iso_8601', false)")]);
  await twin.end();
});

/** ErrorResponses with something wrong; all of them well-formed frames. */
const oddErrors: [string, Uint8Array][] = [
  ["no code", message(0x45, text("SFATAL\0Mno code\0\0"))],
  ["no message", message(0x45, text("SFATAL\0C28000\0\0"))],
  ["no severity", message(0x45, text("C28000\0Mno severity\0\0"))],
  ["no fields", message(0x45, Uint8Array.of(0))],
  ["no terminator", message(0x45, text("SFATAL\0C28000\0Mno terminator\0"))],
  ["a field without zero", message(0x45, text("SFATAL\0C28000\0Munfinished"))],
  ["nothing at all", message(0x45)],
  ["1,000 unknown fields", message(0x45, text(`SFATAL\0C28000\0${"zunknown\0".repeat(1000)}\0`))],
  ["a code of 3 letters", message(0x45, text("SFATAL\0CABC\0Mshort code\0\0"))],
  ["a code of 50 letters", message(0x45, text(`SFATAL\0C${"A".repeat(50)}\0Mlong code\0\0`))],
  ["an empty code", message(0x45, text("SFATAL\0C\0Mempty code\0\0"))],
  [
    "text that is not UTF-8",
    message(0x45, text("SFATAL\0C28000\0M"), Uint8Array.of(0xff, 0xc3, 0x28, 0, 0)),
  ],
  ["a message of 1 MiB", message(0x45, text(`SFATAL\0C28000\0M${"x".repeat(1 << 20)}\0\0`))],
];

test("a server that refuses a login in an odd way fails the login, with a proper error", async () => {
  // An error without a code was compared with one through a null pointer, and the pooler was gone.
  const refusals: [string, Uint8Array][] = [
    ...oddErrors,
    ["a key of no length", concatBytes(authenticationOk(), badFrame("K", 4))],
    ["an unknown method", message(0x52, Uint8Array.of(0, 0, 0, 99))],
    ["a method cut off", badFrame("R", 4)],
    [
      "a setting without a value",
      concatBytes(authenticationOk(), message(0x53, text("TimeZone\0"))),
    ],
    ["a ready without a login", readyForQuery("I")],
    ["ready in a transaction", concatBytes(authenticationOk(), readyForQuery("T"))],
    ["ready with an unknown status", concatBytes(authenticationOk(), badFrame("Z", 5, text("?")))],
    ["a row", dataRow(["x"])],
    ["an unknown type", badFrame("?", 4)],
    ["a wrong length", badFrame("E", 3)],
    ["SASL without mechanisms", message(0x52, Uint8Array.of(0, 0, 0, 10, 0))],
    ["SASL out of turn", message(0x52, Uint8Array.of(0, 0, 0, 11), text("r=x"))],
    ["nothing", new Uint8Array(0)],
  ];
  const healthy = new Set<string>();
  const onStartup = (session: FakeSession, { database }: { database: string }) => {
    if (healthy.has(database)) return session.acceptLogin();
    session.send(refusals[Number(database.slice(2))]![1]);
    session.end();
  };
  await withFake({ onStartup }, async (_fake, front) => {
    // Each has a database, and so a pool, of its own.
    await Promise.all(refusals.map(async ([what], at) => {
      const database = `db${at}`;
      let failure: unknown = null;
      await open(front, { ...login, database }).catch((error) => failure = error);
      if (!(failure instanceof ServerError)) throw new Error(`${what}: ${failure}`);
      assert.is(failure.fields.severity, "FATAL", what);
      assert.match(failure.code, /^[0-9A-Z]{5}$/, what);
      assert.ok(failure.fields.message.length > 0, what);
      healthy.add(database);
      const client = await until(
        `a login to work after ${what}`,
        () => open(front, { ...login, database }).catch(() => null),
      );
      assert.is(await ask(client, [f.Q("good")]), good, what);
    }));
    // A line for each failure, and not a flood.
    const lines = front.log().split("\n").filter((line) =>
      line.includes("connection to server failed")
    );
    const count = lines.length;
    assert.ok(count >= refusals.length && count < 20 * refusals.length, `${count} lines`);
  }, { query_wait_timeout: 1, server_login_retry: 1 });
});

test("errors with something wrong pass unchanged while a query runs", async () => {
  // What is well-formed as a frame is the client's to read; the pooler must only keep its step.
  let bytes: Uint8Array = new Uint8Array(0);
  const onMessage = (session: FakeSession, asked: { type: number; body: Uint8Array }) => {
    if (asked.type !== Frontend.query || queryText(asked) !== "odd") return session.answer(asked);
    session.send(bytes, readyForQuery("I"));
  };
  await withFake({ onMessage }, async (_fake, front) => {
    const client = await open(front);
    const count = new Uint8Array(2);
    writeInt16(count, 0, -1);
    const others: [string, Uint8Array][] = [
      ["a row description of 65,535 columns", message(0x54, count)],
      ["a command without a tag", message(0x43)],
      ["a setting without a value", message(0x53, text("TimeZone\0"))],
      ["a notice without fields", message(0x4e)],
    ];
    for (const [what, odd] of [...oddErrors, ...others]) {
      // Not FATAL here: the server stays.
      bytes = odd;
      client.send(f.Q("odd"));
      const [first, second] = await client.messagesUntil("Z");
      assert.equal(Uint8Array.from(first!.body), odd.subarray(5), what);
      assert.is(second!.type, 0x5a, what);
      assert.is(await ask(client, [f.Q("good")]), good, `after ${what}`);
    }
    await client.end();
  });
});

test("a ReadyForQuery with an unknown status ends that server", async () => {
  // Neither idle nor in a transaction: such a server was never given back, and its client waited.
  const onMessage = (session: FakeSession, asked: { type: number; body: Uint8Array }) => {
    if (asked.type !== Frontend.query || queryText(asked) !== "odd") return session.answer(asked);
    session.send(commandComplete("ODD"), badFrame("Z", 5, text("?")));
  };
  await withFake({ onMessage }, async (fake, front) => {
    const client = await open(front);
    client.send(f.Q("odd"));
    assert.is(await client.repliesUntilClosed(), 'C"ODD" E(08006) closed');
    await until("the server to be closed", () => fake.open.length === 0);
    const other = await open(front);
    assert.is(await ask(other, [f.Q("good")]), good);
    await other.end();
  });
});

test("a server that refuses the pooler's own SET fails only that client", async () => {
  // The pooler takes a server to its client's settings by a query of its own. An error there that
  // was odd, or too long to be looked at, was taken for success.
  let refusal: Uint8Array = new Uint8Array(0);
  const onMessage = (session: FakeSession, asked: { type: number; body: Uint8Array }) => {
    const sql = asked.type === Frontend.query ? queryText(asked) : "";
    if (sql.includes("refused")) session.send(refusal, readyForQuery("I"));
    else session.answer(asked);
  };
  const settings = { application_name: "", TimeZone: "UTC" };
  await withFake({ onMessage, settings }, async (fake, front) => {
    const other = await open(front);
    for (const [what, odd] of oddErrors) {
      refusal = odd;
      assert.is(await ask(other, [f.Q("good")]), good);
      const client = await RawClient.connect(front);
      client.startup({ user: "postgres", database: "postgres", TimeZone: "refused" });
      const greeting = await client.repliesUntil("Z");
      // Where trying the value out took too long it is let in, and told with its first query.
      if (client.closeReason === null) client.send(f.Q("good"));
      const replies = greeting.endsWith("closed") ? greeting : await client.repliesUntilClosed();
      assert.match(replies, /^E\([0-9A-Z]{5}\) closed$/, what);
      assert.is(await ask(other, [f.Q("good")]), good, what);
    }
    assert.is(fake.open.length, 1);
    await other.end();
  });
});

test("a server that answers a reset or a test in an odd way is replaced", async () => {
  // The same for what is asked between two clients: who comes next must not meet the server.
  for (
    const own of [
      { server_reset_query: "own", server_reset_query_always: 1 },
      { server_check_query: "own", server_check_delay: 0 },
    ]
  ) {
    let odd: Uint8Array = new Uint8Array(0);
    const onMessage = (session: FakeSession, asked: { type: number; body: Uint8Array }) => {
      const isOwn = asked.type === Frontend.query && queryText(asked) === "own";
      if (isOwn) session.send(odd, readyForQuery("I"));
      else session.answer(asked);
    };
    await withFake({ onMessage }, async (fake, front) => {
      const client = await open(front);
      assert.is(await ask(client, [f.Q("good")]), good);
      for (const [what, bytes] of oddErrors) {
        odd = bytes;
        const before = fake.sessions.length;
        for (let i = 0; i < 2; i++) assert.is(await ask(client, [f.Q("good")]), good, what);
        await until(`a server after ${what}`, () => fake.sessions.length > before);
      }
      await client.end();
    }, own);
  }
});

test("what an idle server says in an odd way is for nobody", async () => {
  await withFake({}, async (fake, front) => {
    const client = await open(front);
    for (const [what, bytes] of oddErrors) {
      assert.is(await ask(client, [f.Q("good")]), good, what);
      const notice = Uint8Array.from(bytes);
      notice[0] = 0x4e;
      fake.open[0]!.send(notice);
      assert.is(await ask(client, [f.Q("good")]), good, `a notice: ${what}`);
      // An error means that it ends, whatever else it says.
      fake.open[0]!.send(bytes);
      await until(`the server to be left after ${what}`, () => fake.open.length === 0);
      await client.readNothingFor(0);
    }
    await client.end();
  });
});

test("a server that dies in the middle of an answer leaves no client waiting", async () => {
  // Half an answer cannot be completed: the client has to be told, or be closed, at once.
  const row = concatBytes(
    rowDescription([{ name: "v", typeOid: 25, typeSize: -1 }]),
    dataRow(["value"]),
  );
  const endings: [string, Uint8Array, string][] = [
    ["before it", new Uint8Array(0), "E(08006) closed"],
    ["after a row", row, "T D E(08006) closed"],
    ["within a row", row.subarray(0, row.length - 2), "T closed"],
    ["within a header", row.subarray(0, row.length - 12), "T E(08006) closed"],
    [
      "after FATAL",
      errorResponse({ severity: "FATAL", code: "57P01", message: "bye" }),
      "E(57P01) closed",
    ],
  ];
  for (const how of ["FIN", "RST"]) {
    let at = 0;
    const onMessage = async (session: FakeSession, asked: { type: number; body: Uint8Array }) => {
      if (asked.type !== Frontend.query || queryText(asked) !== "die") return session.answer(asked);
      session.send(endings[at]![1]);
      await until("the pooler to have read it", () => session.unreadByPeer === 0);
      if (how === "FIN") session.end();
      else session.reset();
    };
    await withFake({ onMessage }, async (_fake, front) => {
      for (; at < endings.length; at++) {
        const [when, , expected] = endings[at]!;
        const client = await open(front);
        client.send(f.Q("die"));
        assert.is(await client.repliesUntilClosed(), expected, `${how} ${when}`);
        const other = await open(front);
        assert.is(await ask(other, [f.Q("good")]), good, `after ${how} ${when}`);
        await other.end();
      }
    });
  }
});

test("a server without a key can be used, though not cancelled", async () => {
  // Some servers and proxies send no BackendKeyData.
  await withFake({ key: null }, async (_fake, front) => {
    const client = await open(front);
    assert.is(await ask(client, [f.Q("good")]), good);
    await client.cancel();
    assert.is(await ask(client, [f.Q("good")]), good);
    await client.end();
  });
  const long = new Uint8Array(256).fill(7);
  await withFake({ key: { processId: 1, secret: long } }, async (fake, front) => {
    const client = await open(front);
    const started = new Promise<void>((resolve) =>
      fake.options = {
        ...fake.options,
        onMessage: (session, asked) => {
          if (asked.type === Frontend.query && queryText(asked) === "long") return resolve();
          session.answer(asked);
        },
      }
    );
    client.send(f.Q("long"));
    await started;
    await client.cancel();
    await until("the cancel to come", () => fake.cancels.length === 1);
    assert.equal(fake.cancels[0]!.secret, long);
    fake.open[0]!.send(
      errorResponse({ severity: "ERROR", code: "57014", message: "cancelled" }),
      readyForQuery("I"),
    );
    assert.is(await client.replies(), "E(57014) Z(I)");
    await client.end();
  });
});

test("the pooler and its servers are well after all this", async () => {
  // A server left in a transaction, or a pooler that had been restarted, showed only much later.
  await nothingHangs(pooler, postgres);
});

test.run();
