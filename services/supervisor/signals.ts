// The signals of this process, for as long as `pgweir up` runs. SIGHUP has two meanings: the operator's
// "read the configuration again", and the kernel's "the terminal you talk to is gone"; a daemon has no
// terminal, and nohup takes it away, so only a process that did talk to one can lose it.

import { closeSync, openSync } from "node:fs";
import { isatty } from "node:tty";
import process from "node:process";

export interface SignalTarget {
  stop(signal: "SIGINT" | "SIGTERM" | "SIGQUIT"): void;
  reload(): void;
  operate(signal: "SIGUSR1" | "SIGUSR2"): void;
}

/** Returns the way to stop listening. */
export function onSignals(target: SignalTarget): () => void {
  const hadTerminal = isatty(2);
  const handlers: [NodeJS.Signals, () => void][] = [
    ["SIGINT", () => target.stop("SIGINT")],
    ["SIGTERM", () => target.stop("SIGTERM")],
    ["SIGQUIT", () => target.stop("SIGQUIT")],
    ["SIGUSR1", () => target.operate("SIGUSR1")],
    ["SIGUSR2", () => target.operate("SIGUSR2")],
    ["SIGHUP", () => {
      if (hadTerminal && terminalIsGone()) target.stop("SIGTERM");
      else target.reload();
    }],
  ];
  for (const [name, handler] of handlers) process.on(name, handler);
  return () => {
    for (const [name, handler] of handlers) process.removeListener(name, handler);
  };
}

function terminalIsGone(): boolean {
  try {
    closeSync(openSync("/dev/tty", "r"));
    return false;
  } catch {
    return true;
  }
}
