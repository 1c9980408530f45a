// The embedded bus from inside: its bounds, its rights, what it counts, and that nothing is left of
// a client that went.

import { Buffer } from "node:buffer";
import {
  connectBus,
  EmbeddedBus,
  type EmbeddedBusOptions,
  meshSubjects,
} from "../../shared/bus/mod.ts";
import { createLogger } from "../../shared/telemetry/mod.ts";
import { assert, suite, until } from "../support/harness.ts";
import { answerOf, patientBus, settled } from "./patience.ts";
import { connectLine, RawNats } from "./raw_nats.ts";

const token = "correct horse battery staple";
const opened: { close(): Promise<void> | void }[] = [];
const lines: string[] = [];
const logger = createLogger({
  component: "test",
  level: "debug",
  format: "text",
  write: (line) => lines.push(line),
});

async function start(
  options: EmbeddedBusOptions = {},
): Promise<{ bus: EmbeddedBus; port: number }> {
  // A test that was held up in the middle of a login is none that does not log in.
  const bus = new EmbeddedBus({ authTimeoutMs: 60_000, ...options });
  opened.push(bus);
  const { url } = await bus.start({ token });
  return { bus, port: Number(new URL(url).port) };
}

async function login(port: number, as = token, options = {}): Promise<RawNats> {
  const raw = await RawNats.login(port, as, options);
  opened.push(raw);
  return raw;
}

const embedded = suite("EmbeddedBus");

embedded.after.each(async () => {
  for (const one of opened.splice(0).reverse()) await one.close();
  lines.length = 0;
});

embedded("start() tells its URL, close() is idempotent and frees the port", async () => {
  const bus = new EmbeddedBus();
  const { url } = await bus.start({ token });
  assert.match(url, /^nats:\/\/127\.0\.0\.1:\d+$/);
  const port = Number(new URL(url).port);
  const raw = await RawNats.login(port, token);
  try {
    await bus.start({ token });
    assert.unreachable();
  } catch (error) {
    assert.match((error as Error).message, /start embedded bus: it runs/);
  }
  const other = new EmbeddedBus();
  try {
    await other.start({ token, port });
    assert.unreachable();
  } catch (error) {
    assert.is((error as { code?: string }).code, "EADDRINUSE");
  }
  await Promise.all([bus.close(), bus.close()]);
  await raw.untilClosed();
  await bus.close();
  assert.is(bus.counters.connections, 0);
  assert.equal(await bus.start({ token, port }), { url });
  (await RawNats.login(port, token)).close();
  await bus.close();
  await other.close();
});

embedded("start() listens on the host it is given", async () => {
  const bus = new EmbeddedBus();
  opened.push(bus);
  assert.match((await bus.start({ token, host: "::1" })).url, /^nats:\/\/\[::1\]:\d+$/);
});

embedded("allow() refuses an empty token", async () => {
  assert.throws(() => new EmbeddedBus().allow("", { publish: [], subscribe: [] }), /it is empty/);
  const bus = new EmbeddedBus();
  try {
    await bus.start({ token: "" });
    assert.unreachable();
  } catch (error) {
    assert.match((error as Error).message, /it is empty/);
  }
  await bus.close();
});

embedded("a client that does not log in in time is cut", async () => {
  const { bus, port } = await start({ authTimeoutMs: 30 });
  const silent = await RawNats.dial(port);
  assert.is(await silent.untilClosed(), "-ERR 'Authentication Timeout'\r\n");
  await until("the count", () => bus.counters.authFailures === 1);
});

embedded("a client that never answers is cut, one that talks or answers stays", async () => {
  const { bus, port } = await start({ pingIntervalMs: 100, maxPingsOut: 2 });
  const mute = await login(port);
  const answering = await login(port);
  answering.socket.on("data", () => void answering.write("PONG\r\n"));
  const text = await mute.untilClosed();
  assert.is(text, "PING\r\nPING\r\n-ERR 'Stale Connection'\r\n");
  await until("the count", () => bus.counters.staleConnections === 1);
  assert.is(answering.closed, false);
});

embedded("clients over the bound are told so and cut", async () => {
  const { bus, port } = await start({ maxConnections: 3 });
  for (let i = 0; i < 3; i += 1) await login(port);
  const over = await RawNats.dial(port);
  assert.is(await over.untilClosed(), "-ERR 'maximum connections exceeded'\r\n");
  await until("the count", () => bus.counters.refusedConnections === 1);
  opened.pop()?.close();
  await until("a free place", () => bus.counters.connections === 2);
  await login(port);
});

