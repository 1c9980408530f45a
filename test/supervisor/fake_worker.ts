// A stand-in for a worker process, told what to do by files. Not a test: fleet_test.ts and up_test.ts
// run it. Its argument is a folder: `mode.<seat>` (or `mode`) has one word, see below, and a rest; it leaves
// `worker.<id>` there with what it was given, as JSON, once it is up.
//
// ready: serves until asked to end. silent: never gets ready. crash TEXT: says TEXT and exits with 3 (stand_in.ts
// does that). deaf: does not hear SIGTERM. stone: hears neither SIGTERM nor SIGQUIT. chatty: ready, and has much
// to say.

import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { connectBus } from "../../shared/bus/mod.ts";
import { createLogger } from "../../shared/telemetry/mod.ts";

const folder = process.argv[2]!;
const fleet = JSON.parse(process.env["PGWEIR_FLEET"]!);

function modeText(): string {
  for (const name of [`mode.${fleet.index}`, "mode"]) {
    const path = join(folder, name);
    if (existsSync(path)) return readFileSync(path, "utf8");
  }
  return "ready";
}

const [mode] = modeText().trim().split(" ");

function announce(): void {
  const path = join(folder, `worker.${fleet.workerId}`);
  writeFileSync(
    `${path}.new`,
    JSON.stringify({ ...fleet, pid: process.pid, ready: mode !== "silent" }),
  );
  renameSync(`${path}.new`, path);
}

/** Says on the bus, if there is one, that it is ready, as long as it lives. */
async function announceOnBus(): Promise<void> {
  const { busUrl, busToken, mesh, workerId: id } = fleet;
  const logger = createLogger({ component: "worker", level: "error", format: "text" });
  const name = `worker-${id}`;
  // With nats-servers the login is in their addresses.
  const token = busToken === "" ? undefined : busToken;
  const bus = await connectBus({ servers: [busUrl], token, name, mesh, logger });
  const presence = {
    id,
    incarnation: fleet.incarnation,
    host: "here",
    boot: "now",
    pid: process.pid,
    state: "ready",
    addresses: [],
    clients: 0,
    servers: 0,
    configMark: "",
    runtime: "fake 1.0",
  } as const;
  setInterval(() => bus.publish(bus.subjects.presence(id), presence), 50);
}

function finish(why: string, code: number): void {
  console.error(`worker ${fleet.workerId}: ${why}`);
  process.exit(code);
}

for (const signal of ["SIGTERM", "SIGINT"] as const) {
  process.on(signal, () => {
    if (mode === "deaf" || mode === "stone") {
      console.error(`worker ${fleet.workerId}: heard nothing`);
    } else finish("drained", 0);
  });
}
process.on("SIGQUIT", () => {
  if (mode !== "stone") finish("quit", 0);
});
/** Lines on standard input: the first one is what it starts with. */
let handed = 0;
process.stdin.on("data", (bytes: Uint8Array) => {
  for (const _ of new TextDecoder().decode(bytes).matchAll(/\n/g)) {
    if (handed++ > 0) console.error(`worker ${fleet.workerId}: reload`);
  }
});

setInterval(() => {
  // As a real worker does: no supervisor, no worker.
  if (process.ppid !== fleet.supervisorPid) finish("orphaned", 0);
}, 10);

if (mode === "chatty") {
  console.error("x".repeat(50_000));
}
announce();
if (fleet.busUrl !== undefined && mode !== "silent") await announceOnBus();
