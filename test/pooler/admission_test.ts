// Which of the queries that may not wait are refused: only those for which the mesh has no slot, as far as it has said.

import { assert, seededRandom, suite } from "../support/harness.ts";
import { type Client, Mesh, type Worker } from "./admission_rig.ts";

const tests = suite("admission");

const below = (how: string) =>
  `[groups]\ntop = max_concurrent_queries=8\nlow = parent=top max_concurrent_queries=4 ${how}\n` +
  "[group_rules]\nr = user=a group=low\n";

const flat = (how: string) => `[groups]\nall = ${how}\n[group_rules]\nr = user=a group=all\n`;

// The group above was asked for a slot when the one below had one, and the query refused before that was answered.
for (const how of ["max_queued=100 queue_timeout=30", "queueing=off", "max_queued=1"]) {
  tests(`the first query of each worker is let in, with ${how} below a parent`, () => {
    const mesh = new Mesh(below(how), 4);
    for (const worker of mesh.workers) {
      const client = worker.client("a").begin();
      mesh.pass(200);
      assert.equal([client.state, client.refusal], ["runs", null]);
      client.end();
      mesh.pass(2000);
    }
  });
}

tests("all slots of the group above are in use: refused, by its name", () => {
  const mesh = new Mesh(
    below("queueing=off").replace("=8", "=2") + "s = user=b group=top\n",
    2,
  );
  const [one, two] = mesh.workers as [Worker, Worker];
  const running = [one.client("b").begin(), one.client("b").begin()];
  mesh.pass(1500);
  assert.equal(running.map(({ state }) => state), ["runs", "runs"]);
  const client = two.client("a").begin();
  mesh.pass(2000);
  assert.is(client.state, "refused");
  assert.match(client.refusal!.detail ?? "", /^Group "top" \(max_concurrent_queries = 2\)/);
});

// The answer did not say that a slot was in use: what was not, nor asked back yet, counted as if it was.
tests("the only slot comes over from a worker that does not use it", () => {
  const mesh = new Mesh(flat("max_concurrent_queries=1 queueing=off"), 2);
  const random = seededRandom(7);
  let longestMs = 0;
  for (let n = 0; n < 60; n++) {
    const client = mesh.workers[Math.floor(random() * 2)]!.client("a").begin();
    const since = mesh.now;
    mesh.passUntil(() => client.state !== "waits", 3000);
    longestMs = Math.max(longestMs, mesh.now - since);
    assert.is(client.state, "runs", `query ${n}`);
    mesh.pass(5);
    client.end();
    mesh.pass(Math.floor(random() * 400));
  }
  console.log(`# the longest wait was ${longestMs} ms`);
});

for (const seed of [1, 2, 3]) {
  tests(`nobody is refused while less run over the mesh than may, seed ${seed}`, () => {
    const mesh = new Mesh(flat("max_concurrent_queries=4 queueing=off"), 3);
    const random = seededRandom(seed);
    const clients: (Client | null)[] = [null, null, null];
    let count = 0;
    for (let n = 0; n < 4000; n++) {
      const at = Math.floor(random() * 3);
      const client = clients[at];
      if (client === null) {
        clients[at] = mesh.workers[Math.floor(random() * 3)]!.client("a").begin();
        count++;
      } else if (client!.state === "runs") {
        client!.end();
        clients[at] = null;
      }
      mesh.pass(5 * Math.floor(random() * 4));
      for (const each of clients) assert.is.not(each?.state, "refused", `after ${count}`);
    }
    assert.ok(count > 500, `${count}`);
  });
}

// It took a quarter of a second each time.
tests("all slots are in use: who may not wait is told as soon as the others have answered", () => {
  const mesh = new Mesh(flat("max_concurrent_queries=2 queueing=off"), 2);
  const [one, two] = mesh.workers as [Worker, Worker];
  const running = [one.client("a").begin(), one.client("a").begin()];
  mesh.pass(300);
  assert.equal(running.map(({ state }) => state), ["runs", "runs"]);
  for (let n = 0; n < 40; n++) {
    const client = two.client("a").begin();
    mesh.passUntil(() => client.state !== "waits", 100);
    assert.is(client.state, "refused", `query ${n}`);
  }
  running[0]!.end();
  const client = two.client("a").begin();
  mesh.passUntil(() => client.state !== "waits", 100);
  assert.is(client.state, "runs");
});

// Queries as short as these never use all slots for as long as the others take to answer.
tests("short queries that use all slots: who may not wait is let in or told soon", () => {
  const mesh = new Mesh(flat("max_concurrent_queries=2 queueing=off"), 3);
  const [one, two, three] = mesh.workers as [Worker, Worker, Worker];
  const busy = [one.client("a"), two.client("a")];
  let waits: Client | null = null;
  let [since, longestMs, count] = [0, 0, 0];
  for (let n = 0; n < 2000; n++) {
    for (const client of busy) {
      if (client.state === "runs") client.end();
      else if (client.state !== "waits") client.begin();
    }
    if (waits?.state === "runs") waits.end();
    if (waits?.state !== "waits") {
      waits = three.client("a").begin();
      [since, count] = [mesh.now, count + 1];
    }
    mesh.pass(10);
    longestMs = Math.max(longestMs, mesh.now - since);
  }
  assert.ok(longestMs < 1000 && count > 20, `${longestMs} ms, ${count} queries`);
});

tests("a storm of queries that may not wait: each is told soon, and messages stay few", () => {
  const mesh = new Mesh(flat("max_concurrent_queries=1 queueing=off"), 4);
  const [first, ...others] = mesh.workers as [Worker, ...Worker[]];
  const running = first.client("a").begin();
  mesh.pass(300);
  assert.is(running.state, "runs");
  const before = mesh.messages;
  const clients: { readonly client: Client; readonly since: number }[] = [];
  for (let n = 0; n < 200; n++) {
    for (const worker of others) {
      clients.push({ client: worker.client("a").begin(), since: mesh.now });
    }
    mesh.pass(5);
    for (const { client, since } of clients) {
      assert.ok(client.state === "refused" || mesh.now - since < 200, `${client.state} in ${n}`);
    }
  }
  const perSecond = mesh.messages - before;
  // Each worker reports 20 times in a second at most; it is answered each time, asked, and told.
  assert.ok(perSecond <= 4 * 20 * 4, `${perSecond} messages in a second`);
  console.log(`# ${perSecond} messages in a second`);
});

tests("what is not in use moves without a message as long as there are enough", () => {
  const mesh = new Mesh(flat("max_concurrent_queries=1 queueing=off"), 2);
  const [one] = mesh.workers as [Worker];
  const client = one.client("a");
  client.begin();
  mesh.pass(1000);
  client.end();
  const rests = mesh.messages;
  mesh.pass(10_000);
  const atRest = mesh.messages - rests;
  for (let ms = 0; ms < 10_000; ms += 50) {
    client.begin();
    mesh.pass(20);
    client.end();
    mesh.pass(30);
  }
  const busy = mesh.messages - rests - atRest;
  assert.ok(busy <= atRest + 4, `${busy} messages, ${atRest} at rest`);
});

tests("nobody answers: who may not wait is refused all the same, some time", () => {
  const mesh = new Mesh(flat("max_concurrent_queries=1 queueing=off"), 2);
  const [one, two] = mesh.workers as [Worker, Worker];
  const running = one.client("a").begin();
  mesh.pass(300);
  assert.is(running.state, "runs");
  mesh.isCut = true;
  const client = two.client("a").begin();
  mesh.pass(5000);
  assert.is(client.state, "waits");
  mesh.pass(12_000);
  assert.is(client.state, "refused");
});

tests.run();
