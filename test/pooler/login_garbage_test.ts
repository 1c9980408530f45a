// When many logins are worth a garbage collection: behind them, not among them, and not often.

import { LoginGarbage } from "../../services/pooler/plane/login_garbage.ts";
import { assert, suite } from "../support/harness.ts";

const test = suite("login garbage");

function logIn(garbage: LoginGarbage, count: number): void {
  for (let i = 0; i < count; i++) garbage.onLogin();
}

test("it is due when many have come, and no more come for a moment", () => {
  const garbage = new LoginGarbage();
  logIn(garbage, 999);
  assert.is(garbage.isDue(1000, 999), false);
  assert.is(garbage.isDue(9000, 999), false);
  logIn(garbage, 1);
  assert.is(garbage.isDue(9100, 1000), false);
  logIn(garbage, 1);
  assert.is(garbage.isDue(10_000, 1001), false);
  assert.is(garbage.isDue(10_200, 1001), false);
  assert.is(garbage.isDue(10_300, 1001), true);
  // And once more.
  assert.is(garbage.isDue(10_400, 1001), false);
  assert.is(garbage.isDue(10_500, 1001), true);
  assert.is(garbage.isDue(20_000, 1001), false);
});

test("the more clients there are the more logins it takes", () => {
  const garbage = new LoginGarbage();
  logIn(garbage, 4999);
  garbage.isDue(0, 20_000);
  assert.is(garbage.isDue(1000, 20_000), false);
  logIn(garbage, 1);
  garbage.isDue(1100, 20_000);
  assert.is(garbage.isDue(2000, 20_000), true);
});

test.run();
