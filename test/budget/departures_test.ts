// Workers that ended or are silent, with the ledger and the saved charges they are freed in, and a PostgreSQL
// that answers late.

import { ChargeBook } from "../../services/budget/charge_book.ts";
import { Departures } from "../../services/budget/departures.ts";
import { Sightings } from "../../services/budget/sightings.ts";
import type { Presence } from "../../shared/bus/mod.ts";
import { loadConfig } from "../../shared/config/mod.ts";
import { directLeaf, leafRules, Ledger, poolLeaf } from "../../shared/ledger/mod.ts";
import type { Logger } from "../../shared/telemetry/mod.ts";
import { commandComplete, readyForQuery } from "../../shared/wire/mod.ts";
import { type FakePostgres, queryText, startFakePostgres } from "../support/fake_postgres.ts";
import { assert, suite, until } from "../support/harness.ts";
import { TestStore } from "./test_store.ts";

const tests = suite("departures");
const pool = poolLeaf("shop", "app");
const leaseMs = 1000;

class Scene {
  now = 0;
  readonly lines: string[] = [];
  readonly sightings = new Sightings();
  readonly ledger: Ledger;
  readonly book: ChargeBook;
  readonly departures: Departures;
  #seq = 0;

  constructor(settings: readonly string[] = [], port = 1) {
    const lines = [
      "[databases]",
      `shop = host=127.0.0.1 port=${port}`,
      "[pgbouncer]",
      "pool_mode = transaction",
      "default_pool_size = 10",
      ...settings,
      "",
    ];
    const { config } = loadConfig("f.ini", () => lines.join("\n"));
    if (config === null) throw new Error("the test's configuration has problems");
    const clock = () => this.now;
    const { sightings } = this;
    this.ledger = new Ledger({
      epoch: 1,
      rules: leafRules(config),
      leaseMs,
      silentMs: 3000,
      now: 0,
    });
    this.book = new ChargeBook({
      store: new TestStore(),
      epoch: 1,
      name: "leader",
      clock,
      confirm: () => Promise.resolve(true),
      placeOf: () => null,
      onConflict: () => {},
      onTrouble: () => {},
      pause: () => Promise.resolve(),
    });
    const { ledger, book } = this;
    const parts = { ledger, book, sightings, clock, logger: loggerTo(this.lines) };
    this.departures = new Departures(parts, config);
  }

  get charged(): number {
    return [...this.ledger.accounts()].find(({ name }) => name === pool)?.charged ?? 0;
  }

