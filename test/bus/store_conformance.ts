// What a store promises, whoever keeps it: two clients of one store, and what each sees of what the
// other does. Adds its tests to one suite and runs it.

import { Buffer } from "node:buffer";
import { BusError, maxKeyCharacters, maxValueBytes, type Store } from "../../shared/bus/mod.ts";
import { assert, seededRandom, suite } from "../support/harness.ts";

export interface StorePair {
  readonly one: Store;
  readonly two: Store;
  close(): Promise<void>;
}

function bytes(text: string): Uint8Array {
  return new Uint8Array(Buffer.from(text));
}

export function text(value: Uint8Array | undefined): string {
  return Buffer.from(value ?? []).toString();
}

async function valueOf(store: Store, key: string): Promise<string | null> {
  const found = await store.get(key);
  return found === null ? null : text(found.value);
}

async function keysOf(store: Store, prefix: string): Promise<string[]> {
  return (await store.list(prefix)).map(({ key }) => key);
}

async function isInvalid(promise: Promise<unknown>): Promise<boolean> {
  try {
    await promise;
    return false;
  } catch (error) {
    return error instanceof BusError && error.code === "INVALID";
  }
}

export function storeConformance(name: string, open: () => Promise<StorePair>): void {
  const test = suite(name);
  let one: Store;
  let two: Store;
  let close = (): Promise<void> => Promise.resolve();

  test.before(async () => {
    const pair = await open();
    ({ one, two } = pair);
    close = () => pair.close();
  });
  test.after(() => close());

  test("create() makes what is not there, and what it made is there for all", async () => {
    assert.is(await one.get("make"), null);
    const value = bytes("first");
    const revision = await one.create("make", value);
    assert.ok(Number.isSafeInteger(revision) && revision !== null && revision > 0);
    value.fill(0);
    for (const store of [one, two]) {
      assert.equal(await store.get("make"), { value: bytes("first"), revision });
      assert.is(await store.create("make", bytes("second")), null);
    }
    assert.is(await valueOf(two, "make"), "first");
    assert.ok(await two.create("empty", new Uint8Array(0)));
    assert.is(await valueOf(one, "empty"), "");
  });

  test("create() of one key by two at the same time is done once", async () => {
    for (let round = 0; round < 30; round += 1) {
      const key = `race.${round}`;
      const made = await Promise.all([
        one.create(key, bytes("one")),
        two.create(key, bytes("two")),
      ]);
      const winners = made.filter((revision) => revision !== null);
      assert.is(winners.length, 1, key);
      const found = await one.get(key);
      assert.is(found?.revision, winners[0]);
      assert.is(text(found?.value), made[0] === null ? "two" : "one");
    }
  });

  test("update() replaces the revision it was given and no other", async () => {
    const first = await one.create("change", bytes("1"));
    const second = await two.update("change", bytes("2"), first!);
    assert.ok(second! > first!);
    assert.is(await one.update("change", bytes("lost"), first!), null);
    assert.is(await valueOf(one, "change"), "2");
    assert.is(await one.update("never", bytes("x"), 1), null);
    assert.is(await one.update("never", bytes("x"), 0), null);
    assert.is(await one.get("never"), null);
  });

  test("update() by two who count up loses no step", async () => {
    await one.create("count", bytes("0"));
    const countUp = async (store: Store): Promise<void> => {
      for (let done = 0; done < 40;) {
        const { value, revision } = (await store.get("count"))!;
        const next = bytes(String(Number(text(value)) + 1));
        if (await store.update("count", next, revision) !== null) done += 1;
      }
    };
    await Promise.all([countUp(one), countUp(two)]);
    assert.is(await valueOf(one, "count"), "80");
  });

  test("remove() takes away the revision it was given, and create() makes the key anew", async () => {
    const first = (await one.create("go", bytes("1")))!;
    const second = (await one.update("go", bytes("2"), first))!;
    assert.is(await two.remove("go", first), false);
    assert.is(await valueOf(two, "go"), "2");
    assert.is(await two.remove("go", second), true);
    assert.is(await one.get("go"), null);
    assert.is(await one.remove("go", second), false);
    assert.is(await one.remove("go"), false);
    assert.is(await one.update("go", bytes("3"), second), null);
    const third = (await one.create("go", bytes("3")))!;
    assert.ok(third > second);
    assert.is(await one.update("go", bytes("4"), second), null);
    assert.is(await two.remove("go"), true);
    assert.equal(await keysOf(one, "go"), []);
  });

  test("list() gives the keys with a prefix, sorted, with what they hold", async () => {
    for (const key of ["l.b", "l.a", "l.a.c", "l", "la", "m.a"]) await one.create(key, bytes(key));
    await two.update("l.a", bytes("changed"), (await two.get("l.a"))!.revision);
    assert.equal(await keysOf(one, "l"), ["l", "l.a", "l.a.c", "l.b", "la"]);
    assert.equal(await keysOf(two, "l."), ["l.a", "l.a.c", "l.b"]);
    assert.equal(await keysOf(one, "l.a"), ["l.a", "l.a.c"]);
    assert.equal(await keysOf(one, "nothing."), []);
    assert.ok((await keysOf(two, "")).includes("m.a"));
    const [entry] = await two.list("l.a");
    assert.equal(entry, { key: "l.a", ...await one.get("l.a") });
    assert.is(text(entry?.value), "changed");
  });

  test("list() gives all of many keys and of large ones", async () => {
    const keys = Array.from({ length: 1300 }, (_, at) => `many.${String(at).padStart(4, "0")}`);
    for (let at = 0; at < keys.length; at += 100) {
      await Promise.all(keys.slice(at, at + 100).map((key) => one.create(key, bytes(key))));
    }
    assert.equal(await keysOf(two, "many."), keys);
    const large = new Uint8Array(maxValueBytes).map((_, at) => at % 251);
    for (const key of ["large.a", "large.b", "large.c"]) assert.ok(await two.create(key, large));
    const found = await one.list("large.");
    assert.equal(found.map(({ key }) => key), ["large.a", "large.b", "large.c"]);
    for (const { value } of found) assert.is(Buffer.compare(value, large), 0);
  });

  test("what is no key, or too much, is refused before anything is done", async () => {
    const bad = ["", ".", "a.", ".a", "a..b", "a b", "a*", ">", "é", "a\n", "x".repeat(257)];
    for (const key of bad) {
      assert.ok(await isInvalid(one.get(key)), key);
      assert.ok(await isInvalid(one.create(key, bytes("x"))), key);
      assert.ok(await isInvalid(one.update(key, bytes("x"), 1)), key);
      assert.ok(await isInvalid(one.remove(key)), key);
    }
    for (const prefix of [".", "a..", "a*", "a b"]) {
      assert.ok(await isInvalid(one.list(prefix)), prefix);
    }
    const longest = "k".repeat(maxKeyCharacters);
    assert.ok(await isInvalid(one.create("big", new Uint8Array(maxValueBytes + 1))));
    assert.is(await one.get("big"), null);
    assert.ok(await one.create(longest, bytes("x")));
    assert.is(await two.remove(longest), true);
  });

  test("any sequence of operations does what a map would", async () => {
    const seed = Date.now() >>> 0;
    const random = seededRandom(seed);
    const pick = <T>(all: readonly T[]): T => all[Math.floor(random() * all.length)]!;
    const model = new Map<string, { value: string; revision: number }>();
    /** All that a key ever had. */
    const revisions = new Map<string, number[]>();
    let highest = 0;
    for (let step = 0; step < 400; step += 1) {
      const what = `seed ${seed}, step ${step}`;
      const store = pick([one, two]);
      const key = `model.${pick(["a", "b", "c", "c.d"])}`;
      const value = `${step}`;
      const known = model.get(key);
      const had = revisions.get(key) ?? [];
      const revision = (random() < 0.7 ? had.at(-1) : pick(had)) ?? 0;
      const operation = pick(["get", "create", "update", "remove", "list"] as const);
      if (operation === "get") {
        assert.is(await valueOf(store, key), known?.value ?? null, what);
      } else if (operation === "list") {
        assert.equal(await keysOf(store, "model."), [...model.keys()].sort(), what);
      } else if (operation === "remove") {
        const done = await store.remove(key, revision);
        assert.is(done, known !== undefined && known.revision === revision, what);
        if (done) model.delete(key);
      } else {
        const wins = operation === "create" ? known === undefined : known?.revision === revision;
        const written = operation === "create"
          ? await store.create(key, bytes(value))
          : await store.update(key, bytes(value), revision);
        assert.is(written !== null, wins, what);
        if (written === null) continue;
        assert.ok(written > highest, what);
        highest = written;
        revisions.set(key, [...had, written]);
        model.set(key, { value, revision: written });
      }
    }
  });

  test.run();
}
