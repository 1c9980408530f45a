// Memory of what was dropped, given back to the system on demand, also by a thread that does nothing else.

import { assert, suite } from "../support/harness.ts";
import { collectGarbage, processUsage } from "../../shared/sys/mod.ts";

const test = suite("sys: garbage");
const mib = 1024 * 1024;

function residentMib(): number {
  return processUsage(process.pid)!.residentBytes / mib;
}

/** Not one large block: those an allocator gives back by itself. */
function growBy(size: number): Uint8Array[] {
  return Array.from({ length: size * 1024 }, (_, i) => new Uint8Array(1024).fill(i));
}

test("collectGarbage() gives back what was dropped", () => {
  collectGarbage();
  const before = residentMib();
  const held = [growBy(80)];
  const largest = residentMib();
  assert.ok(largest > before + 60, `${before} MiB, then ${largest} MiB`);
  held.length = 0;
  collectGarbage();
  const after = residentMib();
  assert.ok(after < before + 30, `${before} MiB, ${largest} MiB, then ${after} MiB`);
});

test.run();
