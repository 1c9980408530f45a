// What listen_test.ts runs in processes of their own, with other limits or as another user.
// The first argument says what; a failure is an exception, so exit code 1.

import { readFileSync } from "node:fs";
import {
  accept,
  closeFd,
  connectTcp,
  connectUnix,
  EPOLLIN,
  errnoName,
  listenTcp,
  listenUnix,
  peerCredentials,
  raiseFileLimit,
  SysError,
} from "../../shared/sys/mod.ts";
import { assert } from "../support/harness.ts";
import { type Peer, withRig } from "./fixtures.ts";

/** A server that runs out of descriptors, sets its listener aside, and takes it up again. */
async function runOutOfDescriptors(): Promise<void> {
  await withRig(async (rig) => {
    const listener = listenTcp({ host: "127.0.0.1", port: 0, backlog: 200, reusePort: false });
    rig.own(listener.fd);
    const clients: Peer[] = [];
    // Until none is left, whatever the runtime itself holds.
    let clientFd = connectTcp("127.0.0.1", listener.port);
    while (clientFd >= 0) {
      clients.push(rig.peer(clientFd, true));
      clientFd = connectTcp("127.0.0.1", listener.port);
    }
    assert.is(errnoName(-clientFd), "EMFILE");
    assert.ok(clients.length > 10, `only ${clients.length} clients`);

    const accepted: Peer[] = [];
    let refusals = 0;
    const source = {
      onEvents: () => {
        for (;;) {
          const fd = accept(listener.fd);
          if (fd >= 0) {
            accepted.push(rig.peer(fd));
            continue;
          }
          if (errnoName(-fd) === "EMFILE") {
            refusals++;
            rig.reactor.remove(listener.fd);
            rig.reactor.after(30, () => rig.reactor.add(listener.fd, EPOLLIN, source));
          } else {
            assert.is(errnoName(-fd), "EAGAIN");
          }
          return;
        }
      },
    };
    rig.reactor.add(listener.fd, EPOLLIN, source);
    await rig.until("two refusals", () => refusals >= 2);
    assert.ok(rig.batches < 200, `the loop spins: ${rig.batches} batches`);
    assert.is(accepted.length, 0);

    const half = Math.floor(clients.length / 2);
    for (const client of clients.slice(0, half)) client.stream.close();
    await rig.until("the waiting clients", () => accepted.length >= half);
    console.log("recovered");
  });
}

/** The code of the SysError that `action` throws. */
function codeOf(action: () => unknown): string {
  try {
    action();
  } catch (error) {
    if (error instanceof SysError) return error.code;
    throw error;
  }
  return "no error";
}

/** In a folder of another user, with a socket of that user's own. */
function tryForbidden(folder: string): void {
  assert.is(
    codeOf(() => listenUnix({ path: `${folder}/new`, mode: 0o600, backlog: 1 })),
    "EACCES",
  );
  assert.is(errnoName(-connectUnix(`${folder}/private`)), "EACCES");
  const fd = connectUnix(`${folder}/public`);
  assert.ok(fd >= 0, errnoName(-fd));
  assert.is(peerCredentials(fd)?.uid, 0);
  closeFd(fd);
  console.log("refused");
}

const mode = process.argv[2];
if (mode === "emfile") await runOutOfDescriptors();
else if (mode === "eacces") tryForbidden(process.argv[3]!);
else if (mode === "limit") {
  const { soft, hard } = raiseFileLimit();
  const line = /^Max open files +([0-9]+) +([0-9]+)/m.exec(
    readFileSync("/proc/self/limits", "latin1"),
  );
  assert.equal([soft, hard].map(String), [line![1], line![2]]);
  console.log(soft, hard);
} else throw new Error(`run a part of the listener tests: it is "${mode}"`);