  /** A worker says that it holds so many, and what is decided is saved. */
  report(worker: number, held: number, leaf = pool): void {
    const granted = held;
    const leaves = [{
      leaf,
      held,
      wanted: held,
      granted,
      ack: 0,
      idleMs: 0,
      asks: false,
      busyMs: 0,
    }];
    this.ledger.report({ worker, incarnation: 1, epoch: 1, seq: ++this.#seq, leaves }, this.now);
    for (const { save } of this.ledger.decide(this.now)) {
      if (save !== null) this.book.post(worker, 1, save, () => {});
    }
    for (const { save } of this.ledger.unsaved(this.now)) this.book.post(worker, 1, save, null);
  }

  present(id: number, boot: string): void {
    this.sightings.onPresence(
      {
        id,
        incarnation: 1,
        host: "web",
        boot,
        pid: id,
        state: "ready",
        addresses: [],
        clients: 0,
        servers: 0,
        configMark: "",
        runtime: "",
      } satisfies Presence,
      this.now,
    );
  }

  tick(): void {
    this.ledger.decide(this.now);
    this.departures.tick(this.now);
  }
}

function loggerTo(lines: string[]): Logger {
  const at = (level: string) => (text: string) => void lines.push(`${level} ${text}`);
  const levels = ["debug", "info", "warning", "error", "fatal"];
  return Object.fromEntries(levels.map((level) => [level, at(level)])) as unknown as Logger;
}

/** Shows no backends, and that not before `answer` is called. */
async function startSlowPostgres(): Promise<{ server: FakePostgres; answer: (() => void) | null }> {
  const slow: { server: FakePostgres; answer: (() => void) | null } = {
    answer: null,
    server: await startFakePostgres({
      onMessage: (session, message) => {
        if (!queryText(message).includes("pg_stat_activity")) return session.answer(message);
        slow.answer = () => session.send(commandComplete("SELECT 0"), readyForQuery("I"));
      },
    }),
  };
  return slow;
}

// A worker came back while PostgreSQL was being asked. What it showed, from before, was taken for what the worker
// held when the answer came, seconds later.
tests("what PostgreSQL shows is of the moment it was asked, not of the answer", async () => {
  const slow = await startSlowPostgres();
  try {
    const auth = ["budget_auth = user=auditor dbname=postgres"];
    const scene = new Scene(auth, slow.server.port);
    // Of many a worker keeps little without contact.
    // The login is tried first, by the same question.
    await until("the trial", () => slow.answer !== null);
    slow.answer!();
    slow.answer = null;
    for (const worker of [2, 3, 4, 5, 1]) scene.report(worker, worker === 1 ? 6 : 0);
    await until("the save", () => scene.book.chargesOf(1, 1).size > 0);
    scene.now = 10_000;
    scene.tick();
    await until("the question", () => slow.answer !== null);
    scene.now = 10_100;
    scene.report(1, 6);
    const { charged } = scene;
    assert.ok(charged >= 6);
    scene.now = 13_900;
    slow.answer!();
    slow.answer = null;
    // The next look begins after what the first one found was dealt with.
    await until("the next look", () => {
      scene.now += 1000;
      scene.tick();
      return slow.answer !== null || scene.charged !== charged;
    });
    assert.is(scene.charged, charged);
    await until("what is shown of one that is silent", () => {
      slow.answer?.();
      slow.answer = null;
      scene.now += 1000;
      scene.tick();
      return scene.charged < 6;
    });
    scene.departures.close();
  } finally {
    await slow.server.stop();
  }
});

tests(
  "a worker that ended is charged its direct connections for a moment, be there a limit or none",
  async () => {
    for (const settings of [["max_db_connections = 10"], []]) {
      const scene = new Scene(settings);
      scene.report(1, 2, directLeaf("shop", "app"));
      await until("the save", () => scene.book.chargesOf(1, 1).size > 0);
      assert.is(await scene.departures.note(1, 1, "the test says so"), true);
      scene.now = 900;
      scene.tick();
      assert.is(scene.departures.has({ worker: 1, incarnation: 1 }), true);
      scene.now = 1000;
      scene.tick();
      assert.is(scene.departures.has({ worker: 1, incarnation: 1 }), false);
      assert.equal([...scene.ledger.workers()], []);
    }
  },
);

tests("tick() frees the workers of an earlier boot, and says nothing else", async () => {
  const scene = new Scene();
  scene.present(1, "first");
  scene.report(1, 4);
  scene.now = 2000;
  scene.present(2, "second");
  scene.tick();
  scene.now = 70_000;
  scene.present(2, "second");
  scene.tick();
  await until("its end", () => scene.departures.has({ worker: 1, incarnation: 1 }));
  scene.now = 72_000;
  scene.tick();
  assert.is(scene.charged, 0);
  assert.equal(scene.lines, ["info worker is gone"]);
});

tests("tick() frees nobody where two machines have one name, and says so once a minute", () => {
  const scene = new Scene();
  scene.report(1, 4);
  const { charged } = scene;
  for (; scene.now < 150_000; scene.now += 1000) {
    if (scene.now < 100_000) scene.present(1, "one");
    scene.present(2, "two");
    scene.tick();
  }
  assert.is(scene.charged, charged);
  assert.is(scene.lines.length, 3);
  for (const line of scene.lines) {
    assert.match(line, /^error tell the starts of host "web" apart: 2 /);
  }
});

tests.run();
