#!/usr/bin/env bun
// The one entry of pgweir: reads the command line and hands over to a service. No logic of its own. A
// service is loaded only by the command that needs it: workers, of which there are many, stay small.

import process from "node:process";
import { loneWorker, parseArguments } from "./supervisor/arguments.ts";

async function dispatch(): Promise<number> {
  const command = parseArguments(process.argv.slice(2));
  if ((command.kind === "pooler" || command.kind === "up") && command.options.daemon) {
    const { isInBackground, runInBackground } = await import("../shared/host/mod.ts");
    if (!isInBackground()) return await runInBackground();
  }
  if (command.kind === "pooler") {
    const { runPooler } = await import("./pooler/main.ts");
    const code = await runPooler(command.file, command.options);
    if (code !== "mesh") return code;
    const { runUp } = await import("./supervisor/main.ts");
    return await runUp(loneWorker(command));
  }
  if (command.kind === "budget") {
    const { runBudget } = await import("./budget/main.ts");
    return await runBudget(command.file);
  }
  if (command.kind === "overload") {
    const { runOverload } = await import("./overload/main.ts");
    return await runOverload(command);
  }
  const supervisor = await import("./supervisor/main.ts");
  switch (command.kind) {
    case "up":
      return await supervisor.runUp(command);
    case "check":
      return supervisor.runCheck(command.file);
    case "version":
      return supervisor.runVersion();
    case "help":
      return supervisor.runHelp();
    case "misuse":
      return supervisor.runMisuse(command.problem);
  }
}

process.exit(await dispatch());
