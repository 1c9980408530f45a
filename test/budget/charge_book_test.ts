// The saved charges over a store whose answers can be late or lost, and with a second leader that takes
// over in the middle.

import { ChargeBook } from "../../services/budget/charge_book.ts";
import { BusError } from "../../shared/bus/mod.ts";
import { chargesKey, decodeCharges, encodeCharges } from "../../services/budget/saved_charges.ts";
import { assert, seededRandom, suite, until } from "../support/harness.ts";
import { type Fate, TestStore } from "./test_store.ts";

const tests = suite("charge book");

function chargesOf(charge: number, floor = 1) {
  return new Map([["pool:shop/app", { charge, floor }]]);
}

function openBook(
  store: TestStore,
  epoch: number,
  isLeading: () => boolean = () => true,
  clock: () => number = () => 0,
) {
  const conflicts: string[] = [];
  const troubles: string[] = [];
  const confirms: number[] = [];
  const book = new ChargeBook({
    store,
    epoch,
    name: `leader-${epoch}`,
    confirm: () => {
      confirms.push(store.log.length);
      if (!isLeading()) book.close();
      return Promise.resolve(isLeading());
    },
    placeOf: () => ({ host: "a", boot: "b" }),
    clock,
    onConflict: (what) => conflicts.push(what),
    onTrouble: (error) => troubles.push(error.message),
    pause: () => new Promise((resolve) => setTimeout(resolve, 1)),
  });
  return { book, conflicts, troubles, confirms };
}

function savedCharge(store: TestStore, worker = 7): number | null {
  const key = chargesKey(worker, 1);
  const stored = store.values.get(key);
  if (stored === undefined) return null;
  return decodeCharges(key, stored.value)!.saved.charges.get("pool:shop/app")?.charge ?? 0;
}

function savedGone(store: TestStore, worker = 7): boolean | null {
  const key = chargesKey(worker, 1);
  const stored = store.values.get(key);
  return stored === undefined ? null : decodeCharges(key, stored.value)!.saved.gone;
}

tests(
  "post() sends a grant after its charges are saved, and the term was confirmed for a new key",
  async () => {
    const store = new TestStore();
    const { book, confirms } = openBook(store, 1);
    let charge: number | null = null;
    book.post(7, 1, chargesOf(3), () => charge = savedCharge(store));
    assert.is(charge, null);
    await until("the grant", () => charge !== null);
    assert.is(charge, 3);
    assert.equal(confirms, [1]);
    book.post(7, 1, chargesOf(4), () => charge = savedCharge(store));
    await until("the next grant", () => charge === 4);
    assert.equal(confirms, [1], "a key that is known needs no confirmation");
  },
);

tests("restore() writes again what the store has lost, and leaves alone what it has", async () => {
  const store = new TestStore();
  const first = openBook(store, 1).book;
  first.post(7, 1, chargesOf(3), () => {});
  first.post(8, 1, chargesOf(4), () => {});
  await until("both saved", () => savedCharge(store, 7) === 3 && savedCharge(store, 8) === 4);
  first.close();
  store.values.clear();
  openBook(store, 2).book.post(8, 1, chargesOf(9), () => {});
  await until("one of another leader", () => savedCharge(store, 8) === 9);
  const { book } = openBook(store, 3);
  let fails = true;
  store.fate = (operation) => operation === "create" && (fails = !fails) ? "untold" : "done";
  const { saved } = await book.restore(first.all());
  assert.equal(saved.map(({ worker, charges }) => [worker, charges]), [
    [7, chargesOf(3)],
    [8, chargesOf(9)],
  ]);
  assert.equal(book.all().length, 2);
});

tests(
  "restore() takes the higher of what is saved and what is remembered, but of no one that is gone",
  async () => {
    const store = new TestStore();
    const first = openBook(store, 1).book;
    for (const worker of [7, 8, 9]) first.post(worker, 1, chargesOf(3), () => {});
    await until("all saved", () => [7, 8, 9].every((worker) => savedCharge(store, worker) === 3));
    const then = new Map(store.values);
    first.post(7, 1, chargesOf(5, 2), () => {});
    await until("the raise", () => savedCharge(store, 7) === 5);
    assert.is(await first.markGone(8, 1), true);
    const remembered = first.all();
    first.close();
    store.rewind(then);
    // Of this one only the note is left.
    const other = openBook(store, 1).book;
    await other.restore();
    await other.markGone(9, 1);
    other.remove(9, 1);
    await until("the note", () => savedCharge(store, 9) === 0);
    other.close();
    const { saved } = await openBook(store, 2).book.restore(remembered);
    assert.equal(saved.map(({ worker, charges, gone }) => [worker, charges, gone]), [
      [7, chargesOf(5, 2), false],
      [8, chargesOf(3), true],
      [9, new Map(), true],
    ]);
    assert.equal([7, 8, 9].map((worker) => savedCharge(store, worker)), [5, 3, 0]);
  },
);

