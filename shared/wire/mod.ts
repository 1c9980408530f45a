// The PostgreSQL protocol as bytes: frames, initial packets, messages, SCRAM, md5, cancel keys.
// No I/O, no timers, no state beyond a MessageReader and a SCRAM exchange.
// What a peer sent is answered with a returned union or null; WireError is thrown only by
// MessageReader (a damaged stream) and by builders (a value the protocol cannot carry).

export * from "./cancel_key.ts";
export { WireError, type WireProblem } from "./errors.ts";
export * from "./frame.ts";
export * from "./md5.ts";
export * from "./message_reader.ts";
export * from "./messages.ts";
export * from "./parsers.ts";
export * from "./saslprep.ts";
export * from "./scram.ts";
export {
  defaultScramIterations,
  deriveScramSecret,
  formatScramSecret,
  maxScramIterations,
  type MockScramSecret,
  mockScramSecret,
  parseScramSecret,
  saltedPassword,
  type ScramKeys,
  scramKeys,
  type ScramSecret,
  scramSecretMatches,
} from "./scram_keys.ts";
export { channelSteps, notifiedChannels, type Step, type StepKind } from "./sql_channels.ts";
export { deallocatesAll, type NamedStatement, namedStatements } from "./sql_deallocate.ts";
export { scanSql, SqlFlag } from "./sql_scan.ts";
export {
  noSettingNames,
  type SettingNames,
  settingNames,
  settingNamesInCode,
  type SettingStep,
} from "./sql_settings.ts";
export { beginsBlock, endsBlock, leavesBlock } from "./sql_transactions.ts";
export * from "./startup.ts";
export { findNul, latin1Bytes, latin1Text } from "./text.ts";
