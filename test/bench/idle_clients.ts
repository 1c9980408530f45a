// A process that logs a number of clients in at a pooler and keeps them idle until it is stopped.
// Run by measure.ts as a child: arguments port, user, database, count, logins at once; prints
// "connected" when all are in, and exits with 1 when one cannot or loses its connection.

import { connect } from "node:net";

const [port, user, database, count, atOnce] = process.argv.slice(2) as [
  string,
  string,
  string,
  string,
  string,
];
const total = Number(count);

/** StartupMessage of protocol 3.0: length, version, then pairs of NUL-terminated strings. */
function startupMessage(): Uint8Array {
  const body = new TextEncoder().encode(`user\0${user}\0database\0${database}\0\0`);
  const message = new Uint8Array(8 + body.length);
  const view = new DataView(message.buffer);
  view.setInt32(0, message.length);
  view.setInt32(4, 3 << 16);
  message.set(body, 8);
  return message;
}

/** ReadyForQuery, idle: the last message of a login. */
const READY = Buffer.from([0x5a, 0, 0, 0, 5, 0x49]);

function fail(text: string): never {
  console.error(text);
  process.exit(1);
}

let started = 0;
let ready = 0;

function startNext(): void {
  if (started === total) return;
  started++;
  const socket = connect(Number(port), "127.0.0.1");
  let reply: Buffer | null = Buffer.alloc(0);
  socket.on("connect", () => socket.write(startupMessage()));
  socket.on("error", (error) => fail(`open idle client: ${error.message}`));
  socket.on("close", () => fail("keep idle client: the pooler closed it"));
  socket.on("data", (data: Buffer) => {
    if (reply === null) return;
    reply = Buffer.concat([reply, data]);
    if (reply[0] === 0x45) fail(`log idle client in: ${reply.toString("utf8")}`);
    if (!reply.subarray(-READY.length).equals(READY)) return;
    reply = null;
    ready++;
    if (ready === total) console.log("connected");
    else startNext();
  });
}

for (let i = 0; i < Number(atOnce); i++) startNext();
