// Connections that succeed, fail at once and fail later.

import { assert, suite } from "../support/harness.ts";
import {
  accept,
  closeFd,
  connectTcp,
  connectUnix,
  Errno,
  listenTcp,
  listenUnix,
} from "../../shared/sys/mod.ts";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { encoder, withRig } from "./fixtures.ts";

const test = suite("sys: connect");

/** A port on which nobody listens, for now. */
function freePort(): number {
  const { fd, port } = listenTcp({ host: "127.0.0.1", port: 0, backlog: 1, reusePort: false });
  closeFd(fd);
  return port;
}

test("connectTcp() to a closed port is refused, at once or through onConnected", () =>
  withRig(async (rig) => {
    const fd = connectTcp("127.0.0.1", freePort());
    if (fd < 0) {
      assert.is(fd, -Errno.ECONNREFUSED);
      return;
    }
    const near = rig.peer(fd, true);
    await rig.until("the answer", () => near.connected !== null);
    assert.is(near.connected, Errno.ECONNREFUSED);
    assert.ok(await rig.batchesWithin(30) < 10, "the loop spins over a refused connection");
    assert.is(near.readableCalls + near.hangupCalls + near.drainedCalls, 0);
    assert.is(near.send(encoder.encode("x")), -Errno.ECONNREFUSED);
    assert.is(near.stream.recv(rig.buffer, 0, 1), -Errno.ECONNREFUSED);
  }));

test("connectTcp() takes numeric addresses only", () => {
  for (const host of ["localhost", "", "127.0.0.1.5", "::g", "fe80::1%no-such-interface"]) {
    assert.is(connectTcp(host, 5432), -Errno.EINVAL, host);
  }
});

test("connectTcp() to a port of the wrong family is refused or unreachable, never accepted", () =>
  withRig(async (rig) => {
    const { fd, port } = listenTcp({ host: "::", port: 0, backlog: 4, reusePort: false });
    rig.own(fd);
    const client = connectTcp("127.0.0.1", port);
    if (client < 0) return;
    const near = rig.peer(client, true);
    await rig.until("the answer", () => near.connected !== null);
    assert.not.equal(near.connected, 0);
  }));

test("Stream sends what was given to it while it was connecting, in order", () =>
  withRig(async (rig) => {
    const { fd, port } = listenTcp({ host: "127.0.0.1", port: 0, backlog: 4, reusePort: false });
    rig.own(fd);
    const near = rig.peer(connectTcp("127.0.0.1", port), true);
    assert.is(near.send(encoder.encode("one ")), 4);
    assert.is(near.stream.sendBytes(encoder.encode("two ")), 8);
    assert.is(near.stream.recv(rig.buffer, 0, 10), -Errno.EAGAIN);
    near.onConnected = (errno) => {
      near.connected = errno;
      assert.is(near.send(encoder.encode("three")), 13);
    };
    await rig.until("the connection", () => near.connected === 0 && near.drainedCalls === 1);
    const far = rig.peer(accept(fd));
    await rig.until("the bytes", () => far.text() === "one two three");
  }));

test("Stream may be paused while it is connecting", () =>
  withRig(async (rig) => {
    const { fd, port } = listenTcp({ host: "127.0.0.1", port: 0, backlog: 4, reusePort: false });
    rig.own(fd);
    const near = rig.peer(connectTcp("127.0.0.1", port), true);
    near.stream.pause(true);
    await rig.until("the connection", () => near.connected === 0);
    const far = rig.peer(accept(fd));
    far.send(encoder.encode("x"));
    assert.ok(await rig.batchesWithin(30) < 10);
    assert.is(near.readableCalls, 0);
    near.stream.resume();
    await rig.until("the byte", () => near.text() === "x");
  }));

test("Stream.close() while connecting calls nobody", () =>
  withRig(async (rig) => {
    const { fd, port } = listenTcp({ host: "127.0.0.1", port: 0, backlog: 4, reusePort: false });
    rig.own(fd);
    for (const end of ["close", "closeWhenDrained"] as const) {
      const near = rig.peer(connectTcp("127.0.0.1", port), true);
      if (end === "close") near.stream.close();
      else near.stream.closeWhenDrained(1_000);
      assert.ok(near.stream.closed);
      await rig.batchesWithin(20);
      assert.is(near.connected, null);
    }
  }));

test("connectUnix() tells why it cannot connect", () =>
  withRig((rig) => {
    const folder = mkdtempSync(join(tmpdir(), "pgweir-connect-"));
    try {
      const path = join(folder, "s");
      assert.is(connectUnix(path), -Errno.ENOENT);
      assert.is(connectUnix(`@pgweir-nobody-${process.pid}`), -Errno.ECONNREFUSED);
      assert.is(connectUnix(`/${"x".repeat(107)}`), -Errno.ENAMETOOLONG);
      assert.is(connectUnix(""), -Errno.ENAMETOOLONG);
      closeFd(listenUnix({ path, mode: 0o600, backlog: 1 }));
      assert.is(connectUnix(path), -Errno.ECONNREFUSED);

      const full = join(folder, "full");
      rig.own(listenUnix({ path: full, mode: 0o600, backlog: 1 }));
      let fd = connectUnix(full);
      let made = 0;
      while (fd >= 0 && made < 100) {
        rig.own(fd);
        made++;
        fd = connectUnix(full);
      }
      assert.is(fd, -Errno.EAGAIN);
    } finally {
      rmSync(folder, { recursive: true });
    }
    return Promise.resolve();
  }));

test.run();
