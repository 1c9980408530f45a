// Door of shared/console: commands of the admin console that concern all workers, and who has them carried out.

export {
  type Command,
  type CommandRefusal,
  type DatabaseCommand,
  done,
  type Outcome,
  refused,
  refusedWith,
  reloadFailed,
  setFailed,
  type ShutdownMode,
  tlsKept,
  undoing,
  waits,
} from "./commands.ts";
export { type Answer, Executor, silentNotice, type Work, type Workforce } from "./executor.ts";
export { advance, type OperatorState, untouched } from "./operator_state.ts";
