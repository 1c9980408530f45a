// The message in a line that a worker logged, for the one line that says why the start failed: without the
// time, pid and level of PgBouncer's format, or out of a JSON line. Pure.

const pgbouncerPrefix = /^\d{4}-\d\d-\d\d [\d:.]+ \S+ \[\d+\] [A-Z]+ /;

export function messageOf(line: string): string {
  const text = line.replace(pgbouncerPrefix, "").replace(/^pgweir: /, "");
  if (!text.startsWith("{")) return text;
  try {
    const { message } = JSON.parse(text);
    return typeof message === "string" ? message : text;
  } catch {
    return text;
  }
}
