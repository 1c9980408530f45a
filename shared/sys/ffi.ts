// The choice of the foreign function interface for the runtime at hand; a third runtime is one more
// back-end. Loading this on anything but Linux with Bun or Deno fails with a message that says so.
// Invariant: apart from the back-ends, no file in the tree imports an FFI module.

import { makeBunBackend } from "./ffi.bun.ts";
import { makeDenoBackend } from "./ffi.deno.ts";
import type { ForeignBackend } from "./foreign.ts";
import { runtimeName, runtimeVersion } from "./runtime.ts";

export const foreign: ForeignBackend = makeBackend();

function makeBackend(): ForeignBackend {
  if (process.platform !== "linux") {
    throw new Error(
      `load the system layer: the platform is "${process.platform}", wanted "linux"; elsewhere, ` +
        `run pgweir in Docker (deploy/Dockerfile)`,
    );
  }
  if (process.arch !== "x64" && process.arch !== "arm64") {
    throw new Error(
      `load the system layer: the processor is "${process.arch}", wanted "x64" or "arm64"`,
    );
  }
  if (runtimeName === "bun") return makeBunBackend();
  if (runtimeName === "deno") return makeDenoBackend();
  throw new Error(
    `load the system layer: the runtime is Node ${runtimeVersion()}, wanted Bun 1.4 or Deno 2.9`,
  );
}
