// Servers that can't be cleaned for the next client, or only after a while: they don't stop, don't roll back, don't
// answer the reset, or answer late and in pieces. Scripted ones, since PostgreSQL does none of this on demand.
// limit: 180 s

import {
  Backend,
  commandComplete,
  concatBytes,
  errorResponse,
  Frontend,
  type Message,
  message,
  parameterStatus,
  readyForQuery,
} from "../../../shared/wire/mod.ts";
import {
  type FakeOptions,
  FakePostgres,
  type FakeSession,
  queryText,
} from "../../support/fake_postgres.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { f } from "../../support/notation.ts";
import { type Pgweir, startPgweir } from "../../support/pgweir.ts";
import { RawClient } from "../../support/raw_client.ts";
import { ask, closeAll, connectString, open } from "../protocol/support.ts";
import { isKept, poolRow, waiting } from "./support.ts";

const test = suite("servers that can't be cleaned");
/** The users' names are their pool modes. */
const modes = ["session", "transaction"] as const;

/** What is asked by a simple query, or "". */
function sqlOf(asked: Message): string {
  return asked.type === Frontend.query ? queryText(asked) : "";
}

const failure = errorResponse({ severity: "ERROR", code: "XX000", message: "no" });

/** Answers to ROLLBACK after which a server is of no use. */
const oddRollbacks: Record<string, (session: FakeSession) => void> = {
  silent: () => {},
  stays: (session) => session.send(commandComplete("ROLLBACK"), readyForQuery("T")),
  fails: (session) => session.send(failure, readyForQuery("E")),
  ends: (session) => session.end(),
  resets: (session) => session.reset(),
  babbles: (session) => session.send(Uint8Array.of(0, 1, 2, 3, 4, 5, 6)),
};

/** Answers to a reset query after which a server is of no use. */
const oddResets: Record<string, (session: FakeSession) => void> = {
  mute: () => {},
  failing: (session) => session.send(failure, readyForQuery("I")),
  ending: (session) => session.end(),
  dying: (session) => session.reset(),
};

const oneUse: Record<string, FakeOptions> = {
  deaf: {
    onMessage: (session, asked) => {
      if (sqlOf(asked) !== "HANG") session.answer(asked);
    },
  },
};
for (const [name, answer] of Object.entries(oddRollbacks)) {
  oneUse[name] = {
    onMessage: (session, asked) =>
      sqlOf(asked) === "ROLLBACK" ? answer(session) : session.answer(asked),
  };
}
for (const [name, answer] of Object.entries(oddResets)) {
  oneUse[name] = {
    onMessage: (session, asked) =>
      sqlOf(asked) === "WIPE" ? answer(session) : session.answer(asked),
  };
}

/** Each behind databases of its name, for each mode one. */
const servers = new Map<string, FakePostgres>();
let pooler: Pgweir;

test.before(async () => {
  for (const name of [...Object.keys(oneUse), "late", "pieces", "settings", "copying"]) {
    for (const mode of modes) {
      const fake = new FakePostgres(oneUse[name] ?? {});
      await fake.listen();
      servers.set(`${name}_${mode}`, fake);
    }
  }
  pooler = await startPgweir({
    ini: {
      databases: Object.fromEntries(
        [...servers].map(([name, fake]) => [name, connectString(fake)]),
      ),
      users: { session: "pool_mode=session" },
      pgbouncer: {
        pool_mode: "transaction",
        default_pool_size: 1,
        server_reset_query: "WIPE",
      },
    },
    userlist: { admin: "", session: "", transaction: "" },
  });
});

test.after.each(closeAll);

test.after(async () => {
  await pooler.stop();
  for (const fake of servers.values()) await fake.stop();
});

const good = 'T D("good") C"SELECT 1" Z(I)';

interface Place {
  readonly user: string;
  readonly database: string;
  readonly fake: FakePostgres;
}

function place(name: string, mode: string): Place {
  const database = `${name}_${mode}`;
  return { user: mode, database, fake: servers.get(database)! };
}

/** A client that waits for the one server while `leave` is done with it; it gets a server in the end. */
async function nextIsServed({ user, database }: Place, leave: () => unknown): Promise<void> {
  const next = await open(pooler, { user, database });
  next.send(f.Q("good"));
  await waiting(pooler, 1, database, user);
  await leave();
  assert.is(await next.replies(1, { values: true }), good, database);
  await next.end();
}

