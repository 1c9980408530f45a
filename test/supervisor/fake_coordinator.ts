// A stand-in for a budget coordinator, told what to do by the file `coordinator` in the folder that is its
// argument. Not a test: up_leased_test.ts runs it. It leaves `budget.<pid>` there with what it was given, as JSON,
// and answers goodbyes; it says each on its standard error.
//
// ready: as above. mute: answers no goodbye. crash TEXT: says TEXT and exits with 3 (stand_in.ts does that).
// stone: hears neither SIGTERM nor SIGQUIT.

import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { connectBus } from "../../shared/bus/mod.ts";
import { createLogger } from "../../shared/telemetry/mod.ts";

const folder = process.argv[2]!;
const seat = JSON.parse(process.env["PGWEIR_BUDGET"]!);
const order = join(folder, "coordinator");
const modeOf = () => existsSync(order) ? readFileSync(order, "utf8").trim() : "ready";

const mode = modeOf();
process.on("SIGTERM", () => {
  if (mode === "stone") return;
  console.error("coordinator: stopping");
  process.exit(0);
});
process.on("SIGQUIT", () => {
  if (mode !== "stone") process.exit(0);
});
/** Lines on standard input: the first one is what it starts with. */
let handed = 0;
process.stdin.on("data", (bytes: Uint8Array) => {
  for (const _ of new TextDecoder().decode(bytes).matchAll(/\n/g)) {
    if (handed++ > 0) console.error("coordinator: reload");
  }
});

setInterval(() => {
  // As a real one does: no supervisor, no coordinator. It may be gone before the bus was there.
  if (process.ppid !== seat.supervisorPid) process.exit(0);
}, 10);

const { busUrl, busToken, mesh, name } = seat;
const logger = createLogger({ component: "budget", level: "error", format: "text" });
const token = busToken === "" ? undefined : busToken;
const bus = await connectBus({ servers: [busUrl], token, name, mesh, logger });
bus.subscribe(bus.subjects.budgetGone, ({ worker, incarnation }) => {
  console.error(`coordinator: gone ${worker} ${incarnation}`);
  return modeOf() === "mute" ? new Promise<Record<never, never>>(() => {}) : {};
});
const path = join(folder, `budget.${process.pid}`);
writeFileSync(`${path}.new`, JSON.stringify({ ...seat, pid: process.pid }));
renameSync(`${path}.new`, path);
