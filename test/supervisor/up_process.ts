// `pgweir up` with stand-ins for workers and coordinators and with short times. Not a test: up_test.ts and
// up_leased_test.ts run it. Arguments: the folder for the stand-ins, then what follows `pgweir` on the
// command line. In the environment: SILENT_MS, how long a worker may be silent; COMPANION_MS, how long a
// coordinator may take to end.

import { join } from "node:path";
import process from "node:process";
import { parseArguments } from "../../services/supervisor/arguments.ts";
import { onSignals } from "../../services/supervisor/signals.ts";
import { Up } from "../../services/supervisor/up.ts";
import { fakeCoordinator, fakeWorker } from "./stand_in.ts";

const [folder, ...words] = process.argv.slice(2);
const command = parseArguments(words);
if (command.kind !== "up") throw new Error(JSON.stringify(command));
const up = new Up(command, {
  directory: process.cwd(),
  systemDirectory: join(folder!, "system"),
  environment: process.env,
  workerCommand: () => fakeWorker(folder!),
  companionCommands: {
    coordinator: () => fakeCoordinator(folder!),
    monitor: () => fakeCoordinator(folder!),
  },
  times: {
    readyMs: 60_000,
    drainMarginMs: 200,
    quitMs: 500,
    silentMs: Number(process.env["SILENT_MS"] ?? 60_000),
    goodbyeMs: 30_000,
    companionMs: Number(process.env["COMPANION_MS"] ?? 60_000),
  },
});
onSignals(up);
process.exit(await up.run());
