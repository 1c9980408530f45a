// The commands of this folder, composed for the process they run in. No logic of their own.

import { join } from "node:path";
import process from "node:process";
import { reportLines } from "../../shared/config/mod.ts";
import { loadToCheck } from "../../shared/host/mod.ts";
import {
  pgweirVersion,
  runtimeCommand,
  runtimeName,
  runtimeVersion,
  setProcessName,
} from "../../shared/sys/mod.ts";
import { type UpCommand, usageText } from "./arguments.ts";
import { printError, printOut } from "./output.ts";
import { onSignals } from "./signals.ts";
import { Up } from "./up.ts";

const cli = join(import.meta.dirname!, "../cli.ts");

/** `pgweir up`: runs until it is told to stop; returns the exit code. */
export async function runUp(command: UpCommand): Promise<number> {
  setProcessName("pgweir");
  const up = new Up(command, {
    directory: process.cwd(),
    systemDirectory: "/var/lib/pgweir",
    environment: process.env,
    workerCommand: (runtime, file) => [
      ...runtimeCommand(runtime),
      cli,
      "pooler",
      ...Array<string>(command.options.verbose).fill("-v"),
      file,
    ],
    companionCommands: {
      coordinator: (runtime, file) => [...runtimeCommand(runtime), cli, "budget", file],
      monitor: (runtime, file) => [...runtimeCommand(runtime), cli, "overload", file],
    },
    times: {
      readyMs: 30_000,
      drainMarginMs: 2000,
      quitMs: 2000,
      silentMs: 30_000,
      goodbyeMs: 3000,
      companionMs: 3000,
    },
  });
  const forget = onSignals(up);
  try {
    return await up.run();
  } finally {
    forget();
  }
}

/** `pgweir check`: says everything that is wrong with a configuration; returns the exit code. */
export async function runCheck(file: string): Promise<number> {
  const loaded = await loadToCheck(file);
  printOut(`${reportLines(file, loaded).join("\n")}\n`);
  return loaded.config === null ? 1 : 0;
}

export function runVersion(): number {
  printOut(`pgweir ${pgweirVersion} (${runtimeName} ${runtimeVersion()})\n`);
  return 0;
}

export function runHelp(): number {
  printOut(usageText);
  return 0;
}

/** A command line that makes no sense; returns the exit code. */
export function runMisuse(problem: string): number {
  printError(`pgweir: ${problem}\n`);
  return 2;
}