async function isReplaced({ database, fake }: Place): Promise<void> {
  assert.is(fake.sessions.length, 2, database);
  await until(`the server of ${database} to be closed`, () => fake.sessions[0]!.isClosed);
}

test("a server that does not react to the cancel is closed", async () => {
  // It was in nobody's hands for ever, or was given away with the query still running.
  await Promise.all(modes.map(async (mode) => {
    const at = place("deaf", mode);
    const client = await open(pooler, at);
    client.send(f.Q("HANG"));
    await until("the query to be there", () => at.fake.open[0]?.messages.length === 1);
    await nextIsServed(at, () => client.reset());
    await isReplaced(at);
    assert.ok(at.fake.cancels.length > 0);
  }));
});

test("a server that does not roll back is closed", async () => {
  const places = Object.keys(oddRollbacks).flatMap((name) =>
    modes.map((mode) => place(name, mode))
  );
  await Promise.all(places.map(async (at) => {
    const client = await open(pooler, at);
    assert.is(await ask(client, [f.Q("BEGIN")]), 'C"BEGIN" Z(T)');
    await nextIsServed(at, () => client.reset());
    await isReplaced(at);
  }));
});

test("a server that does not answer its reset is closed", async () => {
  await Promise.all(
    Object.keys(oddResets).map(async (name) => {
      const at = place(name, "session");
      const client = await open(pooler, at);
      assert.is(await ask(client, [f.Q("good")]), good);
      await nextIsServed(at, () => client.end());
      await isReplaced(at);
    }),
  );
});

test("what was meant for a client that has gone reaches nobody", async () => {
  // Rows that come long after the cancel, in pieces, then its effect: all of it is the old client's.
  for (const mode of modes) {
    const at = place("late", mode);
    let finish: (() => void) | null = null;
    at.fake.options = {
      onMessage: async (session, asked) => {
        if (sqlOf(asked) !== "SLOW") return session.answer(asked);
        await new Promise<void>((resolve) => finish = resolve);
        const rows = concatBytes(session.oneRow("stale"), failure, readyForQuery("I"));
        await session.sendCut(rows, [3, 7, 30, 60]);
      },
    };
    const kept = await isKept(async () => {
      finish = null;
      const client = await open(pooler, at);
      client.send(f.Q("SLOW"));
      const go = await until("the query to be there", () => finish);
      const [sessions, cancels] = [at.fake.sessions.length, at.fake.cancels.length];
      const next = await open(pooler, at);
      next.send(f.Q("good"));
      client.reset();
      await until("the cancel", () => at.fake.cancels.length > cancels);
      await new Promise((resolve) => setTimeout(resolve, 50));
      const early = next.unread;
      go();
      assert.is(await next.replies(1, { values: true }), good);
      await next.end();
      const isSame = at.fake.sessions.length === sessions;
      if (isSame) assert.is(early, 0, "answered by a server that was not free");
      return isSame;
    });
    assert.ok(kept, "another server");
  }
});

/** A backend in a COPY that has not read yet what came behind its beginning; a cancel fails it before that. */
class CopyingBackend {
  readonly unread: Message[] = [];
  #session: FakeSession | null = null;
  #state: "commands" | "copying" | "skipping" = "commands";

