// test/support/nats.ts does what it promises, with a real nats-server.

import { assert, suite } from "../../support/harness.ts";
import { startNats } from "../../support/nats.ts";
import { needs } from "../../support/needs.ts";
import { isAlive } from "../../support/processes.ts";

needs("nats-server");

const tests = suite("startNats");

tests("startNats() greets, freezes, dies and comes back on its port", async () => {
  const server = await startNats();
  const first = server.pid;
  await server.pause();
  server.resume();
  await server.kill();
  assert.not(isAlive(first));
  await server.start();
  assert.is.not(server.pid, first);
  await server.restart();
  await server.stop();
});

tests.run();
