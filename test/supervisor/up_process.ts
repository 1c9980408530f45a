// `pgweir up` with stand-ins for workers and coordinators and with short times. Not a test: up_test.ts and
// up_leased_test.ts run it. Arguments: the folder for the stand-ins, then what follows `pgweir` on the
// command line. SILENT_MS in the environment is how long a worker may be silent.

import { join } from "node:path";
import process from "node:process";
import { runtimeCommand } from "../../shared/sys/mod.ts";
import { parseArguments } from "../../services/supervisor/arguments.ts";
import { onSignals } from "../../services/supervisor/signals.ts";
import { Up } from "../../services/supervisor/up.ts";

const [folder, ...words] = process.argv.slice(2);
const command = parseArguments(words);
if (command.kind !== "up") throw new Error(JSON.stringify(command));
const standIn = (name: string) => [
  ...runtimeCommand(),
  join(import.meta.dirname!, name),
  folder!,
];
const up = new Up(command, {
  directory: process.cwd(),
  systemDirectory: join(folder!, "system"),
  environment: process.env,
  workerCommand: () => standIn("fake_worker.ts"),
  companionCommands: {
    coordinator: () => standIn("fake_coordinator.ts"),
    monitor: () => standIn("fake_coordinator.ts"),
  },
  times: {
    readyMs: 10_000,
    drainMarginMs: 200,
    quitMs: 500,
    silentMs: Number(process.env["SILENT_MS"] ?? 60_000),
    goodbyeMs: 3000,
    companionMs: 500,
  },
});
onSignals(up);
process.exit(await up.run());