tests("post() sends at once what needs no saving", () => {
  const { book } = openBook(new TestStore(), 1);
  let sent = 0;
  book.post(7, 1, null, () => sent++);
  book.post(7, 1, new Map(), () => sent++);
  assert.is(sent, 2);
});

tests("post() keeps a grant that needs no saving behind one that does", async () => {
  const store = new TestStore();
  const { book } = openBook(store, 1);
  const sent: string[] = [];
  book.post(7, 1, chargesOf(3), () => sent.push("first"));
  book.post(7, 1, null, () => sent.push("second"));
  assert.equal(sent, []);
  await until("both grants", () => sent.length === 2);
  assert.equal(sent, ["first", "second"]);
});

tests("post() writes different workers' charges at once, and gathers those of one", async () => {
  const store = new TestStore();
  const { book } = openBook(store, 1);
  const held: (() => void)[] = [];
  store.fate = () => new Promise((resolve) => held.push(() => resolve("done")));
  let sent = 0;
  for (let worker = 1; worker <= 50; worker++) {
    for (const charge of [1, 2, 3]) book.post(worker, 1, chargesOf(charge), () => sent++);
  }
  await until("50 writes under way", () => held.length === 50);
  store.fate = () => "done";
  for (const release of held) release();
  await until("all grants", () => sent === 150);
  assert.is(store.log.length, 100, "one for the first charge and one for the others");
});

tests(
  "post() without a grant drops those that wait: what they give may be charged no more",
  async () => {
    const store = new TestStore();
    const { book } = openBook(store, 1);
    let sent = 0;
    book.post(7, 1, chargesOf(9), () => sent++);
    book.post(7, 1, chargesOf(2), null);
    await until("the lower charge", () => savedCharge(store) === 2);
    book.post(7, 1, null, () => sent += 100);
    assert.is(sent, 100);
  },
);

tests("a save whose answer was lost is found by reading the key, and is not repeated", async () => {
  const store = new TestStore();
  const { book, troubles, conflicts } = openBook(store, 1);
  let fates: Fate[] = ["untold"];
  store.fate = () => fates.shift() ?? "done";
  let sent = 0;
  book.post(7, 1, chargesOf(3), () => sent++);
  await until("the grant", () => sent === 1);
  assert.equal(store.log, ["create charges.7.1", "get charges.7.1"]);
  fates = ["lost"];
  book.post(7, 1, chargesOf(4), () => sent++);
  await until("the grant", () => sent === 2);
  assert.is(savedCharge(store), 4);
  assert.is(troubles.length, 2);
  assert.equal(conflicts, []);
});

tests(
  "restore() rewrites what it finds: the leader before can raise nothing any more",
  async () => {
    const store = new TestStore();
    const old = openBook(store, 1);
    let sent = 0;
    old.book.post(7, 1, chargesOf(3), () => sent++);
    await until("the grant", () => sent === 1);
    const next = openBook(store, 2);
    const { saved } = await next.book.restore();
    assert.equal(
      saved.map(({ worker, charges }) => [worker, charges.get("pool:shop/app")?.charge]),
      [
        [7, 3],
      ],
    );
    assert.equal(saved[0]!.place, { host: "a", boot: "b" });
    old.book.post(7, 1, chargesOf(9), () => sent++);
    await until("the conflict", () => old.conflicts.length === 1);
    assert.equal([sent, savedCharge(store)], [1, 3]);
  },
);

