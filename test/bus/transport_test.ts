// The NATS client's transport on the embedded bus: what becomes of errors that come late. That it connects and
// reconnects is tested by all who use a bus.

import { randomUUID } from "node:crypto";
import { EmbeddedBus } from "../../shared/bus/mod.ts";
import { type BusTransport, connectNats } from "../../shared/bus/transport.ts";
import { assert, suite } from "../support/harness.ts";

const test = suite("BusTransport");

// A nats-server refused a login and reset the connection: its words and the reset were read together, the
// client closed, and the error of the reset, which was yet to be told, ended the process on Deno.
test("close() leaves nobody surprised by an error that is on its way", async () => {
  const broker = new EmbeddedBus({});
  const token = randomUUID();
  const { url } = await broker.start({ token });
  let transport: BusTransport | undefined;
  const connection = await connectNats({
    servers: url,
    token,
    reconnect: false,
    onTransport: (made) => transport = made,
  });
  const { socket } = transport!;
  socket!.destroy(new Error("reset"));
  const closing = transport!.close();
  // Told after the error, if that was survived.
  await new Promise((resolve) => socket!.once("close", resolve));
  await closing;
  assert.is(transport!.isClosed, true);
  await connection.closed();
  await broker.close();
});

test.run();
