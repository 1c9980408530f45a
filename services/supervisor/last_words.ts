// The message in a line that a worker logged, for the one line that says why the start failed: without the
// time, pid and level of PgBouncer's format, or out of a JSON line. Pure.

import { readLine } from "../../shared/telemetry/mod.ts";

export function messageOf(line: string): string {
  return readLine(line)?.message ?? line.replace(/^pgweir: /, "");
}
