// What LISTEN and UNLISTEN have come to at the end of a transaction: what was announced, what was done, what was
// rolled back, and what has to wait meanwhile.

import { ListenState } from "../../services/pooler/plane/listen_state.ts";
import { SqlFlag, type Step, type StepKind } from "../../shared/wire/mod.ts";
import { assert, suite } from "../support/harness.ts";

const test = suite("listen state");
const { listens, unlistens, savepoints } = SqlFlag;

/** UNLISTENs of these channels. */
function steps(...channels: string[]): Step[] {
  return channels.map((name) => ({ kind: "unlisten", name }));
}

/** A state in which a text with UNLISTENs of these channels was sent, alone. */
function unlistening(...channels: string[]): ListenState {
  const state = new ListenState();
  state.expect(unlistens, steps(...channels), 0);
  return state;
}

test("a server listens when a LISTEN that was announced is done", () => {
  const state = new ListenState();
  state.onListen();
  assert.is(state.listening, false);
  state.expect(listens, [], 0);
  assert.is(state.listening, false);
  state.onListen();
  assert.is(state.isDue, true);
  state.endCycle(true, true);
  assert.is(state.isDue, true);
  state.clear();
  assert.is(state.isDue, false);
  state.onListen();
  assert.is(state.listening, false);
});

test("what follows has to wait from the announcement until all is dealt with", () => {
  const state = new ListenState();
  assert.is(state.serial, false);
  state.expect(SqlFlag.sets, [], 0);
  assert.is(state.serial, false);
  state.expect(listens, [], 0);
  assert.is(state.serial, true);
  // It failed.
  state.endCycle(true, true);
  assert.is(state.serial, false);
  state.expect(listens, [], 0);
  state.onListen();
  // In a block.
  state.endCycle(false, true);
  assert.is(state.serial, true);
  state.clear();
  assert.is(state.serial, false);
});

test("an UNLISTEN counts at the end of its transaction", () => {
  const state = unlistening("a", "b");
  state.onUnlisten();
  state.onUnlisten();
  assert.equal(state.takeGone(), []);
  state.endCycle(false, true);
  assert.is(state.isDue, false);
  assert.is(state.serial, true);
  state.endCycle(true, true);
  assert.is(state.isDue, true);
  assert.equal(state.takeGone(), ["a", "b"]);
  assert.equal(state.takeGone(), []);
  assert.is(state.serial, false);
});

test("an UNLISTEN that was not done, or was rolled back, does not count", () => {
  const failed = unlistening("a");
  failed.endCycle(true, true);
  assert.is(failed.isDue, false);
  const error = unlistening("a");
  error.onUnlisten();
  error.onError();
  error.endCycle(true, true);
  assert.is(error.isDue, false);
  const block = unlistening("a");
  block.onUnlisten();
  block.endCycle(false, true);
  block.onRollback();
  block.endCycle(true, true);
  assert.is(block.isDue, false);
  assert.is(block.serial, false);
});

test("a rollback does not undo what was committed before it", () => {
  const state = unlistening("a");
  state.onUnlisten();
  state.endCycle(true, false);
  state.onRollback();
  state.endCycle(true, true);
  assert.equal(state.takeGone(), ["a"]);
});

test("a tag belongs to a text of its own cycle", () => {
  // The second UNLISTEN of the first query never ran, and was taken for that of the second.
  const state = new ListenState();
  state.expect(unlistens, steps("a", "b"), 0);
  state.expect(unlistens, steps("c"), 1);
  state.onUnlisten();
  state.onError();
  state.endCycle(true, false);
  state.onUnlisten();
  state.endCycle(true, true);
  assert.equal(state.takeGone(), ["c"]);
});

test("a tag without a text that was read says nothing", () => {
  const state = new ListenState();
  state.onUnlisten();
  state.expect(unlistens, steps("a"), 1);
  state.onUnlisten();
  state.endCycle(true, false);
  assert.is(state.isDue, false);
  state.onUnlisten();
  state.endCycle(true, true);
  assert.equal(state.takeGone(), ["a"]);
});

test("DISCARD ALL is UNLISTEN *", () => {
  const state = unlistening("a");
  state.onUnlisten();
  state.endCycle(true, false);
  state.onDiscard();
  assert.is(state.serial, true);
  state.endCycle(true, true);
  assert.equal(state.takeGone(), ["a", "*"]);
});

/**
 * What is gone behind a transaction. `texts`: the requests in it, each of statements that are all done: "-x" is
 * UNLISTEN x, "+x" SAVEPOINT x, "=x" RELEASE x, "<x" ROLLBACK TO x, "<" ROLLBACK, "." COMMIT, "?" one of a text that
 * was not read, "!" an error; statements behind "//" are announced and not done.
 */
