// Turns a log record into one line, in PgBouncer's shape or as JSON. Pure: no clock, no output.
// Invariants: exactly one newline, at the end; at most `maxLineBytes`, so that one write to a pipe
// is atomic and lines of several processes never mix; no value under a secret's name; never throws,
// whatever a field holds.

import { Buffer } from "node:buffer";
import { escapeControls, isSecretName, redacted, withoutUrlCredentials } from "./redact.ts";

export const logLevels = ["debug", "info", "warning", "error", "fatal"] as const;
export type LogLevel = (typeof logLevels)[number];
export type LogFormat = "text" | "json";

export function isLogLevel(value: unknown): value is LogLevel {
  return typeof value === "string" && (logLevels as readonly string[]).includes(value);
}

/** PgBouncer's names of the levels. */
const levelNames: Record<LogLevel, string> = {
  debug: "DEBUG",
  info: "LOG",
  warning: "WARNING",
  error: "ERROR",
  fatal: "FATAL",
};

/** PIPE_BUF on Linux: writes up to this size to a pipe are not interleaved with others. */
export const maxLineBytes = 4096;
const maxTextCharacters = 2048;
const maxDepth = 3;
const maxEntries = 32;
const maxFields = 32;

export type Fields = Readonly<Record<string, unknown>>;

export interface LogRecord {
  /** Milliseconds since the epoch. */
  readonly time: number;
  readonly pid: number;
  readonly level: LogLevel;
  readonly component: string;
  readonly message: string;
  readonly fields: Fields;
}

function clip(text: string): string {
  if (text.length <= maxTextCharacters) return text;
  const end = isLeadSurrogate(text, maxTextCharacters - 1)
    ? maxTextCharacters - 1
    : maxTextCharacters;
  return `${text.slice(0, end)}...`;
}

function isLeadSurrogate(text: string, index: number): boolean {
  const code = text.charCodeAt(index);
  return code >= 0xd800 && code <= 0xdbff;
}

/** Clipped first, so that the work is bounded however long the text is. */
function safeText(text: string): string {
  return escapeControls(withoutUrlCredentials(clip(text)));
}

type Plain = string | number | boolean | null | Plain[] | { [name: string]: Plain };

/** The value as plain data: secrets replaced, depth and size bounded, strings still unescaped. */
function plain(value: unknown, depth: number): Plain {
  switch (typeof value) {
    case "string":
      return withoutUrlCredentials(clip(value));
    case "number":
      return Number.isFinite(value) ? value : String(value);
    case "boolean":
      return value;
    case "bigint":
      return clip(value.toString());
    case "object":
      return value === null ? null : plainObject(value, depth);
    default:
      return typeof value;
  }
}

function plainObject(value: object, depth: number): Plain {
  if (value instanceof Error) return withoutUrlCredentials(clip(errorText(value)));
  if (ArrayBuffer.isView(value)) return `[${value.byteLength} bytes]`;
  if (value instanceof Date) {
    return Number.isNaN(value.getTime()) ? "Invalid Date" : value.toISOString();
  }
  if (depth >= maxDepth) return "[...]";
  if (Array.isArray(value)) {
    const items = value.slice(0, maxEntries).map((item) => plain(item, depth + 1));
    if (value.length > maxEntries) items.push("...");
    return items;
  }
  const result: { [name: string]: Plain } = {};
  for (const [name, item] of Object.entries(value).slice(0, maxEntries)) {
    result[clip(name)] = isSecretName(name) ? redacted : plain(item, depth + 1);
  }
  return result;
}

/** An error and its causes in one text, `connect: ... (ECONNREFUSED): ...`; no stack. */
function errorText(error: Error): string {
  const parts: string[] = [];
  let current: unknown = error;
  for (let depth = 0; current instanceof Error && depth < maxDepth; depth += 1) {
    const code = (current as { code?: unknown }).code;
    const message = current.message || current.name;
    parts.push(
      typeof code === "string" && !message.includes(code) ? `${message} (${code})` : message,
    );
    current = current.cause;
  }
  return parts.join(": ");
}

