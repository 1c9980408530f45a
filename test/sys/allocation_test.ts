// The hot path makes no garbage: relaying more messages makes the collector run no more often.
// Counted in the collector's own log, in processes of their own. Blind to what a compiler removes,
// and to less than a few bytes per message; a second test shows that one small object is seen.
// limit: 600 s

import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { assert, suite } from "../support/harness.ts";
import { needs } from "../support/needs.ts";
import { runtimeCommand } from "../../shared/sys/mod.ts";

needs("openssl");
const test = suite("sys: allocation");

/** While these are relayed the code is not compiled yet, and numbers take memory. */
const WARM_UP = 60_000;
const MEASURED = 500_000;

/** How often the collector runs in a process that relays so many messages. */
function collections(messages: number, withGarbage: boolean, kind: "plain" | "tls"): number {
  const script = fileURLToPath(new URL("./allocation_child.ts", import.meta.url).href);
  const [program, ...prefix] = runtimeCommand();
  const log = execFileSync(
    "/bin/sh",
    [
      "-c",
      'exec "$0" "$@" 2>&1',
      program!,
      ...prefix,
      script,
      `${messages}`,
      `${withGarbage}`,
      kind,
    ],
    {
      encoding: "utf8",
      env: { ...process.env, BUN_JSC_logGC: "1", DENO_V8_FLAGS: "--trace-gc" },
      timeout: 200_000,
    },
  );
  assert.match(log, new RegExp(`relayed ${messages}`));
  // JavaScriptCore opens each collection with "[GC<"; V8 names the kind.
  return (log.match(/\[GC<|: Scavenge|: Mark-Compact/g) ?? []).length;
}

for (const kind of ["plain", "tls"] as const) {
  test(`Stream.recv(), Stream.send() and the reactor allocate nothing per message (${kind})`, () => {
    const before = collections(WARM_UP, false, kind);
    const after = collections(WARM_UP + MEASURED, false, kind);
    // One more for what the runtime does by itself in the longer time.
    assert.ok(after <= before + 1, `${before} collections became ${after}`);
  });
}

test("the measurement sees one small object per message", () => {
  const before = collections(WARM_UP, true, "plain");
  const after = collections(WARM_UP + MEASURED, true, "plain");
  assert.ok(after > before + 2, `${before} collections became ${after}`);
});

test.run();
