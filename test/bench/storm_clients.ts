// A process whose clients come back all at once. Run by storm.ts as a child: arguments port, user, password,
// database, count. It logs its clients in, a few at a time, and says "connected"; at each SIGUSR2 it drops them all,
// connects anew with all of them in one moment, and says "in <milliseconds>" when the last is logged in, by SCRAM.
// It exits with 1 when one is refused or loses its connection.

import { connect, type Socket } from "node:net";
import process from "node:process";
import {
  Backend,
  MessageReader,
  parseAuthentication,
  parseErrorFields,
  saltedPassword,
  saslInitialResponse,
  saslResponse,
  ScramClientExchange,
  startupPacket,
} from "../../shared/wire/mod.ts";

const [port, user, password, database, count] = process.argv.slice(2) as [
  string,
  string,
  string,
  string,
  string,
];
const total = Number(count);
/** At the beginning, which is not measured. */
const atOnce = 64;
const startup = startupPacket({ user, database });

const sockets: Socket[] = [];
/** The server's salt is the same each time, and what is slow is derived once, as drivers' pools do. */
let salted: Promise<Uint8Array> | null = null;

function fail(text: string): never {
  console.error(text);
  process.exit(1);
}

/** Calls back when it is logged in. */
function logIn(onReady: () => void): void {
  const exchange = new ScramClientExchange();
  const reader = new MessageReader({ maxLength: 1 << 20 });
  const socket = connect(Number(port), "127.0.0.1");
  sockets.push(socket);
  socket.setNoDelay(true);
  socket.on("connect", () => socket.write(startup));
  socket.on("error", (error) => fail(`connect a client: ${error.message}`));
  socket.on("close", () => fail("keep a client: the pooler closed it"));
  const answer = async (body: Uint8Array) => {
    const asked = parseAuthentication(body);
    if (asked.kind === "sasl") {
      socket.write(saslInitialResponse(exchange.mechanism, exchange.first()));
    } else if (asked.kind === "saslContinue") {
      const challenge = exchange.continue(asked.data);
      if (challenge.kind === "problem") fail(`log a client in: ${challenge.message}`);
      salted ??= saltedPassword(password, challenge.salt, challenge.iterations);
      socket.write(saslResponse(exchange.proof(await salted)));
    } else if (asked.kind === "saslFinal") {
      if (!exchange.verifyFinal(asked.data)) fail("log a client in: wrong server signature");
    } else if (asked.kind !== "ok") fail(`log a client in: asked for ${asked.kind}`);
  };
  socket.on("data", (bytes: Uint8Array) => {
    reader.push(bytes);
    for (let next = reader.next(); next !== null; next = reader.next()) {
      if (next.type === Backend.errorResponse) {
        const { code, message } = parseErrorFields(next.body);
        fail(`log a client in: ${code} ${message}`);
      }
      if (next.type === Backend.authentication) void answer(new Uint8Array(next.body));
      if (next.type === Backend.readyForQuery) onReady();
    }
  });
}

function drop(): void {
  for (const socket of sockets.splice(0)) {
    socket.removeAllListeners("close");
    socket.destroy();
  }
}

let started = 0;
let ready = 0;
function next(): void {
  if (started === total) return;
  started++;
  logIn(() => {
    if (++ready === total) console.log("connected");
    else next();
  });
}
for (let i = 0; i < Math.min(atOnce, total); i++) next();

process.on("SIGUSR2", () => {
  drop();
  const begun = performance.now();
  let back = 0;
  for (let i = 0; i < total; i++) {
    logIn(() => {
      if (++back === total) console.log(`in ${(performance.now() - begun).toFixed(0)}`);
    });
  }
});
