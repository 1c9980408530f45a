// The door of the telemetry folder: what other folders may use of it.

export { createLogger, type Fields, type Logger, type LoggerOptions } from "./logger.ts";
export { isLogLevel, type LogFormat, type LogLevel, logLevels } from "./line.ts";
export { onceEvery } from "./once_every.ts";
