// When a pool tries to log in again after a failure, and what clients are told meanwhile: with a clock and a source
// of chance of the tests' own.

import {
  kindOf,
  LoginRetry,
  retryPauseMs,
  verdictOf,
  withHint,
} from "../../services/pooler/plane/login_retry.ts";
import { assert, seededRandom, suite } from "../support/harness.ts";

const test = suite("retries of failed logins");
const password = { code: "28P01", message: 'password authentication failed for user "app"' };
const unreachable = { code: "08001", message: "connect failed: Connection refused" };
const starting = { code: "57P03", message: "the database system is starting up" };

test("verdictOf() tells who waits in vain", () => {
  const rows: readonly (readonly [string, string])[] = [
    ["28P01", "refused"],
    ["28000", "refused"],
    ["3D000", "refused"],
    ["42704", "refused"],
    ["22023", "refused"],
    ["0A000", "refused"],
    ["57P04", "refused"],
    ["55000", "refused"],
    ["XX000", "refused"],
    ["57P01", "later"],
    ["57P02", "later"],
    ["57P03", "later"],
    ["53300", "later"],
    ["53200", "later"],
    ["58000", "later"],
    ["58P01", "later"],
    ["08001", "unreachable"],
    ["08006", "unreachable"],
    ["08P01", "unreachable"],
  ];
  for (const [code, verdict] of rows) assert.is(verdictOf(code), verdict, code);
});

test("retryPauseMs() doubles up to the longest, and is drawn from the upper half", () => {
  const rows: readonly (readonly [number, number, number])[] = [
    // failures, shortest, longest
    [1, 25, 50],
    [2, 50, 100],
    [3, 100, 200],
    [8, 3200, 6400],
    [9, 6400, 12_800],
    [10, 7500, 15_000],
    [1_000_000, 7500, 15_000],
  ];
  for (const [failures, shortest, longest] of rows) {
    assert.is(retryPauseMs(15_000, failures, 0), shortest);
    assert.ok(retryPauseMs(15_000, failures, 0.999) <= longest);
    assert.ok(retryPauseMs(15_000, failures, 0.999) > longest * 0.99);
  }
  assert.is(retryPauseMs(0, 5, 0.5), 0);
});

test("a pool works, pauses after a failure, probes with one login, and works at once again", () => {
  const retry = new LoginRetry(() => 0);
  assert.is(retry.allowed(0), Infinity);
  retry.fail(unreachable, 1000, 15_000);
  assert.equal([1000, 1024, 1025, 9999].map((now) => retry.allowed(now)), [0, 0, 1, 1]);
  retry.fail(unreachable, 1025, 15_000);
  assert.equal([1025, 1074, 1075].map((now) => retry.allowed(now)), [0, 0, 1]);
  retry.succeed();
  assert.is(retry.failure, null);
  assert.is(retry.allowed(1076), Infinity);
  // And has forgotten how often it failed.
  retry.fail(unreachable, 2000, 15_000);
  assert.equal([2024, 2025].map((now) => retry.allowed(now)), [0, 1]);
});

test("attempts that were under way together are one failure", () => {
  const retry = new LoginRetry(() => 0);
  for (let i = 0; i < 20; i++) retry.fail(unreachable, 1000 + i, 15_000);
  assert.equal([1024, 1025].map((now) => retry.allowed(now)), [0, 1]);
  // The last word counts.
  retry.fail(password, 1024, 15_000);
  assert.is(retry.failure, password);
});

test("refusal() lets clients wait for what may come, and not for what won't", () => {
  const cached = (failure: typeof password, since: number, now: number) => {
    const retry = new LoginRetry(() => 0.999);
    let at = since;
    for (; at < now; at += 10_000) retry.fail(failure, at, 15_000);
    retry.fail(failure, now, 15_000);
    return retry.refusal(now, 15_000)?.message ?? null;
  };
  const says = (message: string) =>
    `server login has been failing, cached error: ${message} (server_login_retry)`;
  assert.is(cached(password, 0, 0), says(password.message));
  assert.is(cached(unreachable, 0, 0), null);
  assert.is(cached(unreachable, 0, 14_999), null);
  assert.is(cached(unreachable, 0, 15_000), says(unreachable.message));
  assert.is(cached(starting, 0, 0), null);
  assert.is(cached(starting, 0, 600_000), null);
});

test("kindOf() tells strangers no more than what kind of failure it is", () => {
  const rows: readonly (readonly [string, string])[] = [
    [unreachable.message, "connect failed"],
    [`server login has been failing, cached error: ${unreachable.message}`, "connect failed"],
    ["connect timeout", "connect timeout"],
    ["server DNS lookup failed: no such host db-7", "server DNS lookup failed"],
    [password.message, "login failed"],
    ["", "login failed"],
  ];
  for (const [message, kind] of rows) assert.is(kindOf(message), kind, message);
});

test("refusal() keeps the code, and is over when the next attempt is due", () => {
  const retry = new LoginRetry(() => 0);
  assert.is(retry.refusal(0, 15_000), null);
  retry.fail(password, 0, 15_000);
  assert.is(retry.refusal(24, 15_000)?.code, "28P01");
  assert.is(retry.refusal(25, 15_000), null);
});

test("withHint() leaves PostgreSQL's own hint, and gives one where there is none", () => {
  assert.is(withHint({ ...password, hint: "Ask Mary" }).hint, "Ask Mary");
  const rows: readonly (readonly [string, RegExp])[] = [
    ["28P01", /pg_hba\.conf/],
    ["3D000", /dbname/],
    ["42704", /^PostgreSQL refuses/],
    ["57P03", /tries again/],
    ["08001", /tries again/],
  ];
  for (const [code, wanted] of rows) {
    const told = withHint({ code, message: "so it is" });
    assert.equal([told.code, told.message], [code, "so it is"]);
    assert.match(told.hint ?? "", wanted);
  }
});

// A hundred workers lost the same PostgreSQL in the same moment: they should not knock in the same moment.
test("workers that failed together do not come back together", () => {
  const random = seededRandom(7);
  const workers = Array.from({ length: 100 }, () => new LoginRetry(random));
  const due = workers.map((retry) => {
    let now = 0;
    for (let i = 0; i < 12; i++) {
      retry.fail(unreachable, now, 15_000);
      while (retry.allowed(now) === 0) now += 5;
    }
    return now;
  });
  // Of the seconds from the first to the last none has a tenth of them.
  const perSecond = new Map<number, number>();
  for (const at of due) {
    const second = Math.floor(at / 1000);
    perSecond.set(second, (perSecond.get(second) ?? 0) + 1);
  }
  assert.ok(Math.max(...perSecond.values()) <= 15, JSON.stringify([...perSecond]));
});

test.run();
