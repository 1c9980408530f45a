// Which of the queries that may not wait are refused: only those for which the mesh has no slot, as far as it has said.

import { assert, suite } from "../support/harness.ts";
import { Mesh } from "./admission_rig.ts";

const tests = suite("admission");

const below = (how: string) =>
  `[groups]\ntop = max_concurrent_queries=8\nlow = parent=top max_concurrent_queries=4 ${how}\n` +
  "[group_rules]\nr = user=a group=low\n";

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
  const [one, two] = mesh.workers as [typeof mesh.workers[0], typeof mesh.workers[0]];
  const running = [one!.client("b").begin(), one!.client("b").begin()];
  mesh.pass(1500);
  assert.equal(running.map(({ state }) => state), ["runs", "runs"]);
  const client = two!.client("a").begin();
  mesh.pass(2000);
  assert.is(client.state, "refused");
  assert.match(client.refusal!.detail ?? "", /^Group "top" \(max_concurrent_queries = 2\)/);
});

tests.run();
