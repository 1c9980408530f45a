// Which JavaScript runtime this process runs on, and how to start another one.
// Not here: system calls (libc.ts) and facts about other processes (process.ts).
// Invariant: nothing below needs FFI, so this file loads everywhere and can say what is missing.

import { accessSync, constants, realpathSync } from "node:fs";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";

export type RuntimeName = "bun" | "deno" | "node";

interface RuntimeGlobals {
  readonly Bun?: { readonly version: string; readonly isMainThread: boolean };
  readonly Deno?: { readonly version: { readonly deno: string } };
}

const globals = globalThis as unknown as RuntimeGlobals;

export const runtimeName: RuntimeName = globals.Bun !== undefined
  ? "bun"
  : globals.Deno !== undefined
  ? "deno"
  : "node";

/** False in a worker thread. node:worker_threads does not know web workers on Deno. */
export const isMainThread: boolean = globals.Bun?.isMainThread ??
  !("WorkerGlobalScope" in globalThis);

/** The version of the runtime itself, such as "1.4.5"; not the Node version that it claims. */
export function runtimeVersion(): string {
  return globals.Bun?.version ?? globals.Deno?.version.deno ?? process.versions.node;
}

/**
 * Bounds V8's space for new objects, in MiB: under connections that come and go it would grow for
 * minutes, to twice the memory of a worker, whatever is kept. Relaying makes no objects.
 */
const denoHeap = "--v8-flags=--max-semi-space-size=2";

/**
 * The argv prefix that runs a .ts file in a child: on the runtime of this process, or on the named
 * one, which is looked for in this package's node_modules and then in PATH.
 * Throws when the named runtime is not installed.
 */
export function runtimeCommand(name: RuntimeName = runtimeName): string[] {
  const path = name === runtimeName ? process.execPath : findRuntime(name);
  return name === "deno" ? [path, "run", "-A", denoHeap] : [path];
}

/** The argv that this process was started with. */
export function ownCommand(): string[] {
  return [...runtimeCommand(), ...process.argv.slice(1)];
}

function findRuntime(name: RuntimeName): string {
  const packaged = fileURLToPath(new URL("../../node_modules/.bin", import.meta.url).href);
  const folders = [packaged, ...(process.env["PATH"] ?? "").split(delimiter)];
  for (const folder of folders) {
    if (folder === "") continue;
    const path = join(folder, name);
    try {
      accessSync(path, constants.X_OK);
      // The real path, so that a later change of the link does not swap the runtime under a fleet.
      return realpathSync(path);
    } catch {
      continue;
    }
  }
  throw new Error(
    `find the runtime "${name}": neither in "${packaged}" nor in PATH, wanted an executable ` +
      `(run "npm install")`,
  );
}
