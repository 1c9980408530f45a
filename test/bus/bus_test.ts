// The bus against brokers that misbehave in ways a real one won't on demand, and what its log says.
// load: waits

import { Buffer } from "node:buffer";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { encode } from "@msgpack/msgpack";
import { type NatsConnection, NatsConnectionImpl } from "nats";
import {
  type Bus,
  BusError,
  type BusOptions,
  connectBus,
  EmbeddedBus,
} from "../../shared/bus/mod.ts";
import { createLogger } from "../../shared/telemetry/mod.ts";
import { assert, suite, until } from "../support/harness.ts";
import { answerOf, patientBus, settled } from "./patience.ts";
import { RawNats, within } from "./raw_nats.ts";

const token = "correct horse battery staple";
const lines: string[] = [];
const logger = createLogger({
  component: "test",
  level: "debug",
  format: "text",
  write: (line) => lines.push(line),
});
const opened: { close(): Promise<void> | void }[] = [];

function options(port: number, more: Partial<BusOptions> = {}): BusOptions {
  const servers = [`nats://127.0.0.1:${port}`];
  return { servers, token, mesh: "m", name: "one", logger, ...patientBus, ...more };
}

async function bus(port: number, more: Partial<BusOptions> = {}): Promise<Bus> {
  const one = await connectBus(options(port, more));
  opened.push(one);
  return one;
}

/** A TCP server that does with each connection what the test says. */
async function fakeBroker(
  onSocket: (socket: Socket) => void,
): Promise<{ port: number; sockets: Set<Socket> }> {
  const sockets = new Set<Socket>();
  const server: Server = createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => {});
    socket.on("close", () => sockets.delete(socket));
    socket.on("data", () => {});
    onSocket(socket);
  });
  server.listen({ host: "127.0.0.1", port: 0 });
  await once(server, "listening");
  opened.push({
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        for (const socket of sockets) socket.destroy();
      }),
  });
  return { port: (server.address() as AddressInfo).port, sockets };
}

const info = `INFO ${
  JSON.stringify({
    server_id: "f",
    version: "2.9.0",
    proto: 1,
    headers: true,
    max_payload: 1 << 20,
  })
}\r\n`;

async function codeOf(promise: Promise<unknown>): Promise<string> {
  try {
    await promise;
  } catch (error) {
    if (error instanceof BusError) return error.code;
    throw error;
  }
  throw new Error("a BusError: is no error");
}

const test = suite("Bus");

test.after.each(async () => {
  for (const one of opened.splice(0)) await one.close();
  lines.length = 0;
});

test("connectBus() to a server that never greets fails in time and leaves no socket", async () => {
  // The client forgot such a socket, and the process could not end while the server lived.
  const { port, sockets } = await fakeBroker(() => {});
  const failing = codeOf(connectBus(options(port, { waitOnFirstConnectMs: 0 })));
  assert.is(await within("the connect to fail", failing), "UNREACHABLE");
  await until("the socket to be closed", () => sockets.size === 0);
});

test("close() in the middle of a dial ends it", async () => {
  const { port, sockets } = await fakeBroker(() => {});
  const one = await bus(port, { background: true });
  await until("the dial", () => sockets.size === 1);
  await within("close()", one.close());
  await until("the socket to be closed", () => sockets.size === 0);
});

test("connectBus() to a server that talks nonsense fails", async () => {
  const { port } = await fakeBroker((socket) => socket.write("HTTP/1.1 400 Bad Request\r\n\r\n"));
  assert.is(await codeOf(connectBus(options(port, { waitOnFirstConnectMs: 0 }))), "UNREACHABLE");
});

// A process whose host stood still in the middle of the login ended with the reason that its credentials were wrong.
test("connectBus() dials again when the broker did not wait for the login", async () => {
  const broker = new EmbeddedBus();
  opened.push(broker);
  const { url } = await broker.start({ token });
  let dials = 0;
  const { port } = await fakeBroker((socket) => {
    dials += 1;
    if (dials > 2) {
      const { port, hostname } = new URL(url);
      const through = connect({ host: hostname, port: Number(port) });
      through.on("error", () => {});
      socket.removeAllListeners("data");
      socket.pipe(through).pipe(socket);
      return;
    }
    socket.write(info);
    socket.once("data", () => socket.end("-ERR 'Authentication Timeout'\r\n"));
  });
  const one = await bus(port);
  assert.ok(one.connected);
  assert.is(dials, 3);
});