tests("restore() sees a write of the leader before that came in between", async () => {
  const store = new TestStore();
  const old = openBook(store, 1);
  old.book.post(7, 1, chargesOf(3), () => {});
  await until("the save", () => savedCharge(store) === 3);
  const next = openBook(store, 2);
  store.fate = async (operation): Promise<Fate> => {
    if (operation !== "list") return "done";
    store.fate = () => "done";
    // After the list was read, before the key is rewritten.
    queueMicrotask(() => old.book.post(7, 1, chargesOf(5), () => {}));
    await Promise.resolve();
    return "done";
  };
  const { saved } = await next.book.restore();
  const charge = saved[0]!.charges.get("pool:shop/app")!.charge;
  assert.is(charge, savedCharge(store));
});

tests("a new key whose term turns out to be over grants nothing and is taken back", async () => {
  const store = new TestStore();
  const { book } = openBook(store, 1, () => false);
  let sent = 0;
  book.post(7, 1, chargesOf(3), () => sent++);
  await until("the key to be removed", () => store.log.includes("remove charges.7.1"));
  await until("nothing to be left", () => store.values.size === 0);
  assert.is(sent, 0);
});

tests("restore() leaves alone what it cannot read, and names it", async () => {
  const store = new TestStore();
  await store.create("charges.7.1", new Uint8Array([0xc1]));
  await store.create("charges.8.1", new TextEncoder().encode("?"));
  const { saved, unreadable } = await openBook(store, 1).book.restore();
  assert.equal([saved, unreadable], [[], ["charges.7.1", "charges.8.1"]]);
  assert.is(store.values.size, 2);
});

tests("restore() asks until there is an answer", async () => {
  const store = new TestStore();
  let failures = 3;
  store.fate = () => failures-- > 0 ? "lost" : "done";
  const { saved } = await openBook(store, 1).book.restore();
  assert.equal(saved, []);
});

tests(
  "markGone() is told to the next leader; remove() leaves the note of it for a while",
  async () => {
    const store = new TestStore();
    const first = openBook(store, 1);
    first.book.post(7, 1, chargesOf(3), () => {});
    assert.is(await first.book.markGone(7, 1), true);
    let now = 0;
    const second = openBook(store, 2, () => true, () => now);
    const { saved } = await second.book.restore();
    assert.equal(saved.map(({ worker, gone }) => [worker, gone]), [[7, true]]);
    assert.is(await second.book.markGone(7, 1), true);
    second.book.remove(7, 1);
    await until("no charge", () => savedCharge(store) === 0);
    assert.equal([savedGone(store), second.book.all()], [true, []]);
    second.book.remove(7, 1);
    now = 599_000;
    second.book.dropOldNotes();
    assert.is(savedGone(store), true);
    now = 601_000;
    second.book.dropOldNotes();
    await until("the key to be gone", () => store.values.size === 0);
    await until("the entry to be gone", () => !second.book.has(7, 1));
  },
);

// A leader was stopped before it saved the first charges of a worker, which died. The next leader had nothing of
// that worker and noted nothing; the old one woke, saved, and ended: nobody ever freed what the key charged.
tests("markGone() keeps a late first save of an earlier leader out", async () => {
  const store = new TestStore();
  let isFirst = true;
  const first = openBook(store, 1, () => isFirst);
  let wake = () => {};
  store.fate = () => new Promise((resolve) => wake = () => resolve("done"));
  let sent = 0;
  first.book.post(7, 1, chargesOf(3), () => sent++);
  store.fate = () => "done";
  isFirst = false;
  const second = openBook(store, 2);
  await second.book.restore();
  assert.is(await second.book.markGone(7, 1), true);
  second.book.remove(7, 1);
  wake();
  await until("the conflict", () => first.conflicts.length === 1);
  assert.equal([sent, savedCharge(store), savedGone(store)], [0, 0, true]);
  const { saved } = await openBook(store, 3).book.restore();
  assert.equal(saved.map(({ worker, gone, charges }) => [worker, gone, charges.size]), [
    [7, true, 0],
  ]);
});

tests("close() takes a new key back whose save was under way", async () => {
  const store = new TestStore();
  const { book } = openBook(store, 1);
  let wake = () => {};
  store.fate = () => new Promise((resolve) => wake = () => resolve("done"));
  book.post(7, 1, chargesOf(3), () => {});
  store.fate = () => "done";
  book.close();
  wake();
  await until("the removal", () => store.log.includes("remove charges.7.1"));
  await until("nothing to be left", () => store.values.size === 0);
});

