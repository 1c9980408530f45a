#!/usr/bin/env bun
// The one entry of pgweir: reads the command line and hands over to a service. No logic of its own. A
// service is loaded only by the command that needs it: workers, of which there are many, stay small.

import process from "node:process";
import { parseArguments } from "./supervisor/arguments.ts";

async function dispatch(): Promise<number> {
  const command = parseArguments(process.argv.slice(2));
  if (command.kind === "pooler") {
    const { runPooler } = await import("./pooler/main.ts");
    return await runPooler(command.file);
  }
  if (command.kind === "budget") {
    const { runBudget } = await import("./budget/main.ts");
    return await runBudget(command.file);
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