function plainFields(fields: Fields): [string, Plain][] {
  const result: [string, Plain][] = [];
  for (const name of Object.keys(fields).slice(0, maxFields)) {
    const value = isSecretName(name) ? redacted : plainField(fields, name);
    if (value !== undefined) result.push([fieldName(name), value]);
  }
  return result;
}

/** A getter, a proxy or a `message` of its own may throw; a log call must not. */
function plainField(fields: Fields, name: string): Plain | undefined {
  try {
    const value = fields[name];
    return value === undefined ? undefined : plain(value, 0);
  } catch {
    return "[unprintable]";
  }
}

function fieldName(name: string): string {
  return name.slice(0, 64).replace(/[^A-Za-z0-9_.-]/g, "_") || "_";
}

const bare = /^[A-Za-z0-9_.,:/@+-]+$/;

function textValue(value: Plain): string {
  if (typeof value === "string") {
    if (bare.test(value) || value === redacted) return value;
    return `"${escapeControls(value.replace(/["\\]/g, "\\$&"))}"`;
  }
  if (typeof value === "object" && value !== null) return escapeControls(JSON.stringify(value));
  return String(value);
}

/** Cuts a line that is too long at a character boundary, and says so. */
function boundText(line: string): string {
  const bytes = Buffer.from(line, "utf8");
  if (bytes.length < maxLineBytes) return `${line}\n`;
  const mark = " [truncated]\n";
  let end = maxLineBytes - mark.length;
  while (end > 0 && ((bytes[end] ?? 0) & 0xc0) === 0x80) end -= 1;
  return bytes.toString("utf8", 0, end) + mark;
}

function formatText(record: LogRecord): string {
  const time = new Date(record.time).toISOString().replace("T", " ").replace("Z", " UTC");
  let line = `${time} [${record.pid}] ${levelNames[record.level]} ${safeText(record.message)}`;
  for (const [name, value] of plainFields(record.fields)) line += ` ${name}=${textValue(value)}`;
  return boundText(line);
}

function formatJson(record: LogRecord): string {
  const entry: Record<string, Plain> = {
    time: new Date(record.time).toISOString(),
    pid: record.pid,
    level: record.level,
    component: record.component.slice(0, 64),
    message: withoutUrlCredentials(clip(record.message)),
  };
  const fixed = Object.keys(entry).length;
  for (const [name, value] of plainFields(record.fields)) {
    entry[name in entry ? `${name}_` : name] = value;
  }
  // Cutting the text would break the JSON: fields go first, the last one first.
  const names = Object.keys(entry).slice(fixed);
  let line = escapeControls(JSON.stringify(entry));
  while (Buffer.byteLength(line) >= maxLineBytes) {
    entry.truncated = true;
    const name = names.pop();
    if (name !== undefined) delete entry[name];
    else entry.message = `${withoutUrlCredentials(record.message.slice(0, 256))}...`;
    line = escapeControls(JSON.stringify(entry));
  }
  return `${line}\n`;
}

const textLine = /^\d{4}-\d\d-\d\d [\d:.]+ \S+ \[(\d+)\] ([A-Z]+) (.*)$/s;
const levelOfName = new Map(logLevels.map((level) => [levelNames[level], level]));

/** Takes a line of either format apart again; null when it is none. A closing newline is no part of it. */
export function readLine(
  line: string,
): { readonly level: LogLevel; readonly pid: number; readonly message: string } | null {
  if (line.startsWith("{")) return readJson(line);
  const match = textLine.exec(line);
  const level = levelOfName.get(match?.[2] ?? "");
  if (match === null || level === undefined) return null;
  return { level, pid: Number(match[1]), message: (match[3] as string).trimEnd() };
}

function readJson(line: string): ReturnType<typeof readLine> {
  try {
    const { level, pid, message } = JSON.parse(line);
    if (!isLogLevel(level) || typeof pid !== "number" || typeof message !== "string") return null;
    return { level, pid, message };
  } catch {
    return null;
  }
}

/** One line that ends with its only newline, at most `maxLineBytes` long. */
export function formatLine(format: LogFormat, record: LogRecord): string {
  return format === "json" ? formatJson(record) : formatText(record);
}