test("a broker that drops each connection at once is dialled again and again", async () => {
  let accepted = 0;
  const { port } = await fakeBroker((socket) => {
    accepted += 1;
    socket.write(info);
    socket.once("data", () => {
      socket.write("PONG\r\n");
      setTimeout(() => socket.destroy(), 20);
    });
  });
  const one = await bus(port);
  await until("some disconnects", () => one.counters.disconnects >= 4);
  assert.ok(accepted <= one.counters.disconnects + 2, `${accepted} dials`);
});

test("a connection that the client gives up for good is made anew, with its subscriptions", async () => {
  const broker = new EmbeddedBus();
  opened.push(broker);
  const port = Number(new URL((await broker.start({ token })).url).port);
  const connect = NatsConnectionImpl.connect;
  const made: NatsConnection[] = [];
  NatsConnectionImpl.connect = async (options) => {
    const connection = await connect(options);
    made.push(connection);
    return connection;
  };
  try {
    const one = await bus(port);
    let reconnects = 0;
    one.onReconnect(() => {
      reconnects += 1;
    });
    one.subscribe(one.subjects.cancel(1), () => ({ outcome: "idle" as const }));
    await made[0]?.close();
    await until("the new connection", () => made.length === 2 && reconnects === 1);
    const request = { processId: 1, secret: new Uint8Array(4), source: 2 };
    assert.equal(await answerOf(one, one, one.subjects.cancel(1), request), { outcome: "idle" });
    assert.is(lines.filter((line) => line.includes("ERROR bus connection was given up")).length, 1);
  } finally {
    NatsConnectionImpl.connect = connect;
  }
});

test("payloads that are refused are counted each and logged once a minute, without their bytes", async () => {
  const broker = new EmbeddedBus();
  opened.push(broker);
  const port = Number(new URL((await broker.start({ token })).url).port);
  const one = await bus(port);
  const asked: unknown[] = [];
  one.subscribe(one.subjects.budgetGone, (request) => {
    asked.push(request);
    return {};
  });
  await settled(one);
  const raw = await RawNats.login(port, token);
  opened.push(raw);
  const secret = Buffer.from("hunter2!");
  const send = (payload: Uint8Array): Promise<void> =>
    raw.write(Buffer.concat([
      Buffer.from(`PUB pgweir.m.budget.gone ${payload.length}\r\n`),
      payload,
      Buffer.from("\r\n"),
    ]));
  for (let i = 0; i < 5; i += 1) await send(encode({ v: 2, secret }));
  for (let i = 0; i < 4; i += 1) {
    await send(encode({ v: 1, worker: "hunter2", incarnation: 1, secret }));
  }
  for (let i = 0; i < 3; i += 1) await send(Buffer.alloc(65_537, 104));
  await send(encode({ v: 1, worker: 1, incarnation: 1, secret }));
  await until("the good one", () => asked.length === 1);
  const { newerVersion, malformed, tooLarge, received } = one.counters;
  assert.equal({ newerVersion, malformed, tooLarge, received }, {
    newerVersion: 5,
    malformed: 4,
    tooLarge: 3,
    received: 13,
  });
  const dropped = lines.filter((line) => line.includes("bus payload dropped"));
  assert.is(dropped.length, 1);
  assert.match(
    dropped[0] ?? "",
    /WARNING bus payload dropped kind="gone worker" reason=newer_version/,
  );
  assert.not.match(lines.join(""), /hunter2/);
});

test("request() rejects a reply of another shape or version", async () => {
  const broker = new EmbeddedBus();
  opened.push(broker);
  const port = Number(new URL((await broker.start({ token })).url).port);
  const one = await bus(port);
  const raw = await RawNats.login(port, token);
  opened.push(raw);
  await raw.write("SUB pgweir.m.store 1\r\nPING\r\n");
  await raw.expect(/PONG/);
  const good = { revision: null, entries: [], more: false };
  for (const reply of [{ v: 2, ...good }, { v: 1, ...good, revision: "1" }]) {
    raw.forget();
    const answer = one.request(one.subjects.store, { op: "get", key: "a" }, 30_000);
    const inbox = /store 1 (\S+) /.exec(await raw.expect(/store 1 \S+ \d+\r\n/))?.[1];
    const bytes = Buffer.from(encode(reply));
    await raw.write(Buffer.concat([
      Buffer.from(`PUB ${inbox} ${bytes.length}\r\n`),
      bytes,
      Buffer.from("\r\n"),
    ]));
    assert.is(await codeOf(answer), "BAD_REPLY");
  }
  assert.is(one.counters.newerVersion, 1);
  assert.is(one.counters.malformed, 1);
  assert.is(one.counters.requestErrors, 2);
});

