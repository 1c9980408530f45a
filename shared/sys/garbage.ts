// Memory that is not used any more, given back to the system. An engine collects its garbage when it makes new
// objects or when its thread has nothing to do, and a thread that waits in epoll_wait does neither.
// Not for a hot path: it takes some milliseconds and more with many objects.

import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { foreign } from "./ffi.ts";
import { runtimeName } from "./runtime.ts";

interface BunGlobal {
  readonly Bun: { gc(synchronously: boolean): void };
}

let collect: (() => void) | null = null;

/** Collects this thread's garbage, all of it, and gives its memory back. */
export function collectGarbage(): void {
  collect ??= runtimeName === "bun" ? collectorOfBun() : collectorOfV8();
  collect();
}

function collectorOfBun(): () => void {
  const { Bun } = globalThis as unknown as BunGlobal;
  return () => Bun.gc(true);
}

/** V8 shows its collector only to contexts made under a flag. */
function collectorOfV8(): () => void {
  setFlagsFromString("--expose-gc");
  const gc = runInNewContext("gc") as () => void;
  setFlagsFromString("--no-expose-gc");
  const trim = trimOfGlibc();
  return () => {
    gc();
    trim();
  };
}

/** glibc keeps what is freed among what is used, unless it is asked; musl gives it back by itself. */
function trimOfGlibc(): () => void {
  try {
    const { malloc_trim } = foreign.open("libc.so.6", {
      malloc_trim: { parameters: ["i32"], result: "i32" },
    });
    return () => malloc_trim!(0);
  } catch {
    return () => {};
  }
}
