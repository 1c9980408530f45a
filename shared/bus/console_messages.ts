// The messages by which commands of the admin console reach all workers of a mesh: from the worker whose console
// was used to the supervisor of each host, and from there to its workers. Pure.

import type {
  Answer,
  Command,
  CommandRefusal,
  OperatorState,
  ShutdownMode,
} from "../console/mod.ts";
import { checkItems, fieldsOf, isCount, isOneOf, isText } from "./checks.ts";
import type { Payload } from "./payload.ts";

/** A command; `again`: it was given before, and only what is left of it is asked. */
export interface ConsoleRequest {
  readonly command: Command;
  readonly again: boolean;
}

/** The same for one worker, with what all commands so far have made of the pooler. */
export interface WorkerTask extends ConsoleRequest {
  readonly state: OperatorState;
}

/** What a worker has done; see `Work` in shared/console. */
export interface WorkerTaskReply {
  readonly left: number;
  readonly found: boolean;
}

const maxText = 512;
const maxMessage = 4096;
const maxDatabases = 2000;
const maxBytes = 256 * 1024;
const shutdownModes: readonly ShutdownMode[] = ["now", "servers", "clients"];
const databaseKinds = [
  "pause",
  "resume",
  "kill",
  "reconnect",
  "wait_close",
  "disable",
  "enable",
] as const;

function checkCommand(raw: unknown): Command | null {
  const { kind, key, value, mode, database, client } = fieldsOf(raw);
  if (kind === "reload" || kind === "suspend") return { kind };
  if (kind === "set") {
    return isText(key, maxText) && isText(value, maxText) ? { kind, key, value } : null;
  }
  if (kind === "shutdown") return isOneOf(mode, shutdownModes) ? { kind, mode } : null;
  if (kind === "kill_client") return isCount(client) ? { kind, client } : null;
  if (!isOneOf(kind, databaseKinds)) return null;
  return database === null || isText(database, maxText) ? { kind, database } : null;
}

function checkState(raw: unknown): OperatorState | null {
  const { revision, paused, suspended, pausedDatabases, disabledDatabases } = fieldsOf(raw);
  const names = (list: unknown) =>
    checkItems(list, maxDatabases, (name) => isText(name, maxText) ? name : null);
  const [held, disabled] = [names(pausedDatabases), names(disabledDatabases)];
  if (!isCount(revision) || typeof paused !== "boolean" || typeof suspended !== "boolean") {
    return null;
  }
  if (held === null || disabled === null) return null;
  return { revision, paused, suspended, pausedDatabases: held, disabledDatabases: disabled };
}

export const consoleRequestPayload: Payload<ConsoleRequest> = {
  name: "console request",
  version: 1,
  check(raw) {
    const command = checkCommand(raw["command"]);
    const { again } = raw;
    return command === null || typeof again !== "boolean" ? null : { command, again };
  },
};

function checkRefusal(raw: unknown): CommandRefusal | null {
  const { code, message, hint } = fieldsOf(raw);
  if (!isText(code, 5) || !isText(message, maxMessage)) return null;
  if (hint === undefined) return { code, message };
  return isText(hint, maxMessage) ? { code, message, hint } : null;
}

export const consoleAnswerPayload: Payload<Answer> = {
  name: "console answer",
  version: 1,
  check({ refusal, notice, left }) {
    const checked = refusal === null ? null : checkRefusal(refusal);
    if (refusal !== null && checked === null) return null;
    if (notice !== null && !isText(notice, maxMessage)) return null;
    if (left !== -1 && !isCount(left)) return null;
    return { refusal: checked, notice, left: left as number };
  },
};

export const workerTaskPayload: Payload<WorkerTask> = {
  name: "worker task",
  version: 1,
  maxBytes,
  check(raw) {
    const request = consoleRequestPayload.check(raw);
    const state = checkState(raw["state"]);
    return request === null || state === null ? null : { ...request, state };
  },
};

export const workerTaskReplyPayload: Payload<WorkerTaskReply> = {
  name: "worker task reply",
  version: 1,
  check({ left, found }) {
    return isCount(left) && typeof found === "boolean" ? { left, found } : null;
  },
};