  take(session: FakeSession, asked: Message): void {
    if (this.#session !== null) this.unread.push(asked);
    else if (asked.type === Frontend.execute) {
      this.#session = session;
      this.#state = "copying";
      session.send(message(Backend.copyIn, Uint8Array.of(0, 0, 1, 0, 0)));
    } else session.answer(asked);
  }

  cancel(): void {
    if (this.#state !== "copying") return;
    this.#state = "skipping";
    this.#session?.send(failure);
    this.readOn();
  }

  readOn(): void {
    const session = this.#session;
    this.#session = null;
    if (session === null) return;
    for (const asked of this.unread.splice(0)) {
      if (this.#state === "copying") {
        if (asked.type !== Frontend.copyFail) continue;
        this.#state = "skipping";
        session.send(failure);
      } else if (this.#state === "skipping") {
        if (asked.type !== Frontend.sync) continue;
        this.#state = "commands";
        session.send(readyForQuery("I"));
      } else if (asked.type === Frontend.bind) {
        this.#state = "skipping";
        session.send(errorResponse({ severity: "ERROR", code: "26000", message: "no such" }));
      }
    }
  }
}

test("a COPY whose client has gone is failed by one thing only", async () => {
  // A cancel was sent as well. A backend that had not read the client's Sync by then took it for the end of the cycle,
  // and what the pooler had sent to fail it was answered to the next client.
  for (const mode of modes) {
    const at = place("copying", mode);
    const kept = await isKept(async () => {
      const backend = new CopyingBackend();
      at.fake.options = {
        onCancel: () => backend.cancel(),
        onMessage: (session, asked) => backend.take(session, asked),
      };
      const client = await open(pooler, at);
      client.send(f.P("", "COPY t FROM STDIN"), f.B(), f.E(), f.S());
      await client.repliesUntil("G");
      const [sessions, cancels] = [at.fake.sessions.length, at.fake.cancels.length];
      await nextIsServed(at, async () => {
        client.reset();
        await until(
          "the COPY to be failed",
          () => backend.unread.filter((each) => each.type === Frontend.sync).length === 2,
        );
        backend.readOn();
      });
      return at.fake.sessions.length === sessions && at.fake.cancels.length === cancels;
    });
    assert.ok(kept, "cancelled, or another server");
  }
});

test("what a reset answers reaches nobody, in whatever pieces it comes", async () => {
  const at = place("pieces", "session");
  let cut = 0;
  let length = 1;
  at.fake.options = {
    onMessage: async (session, asked) => {
      if (sqlOf(asked) !== "WIPE") return session.answer(asked);
      const bytes = concatBytes(session.oneRow("of the reset"), readyForQuery("I"));
      length = bytes.length;
      await session.sendCut(bytes, [cut]);
    },
  };
  const isIdle = async () => (await poolRow(pooler, at.database, at.user))["sv_idle"] === "1";
  for (; cut < length; cut++) {
    const client = await open(pooler, at);
    assert.is(await ask(client, [f.Q("good")]), good, `cut at ${cut}`);
    await client.end();
    await until("the reset to end", isIdle);
  }
  assert.is(at.fake.sessions.length, 1);
});

test("a client that leaves while its settings are being set costs nothing", async () => {
  for (const mode of modes) {
    const at = place("settings", mode);
    let finish: (() => void) | null = null;
    let slow = false;
    at.fake.options = {
      onMessage: async (session, asked) => {
        const zone = /^(?:RE)?SET .*TimeZone[^']*(?:'(.*)')?$/i.exec(sqlOf(asked));
        if (zone === null) return session.answer(asked);
        if (slow) await new Promise<void>((resolve) => finish = resolve);
        session.send(
          parameterStatus("TimeZone", zone[1] ?? "UTC"),
          commandComplete("SET"),
          readyForQuery("I"),
        );
      },
    };
    const leaveAtSet = async (client: RawClient) => {
      const go = await until("the SET to be there", () => finish);
      await nextIsServed(at, () => {
        client.reset();
        slow = false;
        finish = null;
        go();
      });
    };
    const { user, database } = at;
    // A value that was tried out is known from then on.
    let tries = 0;
    const kept = await isKept(async () => {
      const TimeZone = `Known/${tries++}`;
      const warm = await open(pooler, at);
      assert.is(await ask(warm, [f.Q("good")]), good);
      await warm.end();
      const sessions = at.fake.sessions.length;
      // While it is tried out whether a server takes what a login asks for.
      slow = true;
      const trying = await RawClient.connect(pooler);
      trying.startup({ user, database, TimeZone });
      await leaveAtSet(trying);
      // And in front of a query.
      const asking = await open(pooler, { user, database, parameters: { TimeZone } });
      const other = await open(pooler, at);
      assert.is(await ask(other, [f.Q("good")]), good);
      await other.end();
      slow = true;
      asking.send(f.Q("good"));
      await leaveAtSet(asking);
      return at.fake.sessions.length === sessions;
    });
    assert.ok(kept, "another server");
  }
});

test("the pooler is well after all this", () => {
  assert.is(pooler.end, null);
  assert.not.match(pooler.log(), /\] (ERROR|FATAL) |at .*\.ts:\d+/);
});

test.run();
