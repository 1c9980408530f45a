// `pgweir up` with stand-ins for workers and with short times. Not a test: up_test.ts runs it.
// Arguments: the folder for fake_worker.ts, then what follows `pgweir` on the command line.

import { join } from "node:path";
import process from "node:process";
import { runtimeCommand } from "../../shared/sys/mod.ts";
import { parseArguments } from "../../services/supervisor/arguments.ts";
import { onSignals } from "../../services/supervisor/signals.ts";
import { Up } from "../../services/supervisor/up.ts";

const [folder, ...words] = process.argv.slice(2);
const command = parseArguments(words);
if (command.kind !== "up") throw new Error(JSON.stringify(command));
const up = new Up(command, {
  directory: process.cwd(),
  systemDirectory: join(folder!, "system"),
  environment: process.env,
  workerCommand: () => [...runtimeCommand(), join(import.meta.dirname!, "fake_worker.ts"), folder!],
  times: { readyMs: 10_000, drainMarginMs: 200, quitMs: 500, silentMs: 60_000 },
});
onSignals(up);
process.exit(await up.run());
