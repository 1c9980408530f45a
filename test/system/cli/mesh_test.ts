// `pgweir pooler` with bus_url: one worker, which has joined the mesh, and which others may stand beside on the port.
// limit: 240 s

import { assert, suite, until } from "../../support/harness.ts";
import { startNats } from "../../support/nats.ts";
import { needs } from "../../support/needs.ts";
import { childrenOf, commandLine, isAlive } from "../../support/processes.ts";
import { Instance } from "./support.ts";

needs("nats-server");

const test = suite("pooler in a mesh");
const nats = await startNats({ token: "", jetstream: true });

const workersOf = (pid: number) =>
  childrenOf(pid).filter((child) => commandLine(child).includes("cli.ts pooler"));

test("one worker with an id of the mesh, one pidfile, nothing on standard output", async () => {
  const instance = await Instance.make();
  instance.configure({ bus_url: nats.url, so_reuseport: 1, pidfile: instance.pidfile });
  const first = await instance.start();
  assert.is(instance.pid(), first.pid);
  assert.is(workersOf(first.pid).length, 1);
  // The same file would be the same instance.
  const other = await Instance.make();
  other.folder.write(
    "p.ini",
    `%include ${instance.folder.path}/p.ini\n[pgbouncer]\nunix_socket_dir = ${other.folder.path}\n` +
      `pidfile = ${other.pidfile}\n`,
  );
  const second = await other.folder.launch("pooler", "p.ini");
  await second.ready("the second worker", () => second.stderr().includes("process up: pgweir"));
  const children = [...childrenOf(first.pid), ...childrenOf(second.pid)];
  for (const one of [first, second]) assert.is(one.stdout(), "");
  for (const one of [first, second]) assert.equal(await one.stop(), { code: 0, signal: null });
  await until("the end of all", () => !children.some(isAlive));
});

test.after(() => nats.stop());

test.run();