function goneBehind(texts: readonly string[]): string {
  const kinds: Record<string, StepKind> = {
    "-": "unlisten",
    "+": "savepoint",
    "=": "release",
    "<": "rollback",
  };
  const state = new ListenState();
  const last = texts.length - 1;
  for (const [index, text] of texts.entries()) {
    const [done = "", undone = ""] = text.split("//");
    const words = (part: string) => part.split(" ").filter((word) => word !== "");
    const announced = words(`${done} ${undone}`).filter((word) => /^[-+=<]./.test(word));
    const flags = announced.some((word) => word[0] === "-") ? unlistens : savepoints;
    const all = announced.map((word) => ({ kind: kinds[word[0]!]!, name: word.slice(1) }));
    state.expect(flags, all, 0);
    for (const word of words(done)) {
      const sign = word.replace("?", "")[0];
      if (sign === "-") state.onUnlisten();
      else if (sign === "+") state.onSavepoint();
      else if (sign === "=") state.onRelease();
      else if (sign === "<") state.onRollback();
      else if (sign === ".") state.onCommit();
      else state.onError();
    }
    state.endCycle(index === last, true);
  }
  const gone = state.takeGone().join(" ");
  assert.is(state.serial, false);
  return gone;
}

test("what an UNLISTEN has come to is undone with the savepoint in front of it", () => {
  const rows: [texts: string[], gone: string][] = [
    [["+s -a <s", "."], ""],
    [["-a +s -b <s ."], "a"],
    [["-a", "+s", "-b", "<s", "."], "a"],
    // PostgreSQL goes on behind the savepoint, which is still there.
    [["-a +s -b <s -c <s -d ."], "a d"],
    [["+s -a =s ."], "a"],
    [["+s -a +t -b =t -c <s ."], ""],
    [["-a +s -b +t -c =t -d <s ."], "a"],
    [["-a +s -b +t -c <t -d =s ."], "a b d"],
    // Nested, and out of the inner one.
    [["-a +s -b +t -c +u -d <t -e ."], "a b e"],
    [["-a +s -b +t -c +u -d <s -e ."], "a e"],
    // Of one name twice, the latest is meant, and behind a RELEASE the one before it.
    [["-a +s -b +s -c <s ."], "a b"],
    [["-a +s -b +s -c =s -d <s ."], "a"],
    [["-a +s -b +s -c =s =s -d ."], "a b c d"],
    // In front of all UNLISTENs, seen or not.
    [["+s", "-a +t -b <s -c ."], "c"],
    [["+s", "-a +t -b =s -c", "<o -d ."], "d"],
    // Errors roll back nothing before they are answered by ROLLBACK.
    [["-a", "+s", "-b !", "<s", "."], "a"],
    [["-a", "+s", "-b !", "<"], ""],
    [["-a", "-b ! //-c", "<"], ""],
    [["-a ! //+s -b"], ""],
    // The SAVEPOINT failed.
    [["+s", "-a", "! //+s", "<s", "."], ""],
    // Several transactions.
    [["-a . -b <"], "a"],
    [["-a +s -b . !"], "a b"],
    [["-a", ". !"], "a"],
    [["-a < -b ."], "b"],
    [["-a +s < -b +s -c <s ."], "b"],
    [["-a", "+s", "< -b +s -c <s ."], "b"],
    // Texts that were not read.
    [["-a ?+s -b <s ."], ""],
    [["-a +s -b ?<"], ""],
    [["-a +s -b ?=", "-c <s ."], ""],
    [["-a +s -b <s", "?-", "."], "a"],
    [["-a", "?- +s -b", "."], ""],
    [["-a", "+s ?- -b", "."], "a b"],
  ];
  for (const [texts, gone] of rows) assert.is(goneBehind(texts), gone, texts.join(" | "));
});

test("an UNLISTEN behind the answer to DISCARD ALL counts", () => {
  const state = new ListenState();
  state.expect(unlistens, steps("a"), 1);
  state.onDiscard();
  state.endCycle(true, false);
  assert.equal(state.takeGone(), ["*"]);
  assert.is(state.serial, true);
  state.onUnlisten();
  state.endCycle(true, true);
  assert.equal(state.takeGone(), ["a"]);
});

test("forget() drops what was the client's, not what its last request may still do", () => {
  const state = new ListenState();
  state.expect(listens | unlistens, steps("a", "b"), 0);
  state.onUnlisten();
  state.forget();
  state.onUnlisten();
  state.onListen();
  state.endCycle(true, true);
  assert.is(state.listening, true);
  assert.equal(state.takeGone(), []);
});

test.run();
