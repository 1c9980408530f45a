// Listeners: which errors they raise, socket files and their modes, and running out of descriptors.

import { type ChildProcess, spawn } from "node:child_process";
import { chmodSync, existsSync, mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { assert, suite } from "../support/harness.ts";
import {
  accept,
  closeFd,
  connectTcp,
  connectUnix,
  listenTcp,
  listenUnix,
  runtimeCommand,
  SysError,
  unlinkUnix,
} from "../../shared/sys/mod.ts";
import { encoder, withRig } from "./fixtures.ts";

const test = suite("sys: listeners");

function assertFails(code: string, attempt: RegExp, action: () => unknown): void {
  try {
    action();
  } catch (error) {
    assert.instance(error, SysError, String(error));
    assert.is((error as SysError).code, code);
    assert.match((error as SysError).message, attempt);
    return;
  }
  assert.unreachable(`wanted ${code}`);
}

async function withFolder(body: (folder: string) => Promise<void> | void): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "pgweir-listen-"));
  try {
    await body(folder);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

test("listenTcp() without reusePort refuses a port in use", () => {
  const first = listenTcp({ host: "127.0.0.1", port: 0, backlog: 4, reusePort: false });
  try {
    for (const reusePort of [false, true]) {
      assertFails(
        "EADDRINUSE",
        /^listen on "127\.0\.0\.1" port [0-9]+: bind failed/,
        () => listenTcp({ host: "127.0.0.1", port: first.port, backlog: 4, reusePort }),
      );
    }
  } finally {
    closeFd(first.fd);
  }
});

test("listenTcp() refuses addresses that are not of this host, or no addresses", () => {
  const options = { port: 0, backlog: 4, reusePort: false };
  assertFails(
    "EADDRNOTAVAIL",
    /"192\.0\.2\.1"/,
    () => listenTcp({ ...options, host: "192.0.2.1" }),
  );
  assertFails("EINVAL", /"localhost"/, () => listenTcp({ ...options, host: "localhost" }));
});

test('listenTcp() on "::" leaves the IPv4 port to another listener', () => {
  const v6 = listenTcp({ host: "::", port: 0, backlog: 4, reusePort: false });
  try {
    const v4 = listenTcp({ host: "0.0.0.0", port: v6.port, backlog: 4, reusePort: false });
    closeFd(v4.fd);
    assertFails(
      "EADDRINUSE",
      /"\*"/,
      () => listenTcp({ host: "*", port: v6.port, backlog: 4, reusePort: false }),
    );
  } finally {
    closeFd(v6.fd);
  }
});

test("listenTcp() may use a port again right after its connections were closed", () =>
  withRig(async (rig) => {
    const options = { host: "127.0.0.1", backlog: 4, reusePort: false };
    const first = listenTcp({ ...options, port: 0 });
    const near = rig.peer(connectTcp("127.0.0.1", first.port), true);
    await rig.until("the connection", () => near.connected === 0);
    // The server closes first, so the port is left in TIME_WAIT.
    closeFd(accept(first.fd));
    closeFd(first.fd);
    await rig.until("end of file", () => near.ended === 0);
    near.stream.close();
    rig.own(listenTcp({ ...options, port: first.port }).fd);
  }));

test("listenUnix() gives the file exactly its mode, whatever the umask", () =>
  withFolder((folder) => {
    const original = process.umask();
    try {
      for (const umask of [0, 0o077, 0o777]) {
        process.umask(umask);
        for (const mode of [0o777, 0o660, 0o700, 0o600]) {
          const path = join(folder, `${umask}-${mode}`);
          const fd = listenUnix({ path, mode, backlog: 4 });
          closeFd(fd);
          assert.is(statSync(path).mode & 0o7777, mode);
        }
        assert.is(process.umask(), umask);
      }
    } finally {
      process.umask(original);
    }
  }));

test("listenUnix() replaces the file of a listener that is gone, not of one that lives", () =>
  withRig((rig) =>
    withFolder(async (folder) => {
      const path = join(folder, ".s.PGSQL.6432");
      closeFd(listenUnix({ path, mode: 0o600, backlog: 4 }));
      assert.ok(existsSync(path), "closing leaves the file, as a crash does");
      const fd = rig.own(listenUnix({ path, mode: 0o600, backlog: 4 }));
      assertFails("EADDRINUSE", /unix socket/, () => listenUnix({ path, mode: 0o600, backlog: 4 }));
      const near = rig.peer(connectUnix(path), true);
      await rig.until("the connection", () => near.connected === 0);
      // The probe of the second attempt came first and is gone again.
      const probe = rig.peer(accept(fd));
      await rig.until("the probe's end", () => probe.ended === 0);
      const far = rig.peer(accept(fd));
      near.send(encoder.encode("x"));
      await rig.until("the byte", () => far.text() === "x");
    })
  ));

test("listenUnix() takes a listener whose backlog is full for alive", () =>
  withRig((rig) =>
    withFolder((folder) => {
      const path = join(folder, "s");
      rig.own(listenUnix({ path, mode: 0o600, backlog: 1 }));
      for (let fd = connectUnix(path); fd >= 0; fd = connectUnix(path)) rig.own(fd);
      assertFails("EADDRINUSE", /unix socket/, () => listenUnix({ path, mode: 0o600, backlog: 4 }));
    })
  ));

test("listenUnix() and unlinkUnix() leave files of other kinds alone", () =>
  withFolder((folder) => {
    const path = join(folder, "precious");
    writeFileSync(path, "data");
    assertFails("EADDRINUSE", /precious/, () => listenUnix({ path, mode: 0o600, backlog: 4 }));
    unlinkUnix(path);
    assert.ok(existsSync(path));
    const socket = join(folder, "s");
    closeFd(listenUnix({ path: socket, mode: 0o600, backlog: 4 }));
    unlinkUnix(socket);
    assert.not(existsSync(socket));
    unlinkUnix(socket);
    unlinkUnix("@abstract");
  }));

test("listenUnix() on an abstract name makes no file, and the name is free once it is closed", () =>
  withRig(async (rig) => {
    const path = `@pgweir-listen-${process.pid}`;
    const first = listenUnix({ path, mode: 0o600, backlog: 4 });
    assertFails("EADDRINUSE", /@pgweir/, () => listenUnix({ path, mode: 0o600, backlog: 4 }));
    closeFd(first);
    const second = rig.own(listenUnix({ path, mode: 0o600, backlog: 4 }));
    const near = rig.peer(connectUnix(path), true);
    await rig.until("the connection", () => near.connected === 0);
    closeFd(accept(second));
    assert.not(existsSync(path));
  }));

test("listenUnix() says so when the folder is missing or the path too long", () =>
  withFolder((folder) => {
    const options = { mode: 0o600, backlog: 4 };
    assertFails(
      "ENOENT",
      /missing/,
      () => listenUnix({ ...options, path: join(folder, "missing", "s") }),
    );
    assertFails(
      "ENAMETOOLONG",
      /xxx/,
      () => listenUnix({ ...options, path: join(folder, "x".repeat(107)) }),
    );
  }));

/** Runs listen_child.ts; resolves with what it printed, rejects when it fails. */
function runChild(
  parameters: readonly string[],
  command: readonly string[],
  identity: { uid?: number; gid?: number } = {},
): Promise<string> {
  const script = fileURLToPath(new URL("./listen_child.ts", import.meta.url).href);
  const argv = [...command, ...runtimeCommand(), script, ...parameters];
  const cache = mkdtempSync(join(tmpdir(), "pgweir-cache-"));
  chmodSync(cache, 0o777);
  const child: ChildProcess = spawn(argv[0]!, argv.slice(1), {
    stdio: ["ignore", "pipe", "pipe"],
    // A child of another user cannot use this user's caches.
    env: { ...process.env, DENO_DIR: cache, HOME: cache },
    ...identity,
  });
  let output = "";
  child.stdout!.on("data", (data: Uint8Array) => output += Buffer.from(data).toString());
  child.stderr!.on("data", (data: Uint8Array) => output += Buffer.from(data).toString());
  const timer = setTimeout(() => process.kill(child.pid!, "SIGKILL"), 90_000);
  return new Promise<string>((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (code) => {
      if (code === 0) resolve(output);
      else {reject(
          new Error(`run the child "${parameters[0]}": exit code ${code}, wanted 0\n${output}`),
        );}
    });
  }).finally(() => {
    clearTimeout(timer);
    rmSync(cache, { recursive: true });
  });
}

test("accept() without descriptors returns -EMFILE, and a listener set aside recovers", async () => {
  const output = await runChild(["emfile"], ["/bin/sh", "-c", 'ulimit -n 80 && exec "$0" "$@"']);
  assert.match(output, /recovered/);
});

test("raiseFileLimit() lifts the soft limit to the hard one", async () => {
  const command = ["/bin/sh", "-c", 'ulimit -Sn 300 && ulimit -Hn 1500 && exec "$0" "$@"'];
  assert.match(await runChild(["limit"], command), /1500 1500/);
});

// Only root can become somebody who may not.
if (process.getuid!() === 0) {
  test("listenUnix() and connectUnix() fail with EACCES where the mode forbids it", () =>
    withRig((rig) =>
      withFolder(async (folder) => {
        chmodSync(folder, 0o755);
        rig.own(listenUnix({ path: join(folder, "private"), mode: 0o600, backlog: 4 }));
        rig.own(listenUnix({ path: join(folder, "public"), mode: 0o666, backlog: 4 }));
        const nobody = { uid: 65_534, gid: 65_534 };
        assert.match(await runChild(["eacces", folder], [], nobody), /refused/);
      })
    ));
}

test.run();