embedded("subscriptions are bounded per client; the connection stays", async () => {
  const { bus, port } = await start({ maxSubscriptionsPerConnection: 2 });
  const raw = await login(port);
  await raw.write(
    "SUB a 1\r\nSUB a 1\r\nSUB b 2\r\nSUB c 3\r\nPUB c 1\r\nx\r\nPUB b 1\r\ny\r\nPING\r\n",
  );
  assert.is(
    await raw.expect(/PONG/),
    "-ERR 'maximum subscriptions exceeded'\r\nMSG b 2 1\r\ny\r\nPONG\r\n",
  );
  assert.is(bus.counters.subscriptions, 2);
  await raw.write("UNSUB 1\r\nSUB c 3\r\nPING\r\n");
  await raw.expect(/PONG[^]*PONG/);
  assert.is(bus.counters.subscriptions, 2);
});

embedded("payloads over the bound, and subjects that are none, are refused", async () => {
  const { port } = await start({ maxPayloadBytes: 10 });
  const raw = await login(port);
  await raw.write(
    "SUB > 1\r\nPUB a.* 0\r\n\r\nPUB a..b 0\r\n\r\nPUB a b.> 0\r\n\r\nSUB a..b 2\r\nSUB a.>.b 3\r\n" +
      "PUB a 10\r\n0123456789\r\nPUB a 11\r\n",
  );
  assert.is(
    await raw.untilClosed(),
    "-ERR 'Invalid Publish Subject'\r\n".repeat(3) + "-ERR 'Invalid Subject'\r\n".repeat(2) +
      "MSG a 1 10\r\n0123456789\r\n-ERR 'Maximum Payload Violation'\r\n",
  );
});

embedded("a client logs in once, and properly", async () => {
  const { bus, port } = await start();
  const rows: [string, string][] = [
    [connectLine(token) + connectLine(token), "-ERR 'Unknown Protocol Operation'\r\n"],
    ["CONNECT {\r\n", "-ERR 'Parser Error'\r\n"],
    ["CONNECT 7\r\n", "-ERR 'Parser Error'\r\n"],
    [`CONNECT {"auth_token":["${token}"]}\r\n`, "-ERR 'Authorization Violation'\r\n"],
    [
      connectLine(token, { no_responders: true }),
      "-ERR 'No Responders Requires Headers Support'\r\n",
    ],
  ];
  for (const [input, answer] of rows) {
    const raw = await RawNats.dial(port);
    await raw.write(input);
    assert.is(await raw.untilClosed(), answer);
  }
  await until("the counts", () => bus.counters.protocolErrors === 4);
  assert.is(bus.counters.authFailures, 1);
});

embedded("a token gives its rights and no more, until it is forgotten", async () => {
  const { bus, port } = await start({ logger });
  const subjects = meshSubjects("m");
  bus.allow("worker 7", subjects.workerRights(7, "w7"));
  const worker = await login(port, "worker 7");
  const all = await login(port);
  await all.write("SUB > 1\r\nPING\r\n");
  await all.expect(/PONG/);
  await worker.write(
    "SUB pgweir.m.presence.* 1\r\nSUB pgweir.m.cancel.8 2\r\nSUB pgweir.m.cancel.8 q 3\r\nSUB > 4\r\n" +
      "PUB pgweir.m.presence.7 1\r\na\r\nPUB pgweir.m.presence.8 1\r\nb\r\nPING\r\n",
  );
  assert.is(
    await worker.expect(/PONG/),
    "-ERR 'Permissions Violation for Subscription to \"pgweir.m.cancel.8\"'\r\n" +
      '-ERR \'Permissions Violation for Subscription to "pgweir.m.cancel.8" using queue "q"\'\r\n' +
      "-ERR 'Permissions Violation for Subscription to \">\"'\r\n" +
      "MSG pgweir.m.presence.7 1 1\r\na\r\n" +
      "-ERR 'Permissions Violation for Publish to \"pgweir.m.presence.8\"'\r\nPONG\r\n",
  );
  await all.expect(/MSG pgweir\.m\.presence\.7 1 1\r\na\r\n/);
  assert.not.match(all.text, /presence\.8/);
  assert.is(bus.counters.permissionsDenied, 4);
  bus.forget("worker 7");
  const late = await RawNats.dial(port);
  await late.write(connectLine("worker 7"));
  assert.is(await late.untilClosed(), "-ERR 'Authorization Violation'\r\n");
  await worker.write("PING\r\n");
  await worker.expect(/PONG[^]*PONG/);
  assert.is(lines.length, 1, "one line a minute");
  assert.not.match(lines.join(""), /worker 7/);
});

