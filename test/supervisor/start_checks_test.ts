// What is asked before anything is started: is another pgweir there, is the port free.

import { spawn } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import process from "node:process";
import { assert, suite, until } from "../support/harness.ts";
import { signal } from "../support/processes.ts";
import { freePort, tempDir } from "../support/temp.ts";
import {
  closeFd,
  listenTcp,
  listenUnix,
  runtimeCommand,
  unlinkUnix,
} from "../../shared/sys/mod.ts";
import { StartFailure } from "../../services/supervisor/failure.ts";
import { lockInstance } from "../../services/supervisor/instance_lock.ts";
import { checkListen } from "../../services/supervisor/listen_check.ts";

const locks = suite("instance_lock");

locks("lockInstance() refuses a second holder by name and pid, until it is given back", () => {
  const folder = tempDir("lock");
  const release = lockInstance(folder);
  const expected = `start in "${folder}": another pgweir runs there (pid ${process.pid})`;
  assert.throws(
    () => lockInstance(folder),
    (error: Error) => error instanceof StartFailure && error.message === expected,
  );
  const other = join(folder, "other");
  mkdirSync(other);
  lockInstance(other)();
  release();
  lockInstance(folder)();
});

locks("the lock of a process that was killed is free at once", async () => {
  const folder = tempDir("lock");
  const module = new URL("../../services/supervisor/instance_lock.ts", import.meta.url).href;
  const holder = join(tempDir("holder"), "holder.ts");
  writeFileSync(
    holder,
    `import { lockInstance } from ${JSON.stringify(module)};
     lockInstance(${JSON.stringify(folder)});
     console.log("held");
     setInterval(() => {}, 1000);`,
  );
  const [program, ...args] = runtimeCommand();
  const child = spawn(program!, [...args, holder], { stdio: ["ignore", "pipe", "inherit"] });
  let held = false;
  let gone = false;
  child.stdout.on("data", () => held = true);
  child.on("close", () => gone = true);
  try {
    await until("the lock to be held", () => held);
    assert.throws(() => lockInstance(folder), new RegExp(`\\(pid ${child.pid}\\)$`));
  } finally {
    signal(child.pid!, "SIGKILL");
  }
  await until("the holder's end", () => gone);
  lockInstance(folder)();
});

locks.run();

const listening = suite("listen_check");

async function refusal(host: string, port: number): Promise<string> {
  try {
    await checkListen([{ host, port }], "remedy");
  } catch (error) {
    assert.instance(error, StartFailure);
    return (error as Error).message;
  }
  return "none";
}

listening(
  "checkListen() accepts a free port, by address, name and for all interfaces",
  async () => {
    const port = await freePort();
    for (const host of ["127.0.0.1", "localhost", "*", "0.0.0.0"]) {
      assert.is(await refusal(host, port), "none");
    }
    closeFd(listenTcp({ host: "127.0.0.1", port, backlog: 1, reusePort: false }).fd);
  },
);

listening("checkListen() refuses a port that others could share", async () => {
  // A second fleet of the same user took half of the connections of the first, and nobody noticed.
  const { fd, port } = listenTcp({ host: "127.0.0.1", port: 0, backlog: 1, reusePort: true });
  const text = `listen on 127.0.0.1:${port}: the port is taken, wanted a free one (remedy)`;
  assert.is(await refusal("127.0.0.1", port), text);
  closeFd(fd);
});

listening("checkListen() refuses what is taken, on all interfaces too", async () => {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as { port: number };
  assert.match(await refusal("127.0.0.1", port), /the port is taken/);
  assert.match(await refusal("*", port), /^listen on \*:\d+: the port is taken/);
  await new Promise((resolve) => server.close(resolve));
  assert.is(await refusal("127.0.0.1", port), "none");
});

listening("checkListen() says why an address is none of ours", async () => {
  assert.is(
    await refusal("192.0.2.1", 6432),
    "listen on 192.0.2.1:6432: this host has no such address",
  );
  assert.match(
    await refusal("no.such.host.invalid", 6432),
    /^listen_addr: look up "no\.such\.host\.invalid": /,
  );
});

// The address that a standby takes over is not there yet: the pooler there did not start.
listening("checkListen() returns the addresses of this host, as long as one is", async () => {
  const port = await freePort();
  const addresses = ["192.0.2.1", "127.0.0.1", "@abstract"].map((host) => ({ host, port }));
  const served = await checkListen(addresses, "remedy");
  assert.equal(served.map(({ host }) => host), ["127.0.0.1", "@abstract"]);
  assert.match(
    await checkListen([addresses[0]!, addresses[2]!], "remedy").then(() => "none", String),
    /: listen on 192\.0\.2\.1:\d+: this host has no such address$/,
  );
});

listening("checkListen() looks at unix sockets: live, stale, impossible", async () => {
  const folder = tempDir("sock");
  const path = join(folder, ".s.PGSQL.6432");
  assert.is(await refusal(folder, 6432), "none");
  const fd = listenUnix({ path, mode: 0o700, backlog: 1 });
  assert.is(await refusal(folder, 6432), `listen on "${path}": another process listens there`);
  closeFd(fd);
  assert.is(await refusal(folder, 6432), "none", "a file nobody listens on");
  unlinkUnix(path);
  assert.is(
    await refusal(join(folder, "no"), 6432),
    `listen in the directory "${join(folder, "no")}": no such file or directory`,
  );
});

listening.run();
