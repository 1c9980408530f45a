// Relays messages between two streams, with different offsets at the two ends, for
// allocation_test.ts. Arguments: how many; "true" to make one object per message as well; "tls" to encrypt them.

import { withRig } from "./fixtures.ts";

const kind = process.argv[4] === "tls" ? "tls" : "unix";
const total = Number(process.argv[2]);
const withGarbage = process.argv[3] === "true";
let garbage: unknown = null;

await withRig(async (rig) => {
  const [near, far] = await rig.pair(kind);
  let messages = 0;
  for (const [peer, offset] of [[near, 0], [far, 4096]] as const) {
    peer.onRead = () => {
      const count = peer.stream.recv(rig.buffer, offset, 8000);
      if (withGarbage) garbage = { messages };
      messages++;
      // Now and then there is nothing to receive, which is the other frequent outcome.
      if (messages % 8 === 0) peer.stream.recv(rig.buffer, offset, 8000);
      if (messages < total) peer.stream.send(rig.buffer, offset, count);
      else rig.reactor.stop();
    };
  }
  near.stream.send(rig.buffer, 0, 100);
  await rig.reactor.run();
  console.log(`relayed ${messages}`, garbage);
});
