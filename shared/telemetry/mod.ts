// The door of the telemetry folder: what other folders may use of it.

export { createLogger, type Fields, type Logger, type LoggerOptions } from "./logger.ts";
export { isLogLevel, type LogFormat, type LogLevel, logLevels, readLine } from "./line.ts";
export { onceEvery } from "./once_every.ts";
export { LogOutput, type LogTargets, logTargets } from "./output.ts";
export { type SyslogFacility } from "./syslog.ts";