tests("dropOldNotes() bounds their number: the oldest go first", async () => {
  const store = new TestStore();
  const { book } = openBook(store, 1);
  const workers = Array.from({ length: 2003 }, (_, at) => at);
  await Promise.all(workers.map((worker) => book.markGone(worker, 1)));
  book.dropOldNotes();
  await until("three to be gone", () => store.values.size === 2000);
  assert.equal([savedGone(store, 2), savedGone(store, 3)], [null, true]);
});

tests(
  "markGone() of a worker that nothing is saved of is true only while the term lasts",
  async () => {
    assert.is(await openBook(new TestStore(), 1).book.markGone(7, 1), true);
    assert.is(await openBook(new TestStore(), 1, () => false).book.markGone(7, 1), false);
  },
);

tests("markGone() is false when the book is closed before it is noted", async () => {
  const store = new TestStore();
  const { book } = openBook(store, 1);
  book.post(7, 1, chargesOf(3), () => {});
  store.fate = () => "lost";
  const noted = book.markGone(7, 1);
  book.close();
  assert.is(await noted, false);
});

tests("post() of no charges takes the key out, and a later one makes it again", async () => {
  const store = new TestStore();
  const { book, confirms } = openBook(store, 1);
  let sent = 0;
  book.post(7, 1, chargesOf(3), () => sent++);
  await until("the grant", () => sent === 1);
  book.post(7, 1, new Map(), null);
  await until("the key to be gone", () => store.values.size === 0);
  book.post(7, 1, chargesOf(2), () => sent++);
  await until("the grant", () => sent === 2);
  assert.is(savedCharge(store), 2);
  assert.is(confirms.length, 2);
});

tests("a value that no store takes grants nothing and does not end the term", async () => {
  const store = new TestStore();
  const { book, conflicts, troubles } = openBook(store, 1);
  let sent = 0;
  store.fate = () => {
    throw new BusError("INVALID", "write: value is too long");
  };
  book.post(7, 1, chargesOf(3), () => sent++);
  await until("the trouble", () => troubles.length === 1);
  assert.equal([sent, conflicts], [0, []]);
  store.fate = () => "done";
  book.post(7, 1, chargesOf(2), () => sent++);
  await until("the grants", () => sent === 2);
});

tests(
  "whatever is lost, every grant is sent, in order, and never before its charges are saved",
  async () => {
    for (let seed = 1; seed <= 20; seed++) {
      const random = seededRandom(seed);
      const store = new TestStore();
      store.fate = async () => {
        if (random() < 0.3) await Promise.resolve();
        const draw = random();
        return draw < 0.7 ? "done" : draw < 0.85 ? "untold" : "lost";
      };
      const { book, conflicts } = openBook(store, 1);
      const sent: number[] = [];
      // Charges that only rise: what is found in the store is at least what a grant needs.
      for (let charge = 1; charge <= 40; charge++) {
        book.post(7, 1, chargesOf(charge), () => {
          sent.push(charge);
          assert.ok(savedCharge(store)! >= charge, `seed ${seed}, charge ${charge}`);
        });
        if (random() < 0.5) await new Promise((resolve) => setTimeout(resolve, 0));
      }
      await until(`seed ${seed}: all grants`, () => sent.length === 40);
      assert.equal(sent, [...sent].sort((x, y) => x - y));
      assert.equal(conflicts, [], `seed ${seed}`);
    }
  },
);

tests("encodeCharges() and decodeCharges() agree, and refuse what is not theirs", () => {
  const saved = {
    worker: 7,
    incarnation: 1_700_000_000_000,
    charges: new Map([["clients", { charge: 5, floor: 0 }], [
      "pool:a%2Fb/c",
      { charge: 2, floor: 2 },
    ]]),
    place: { host: "h", boot: "x" },
    gone: true,
  };
  const writer = { epoch: 3, name: "n", write: 9 };
  const key = chargesKey(7, 1_700_000_000_000);
  const value = encodeCharges(saved, writer);
  assert.equal(decodeCharges(key, value), { saved, writer });
  const without = { ...saved, place: null, gone: false };
  assert.equal(decodeCharges(key, encodeCharges(without, writer))?.saved, without);
  assert.is(decodeCharges("charges.7", value), null);
  assert.is(decodeCharges("charges.7.1.2", value), null);
  for (let length = 0; length < value.length; length++) {
    assert.is(decodeCharges(key, value.slice(0, length)), null);
  }
});

tests.run();