embedded("a worker's rights are enough for all that a worker does on its bus", async () => {
  const { bus, port } = await start();
  const subjects = meshSubjects("m");
  const buses = [];
  for (const id of [7, 8]) {
    bus.allow(`worker ${id}`, subjects.workerRights(id, `w${id}`));
    const one = await connectBus({
      servers: [`nats://127.0.0.1:${port}`],
      token: `worker ${id}`,
      mesh: "m",
      name: `w${id}`,
      logger,
      ...patientBus,
    });
    opened.push(one);
    buses.push(one);
  }
  const [seven, eight] = buses;
  if (seven === undefined || eight === undefined) throw new Error("two buses");
  let got = 0;
  eight.subscribe(subjects.allPresence, () => {
    got += 1;
  });
  eight.subscribe(subjects.cancel(8), () => ({ outcome: "busy" as const }));
  await settled(eight);
  seven.publish(subjects.presence(7), {
    id: 7,
    incarnation: 1,
    host: "h",
    boot: "",
    pid: 1,
    state: "ready",
    addresses: [],
    clients: 0,
    servers: 0,
    configMark: "",
    runtime: "",
  });
  const request = { processId: 1, secret: new Uint8Array(32), source: 7 };
  assert.equal(await answerOf(seven, eight, subjects.cancel(8), request), { outcome: "busy" });
  await until("the presence", () => got === 1);
  assert.is(bus.counters.permissionsDenied, 0);
});

embedded(
  "output for a client that does not read is bounded, and what it held is freed",
  async () => {
    const { bus, port } = await start({ maxPendingBytes: 256 * 1024 });
    const slow = await login(port);
    await slow.write("SUB big 1\r\nSUB other 2\r\nPING\r\n");
    await slow.expect(/PONG/);
    slow.socket.pause();
    const publisher = await login(port);
    const message = Buffer.concat([
      Buffer.from("PUB big 60000\r\n"),
      Buffer.alloc(60_000, 120),
      Buffer.from("\r\n"),
    ]);
    await until(
      "the cut",
      async () => {
        await publisher.write(message);
        return bus.counters.slowConsumers === 1;
      },
      60_000,
      0,
    );
    await until("its place", () => bus.counters.connections === 1);
    assert.is(bus.counters.subscriptions, 0);
    await publisher.write("PING\r\n");
    await publisher.expect(/PONG/);
  },
);

embedded("nothing is left of clients that went in any way", async () => {
  const { bus, port } = await start();
  for (let i = 0; i < 30; i += 1) {
    const raw = await RawNats.login(port, token);
    await raw.write("SUB a.* 1\r\nSUB b.> q 2\r\nSUB c 3\r\nPUB a.x 100\r\nhalf");
    if (i % 3 === 0) raw.socket.end();
    else if (i % 3 === 1) raw.socket.resetAndDestroy();
    else await raw.write(`${"x".repeat(96)}\r\nFETCH\r\n`);
    await raw.untilClosed();
    raw.close();
  }
  await until("all to be gone", () => bus.counters.connections === 0);
  assert.is(bus.counters.subscriptions, 0);
  assert.is(bus.counters.accepted, 30);
});

embedded("counters tell what went through", async () => {
  const { bus, port } = await start();
  const raw = await login(port, token, { headers: true, no_responders: true });
  await raw.write("SUB a 1\r\nSUB a 2\r\nPUB a 3\r\nabc\r\nPUB b a 0\r\n\r\nPING\r\n");
  await raw.expect(/PONG/);
  assert.match(raw.text, /HMSG a 1 16 16\r\nNATS\/1\.0 503\r\n\r\n\r\n/);
  const { messagesIn, messagesOut, bytesIn, bytesOut, noResponders } = bus.counters;
  assert.equal(
    { messagesIn, messagesOut, bytesIn, bytesOut, noResponders },
    { messagesIn: 2, messagesOut: 2, bytesIn: 3, bytesOut: 6, noResponders: 1 },
  );
});

embedded.run();