test("a request that does harm late is dropped unless it shows a ticket of a moment ago", async () => {
  // A worker that was stopped for a while found a cancel request in its socket, and cancelled what
  // its client was running by then.
  const broker = new EmbeddedBus();
  opened.push(broker);
  const port = Number(new URL((await broker.start({ token })).url).port);
  const one = await bus(port);
  let asked = 0;
  one.subscribe(one.subjects.cancel(1), () => {
    asked += 1;
    return { outcome: "sent" as const };
  });
  await settled(one);
  const raw = await RawNats.login(port, token, { headers: true });
  opened.push(raw);
  await raw.write("SUB answers 1\r\n");
  const newTicket = async (): Promise<string> => {
    raw.forget();
    await raw.write("PUB pgweir.m.cancel.1 answers 0\r\n\r\n");
    const answer = /answers 1 \d+\r\n(\S+)\r\n/;
    return answer.exec(await raw.expect(answer))?.[1] ?? "";
  };
  const [id, at] = (await newTicket()).split(".");
  const request = Buffer.from(
    encode({ v: 1, processId: 1, secret: new Uint8Array(4), source: 1 }),
  );
  const send = async (shown: string): Promise<void> => {
    const head = Buffer.from(`NATS/1.0\r\nPgweir-Ticket: ${shown}\r\n\r\n`);
    const sizes = `${head.length} ${head.length + request.length}`;
    await raw.write(Buffer.concat([
      Buffer.from(`HPUB pgweir.m.cancel.1 ${sizes}\r\n`),
      head,
      request,
      Buffer.from("\r\n"),
    ]));
  };
  await send(`${id}.${Number(at) - 60_000}`);
  await send(`${"0".repeat(24)}.${at}`);
  await send("");
  await until("the old ones", () => one.counters.stale === 3);
  assert.is(asked, 0);
  // One that was held up on its way until it was old as well is followed by another.
  for (let stale = 3; asked === 0; stale += 1) {
    await send(await newTicket());
    await until("the fresh one", () => asked > 0 || one.counters.stale > stale);
  }
  assert.is(asked, 1);
  assert.match(lines.join(""), /bus payload dropped kind=cancel reason=stale/);
});

test("request() takes nothing for a ticket that is none", async () => {
  const broker = new EmbeddedBus();
  opened.push(broker);
  const port = Number(new URL((await broker.start({ token })).url).port);
  const one = await bus(port);
  const raw = await RawNats.login(port, token);
  opened.push(raw);
  await raw.write("SUB pgweir.m.cancel.1 1\r\nPING\r\n");
  await raw.expect(/PONG/);
  const answer = codeOf(one.request(
    one.subjects.cancel(1),
    { processId: 1, secret: new Uint8Array(4), source: 2 },
    30_000,
  ));
  const inbox = /cancel\.1 1 (\S+) /.exec(await raw.expect(/cancel\.1 1 \S+ 0\r\n/))?.[1];
  await raw.write(`PUB ${inbox} 7\r\na\r\nb: c\r\n`);
  assert.is(await answer, "BAD_REPLY");
});

test("neither errors nor log lines tell a secret of the connection", async () => {
  const wrong = "hunter2";
  const broker = new EmbeddedBus({ logger });
  opened.push(broker);
  const port = Number(new URL((await broker.start({ token })).url).port);
  const servers = [`nats://${wrong}@127.0.0.1:${port}`];
  const { token: _, ...withoutToken } = options(port);
  try {
    await connectBus({ ...withoutToken, servers });
    assert.unreachable();
  } catch (error) {
    assert.is((error as BusError).code, "REFUSED");
    logger.error("cannot start", { error });
    assert.match((error as Error).message, new RegExp(`127\\.0\\.0\\.1:${port}`));
  }
  await until("the broker to have logged it", () => lines.length >= 2);
  for (const text of lines) assert.not.match(text, new RegExp(`${wrong}|${token}`));
});

test.run();
