// What a log line becomes for syslog: RFC 3164 as the C library's syslog() writes it to /dev/log, under the
// process id of whoever logged the line. Pure.

import { Buffer } from "node:buffer";
import { type LogLevel, readLine } from "./line.ts";

export const syslogFacilities = {
  kern: 0,
  user: 1,
  mail: 2,
  daemon: 3,
  auth: 4,
  syslog: 5,
  lpr: 6,
  news: 7,
  uucp: 8,
  cron: 9,
  authpriv: 10,
  ftp: 11,
  local0: 16,
  local1: 17,
  local2: 18,
  local3: 19,
  local4: 20,
  local5: 21,
  local6: 22,
  local7: 23,
} as const;

export type SyslogFacility = keyof typeof syslogFacilities;

/** PgBouncer's. */
const severities: Record<LogLevel, number> = { fatal: 2, error: 3, warning: 4, info: 6, debug: 7 };

const months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

export interface SyslogOptions {
  readonly facility: SyslogFacility;
  readonly ident: string;
}

/** `line` as formatLine() made it, or any other text: that is an informative message of process `pid`. */
export function syslogPacket(
  line: string,
  { facility, ident }: SyslogOptions,
  now: Date,
  pid: number,
): Uint8Array {
  const text = line.trimEnd();
  const record = readLine(text) ?? { level: "info" as const, pid, message: text };
  const priority = syslogFacilities[facility] * 8 + severities[record.level];
  const two = (value: number) => String(value).padStart(2, "0");
  const time = [now.getHours(), now.getMinutes(), now.getSeconds()].map(two).join(":");
  const stamp = `${months[now.getMonth()]} ${String(now.getDate()).padStart(2, " ")} ${time}`;
  // As a line of JSON it stays one.
  const message = text.startsWith("{") ? text : record.message;
  return Buffer.from(`<${priority}>${stamp} ${ident}[${record.pid}]: ${message}`);
}
