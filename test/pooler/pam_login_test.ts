// In which order PAM is asked, on which thread, and what becomes of those that hang, with threads that do as they are told;
// real ones are in test/system/auth/pam_test.ts.

import { PamLogin } from "../../services/pooler/pam_login.ts";
import type { PamAnswer, PamQuestion, Thread } from "../../shared/sys/mod.ts";
import { assert, suite, until } from "../support/harness.ts";

const test = suite("PAM logins");

const question = (user: string, password = "secret"): PamQuestion => {
  return { service: "s", folder: "", user, password, host: "h" };
};

const yes: PamAnswer = { refusal: null, delayMs: 0, errors: [] };
const no: PamAnswer = { refusal: "no", delayMs: 0, errors: [] };

/** Threads that answer when they are told to; by number. */
function world(limitMs = 60_000) {
  const threads: (Thread & { asked: string[] })[] = [];
  const spawn = () => {
    const asked: string[] = [];
    const thread: Thread & { asked: string[] } = {
      asked,
      post: (message) => asked.push((message as PamQuestion).user),
      onMessage: () => {},
      onError: () => {},
      wakeFd: -1,
      terminate: () => {},
    };
    threads.push(thread);
    return thread;
  };
  const login = new PamLogin(spawn, limitMs);
  return { threads, login, asked: () => threads.map(({ asked }) => asked.join(" ")) };
}

test("one is asked for at a time, first come, first served", async () => {
  const { threads, login, asked } = world();
  const verdicts = ["a", "b", "c"].map((user) => login.check(question(user)));
  assert.equal(asked(), ["a"]);
  threads[0]!.onMessage(yes);
  assert.equal(asked(), ["a b"]);
  threads[0]!.onMessage({ ...no, errors: ["expired", "really"] });
  threads[0]!.onMessage(yes);
  assert.equal(asked(), ["a b c"]);
  assert.equal(await Promise.all(verdicts), [
    null,
    "no; pam_conversation(): PAM error: expired; pam_conversation(): PAM error: really",
    null,
  ]);
});

test("who has left is not asked for", async () => {
  const { threads, login, asked } = world();
  let isThere = true;
  const verdicts = [
    login.check(question("a")),
    login.check(question("b"), () => isThere),
    login.check(question("c")),
  ];
  isThere = false;
  threads[0]!.onMessage(yes);
  assert.equal(asked(), ["a c"]);
  threads[0]!.onMessage(yes);
  await Promise.all(verdicts);
});

test("when one hangs the others go on on another thread, and there are not too many of those", async () => {
  const { threads, login, asked } = world(20);
  const users = ["a", "b", "c", "d", "e", "f"];
  const verdicts = users.map((user) => login.check(question(user)));
  await until("all threads to hang", () => threads.length === 4);
  assert.equal(asked(), ["a", "b", "c", "d"]);
  // One comes back, answers, and goes on.
  threads[2]!.onMessage(yes);
  await until("the next one to be asked for", () => asked()[2] === "c e");
  threads[2]!.onMessage(yes);
  assert.equal(asked(), ["a", "b", "c e f", "d"]);
  for (const thread of threads) thread.onMessage(yes);
  assert.equal(await Promise.all(verdicts), users.map(() => null));
});

test("a thread that fails costs one login, and another one is started", async () => {
  const { threads, login, asked } = world();
  const verdicts = ["a", "b"].map((user) => login.check(question(user)));
  threads[0]!.onError(new Error("broken"));
  assert.equal(asked(), ["a", "b"]);
  threads[1]!.onMessage(yes);
  assert.equal(await Promise.all(verdicts), ["broken", null]);
});

test("the pause after a failure is made without keeping the thread", async () => {
  const { threads, login, asked } = world();
  let isTold = false;
  const first = login.check(question("a")).finally(() => isTold = true);
  const second = login.check(question("b"));
  threads[0]!.onMessage({ ...no, delayMs: 100 });
  assert.equal(asked(), ["a b"]);
  assert.is(isTold, false);
  threads[0]!.onMessage(yes);
  assert.equal(await Promise.all([first, second]), ["no", null]);
});

test("an empty password is no question", async () => {
  const { threads, login } = world();
  for (const password of ["", "a\0b"]) {
    assert.is(await login.check(question("a", password)), "PAM login with an empty password");
  }
  assert.is(
    await login.check(question("a\0b")),
    "invalid character in user name for PAM authentication",
  );
  assert.is(threads.length, 0);
});

test.run();
