// What LISTEN and UNLISTEN have come to at the end of a transaction: what was announced, what was done, what was
// rolled back, and what has to wait meanwhile.

import { ListenState } from "../../services/pooler/plane/listen_state.ts";
import { SqlFlag } from "../../shared/wire/mod.ts";
import { assert, suite } from "../support/harness.ts";

const test = suite("listen state");
const { listens, unlistens } = SqlFlag;

/** A state in which a text with UNLISTENs of these channels was sent, alone. */
function unlistening(...channels: string[]): ListenState {
  const state = new ListenState();
  state.expect(unlistens, channels, 0);
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
  error.onRollback();
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
  state.expect(unlistens, ["a", "b"], 0);
  state.expect(unlistens, ["c"], 1);
  state.onUnlisten();
  state.onRollback();
  state.endCycle(true, false);
  state.onUnlisten();
  state.endCycle(true, true);
  assert.equal(state.takeGone(), ["c"]);
});

test("a tag without a text that was read says nothing", () => {
  const state = new ListenState();
  state.onUnlisten();
  state.expect(unlistens, ["a"], 1);
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

test("forget() drops what was the client's, not what its last request may still do", () => {
  const state = new ListenState();
  state.expect(listens | unlistens, ["a", "b"], 0);
  state.onUnlisten();
  state.forget();
  state.onUnlisten();
  state.onListen();
  state.endCycle(true, true);
  assert.is(state.listening, true);
  assert.equal(state.takeGone(), []);
});

test.run();
