// The clients of idle_sockets_test.ts: connects as many times as told, and then stays until killed.

import { connectTcp, errnoName, raiseFileLimit, Reactor, Stream } from "../../shared/sys/mod.ts";

const port = Number(process.argv[2]);
const count = Number(process.argv[3]);
/** Connections under way at a time: fewer than the listener's backlog. */
const WINDOW = 200;

raiseFileLimit();
const reactor = new Reactor();
let started = 0;

function connectNext(): void {
  if (started === count) return;
  started++;
  const fd = connectTcp("127.0.0.1", port);
  if (fd < 0) throw new Error(`connect client ${started}: ${errnoName(-fd)}`);
  new Stream(
    reactor,
    fd,
    {
      onReadable: () => {},
      onDrained: () => {},
      onHangup: () => {},
      onConnected: (errno) => {
        if (errno !== 0) throw new Error(`connect a client: ${errnoName(errno)}`);
        connectNext();
      },
    },
    true,
  );
}

for (let i = 0; i < WINDOW; i++) connectNext();
// The test may end without having killed this process.
const parent = process.ppid;
reactor.every(500, () => {
  if (process.ppid !== parent) process.exit(1);
});
await reactor.run();
