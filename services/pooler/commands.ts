// Commands that clients of this worker's console give: passes them on to who has them carried out, waits for the
// end of those that wait, and undoes them when their client does not wait so long.

import type { Answer, Command, Outcome } from "../../shared/console/mod.ts";
import { undoing, waits } from "../../shared/console/mod.ts";
import type { Logger } from "../../shared/telemetry/mod.ts";

/** Has commands carried out by all whom they concern: an Executor here, or those of the hosts of the mesh. */
export interface Authority {
  execute(command: Command): Promise<Answer>;
  left(command: Command): Promise<Answer>;
}

/** Between two looks at how much is left. */
const lookMs = 50;

export class Commands {
  readonly #authority: Authority;
  readonly #logger: Logger;
  /** Those that are not over, by id. */
  readonly #open = new Set<number>();
  readonly #onOutcome: (id: number, outcome: Outcome) => void;

  constructor(
    authority: Authority,
    logger: Logger,
    onOutcome: (id: number, outcome: Outcome) => void,
  ) {
    this.#authority = authority;
    this.#logger = logger;
    this.#onOutcome = onOutcome;
  }

  give(id: number, command: Command, user: string): void {
    this.#logger.info(`${describe(command)} command issued by "${user}"`);
    this.#open.add(id);
    void this.#run(id, command).then((outcome) => {
      if (this.#open.delete(id)) this.#onOutcome(id, outcome);
    });
  }

  /** Nobody waits for its outcome. */
  abandon(id: number): void {
    this.#open.delete(id);
  }

  async #run(id: number, command: Command): Promise<Outcome> {
    const answer = await this.#authority.execute(command);
    const { refusal } = answer;
    let { notice, left } = answer;
    if (refusal !== null || !waits(command)) return { refusal, notice };
    while (left > 0 && this.#open.has(id)) {
      await new Promise((resolve) => setTimeout(resolve, lookMs));
      const look = await this.#authority.left(command);
      left = look.left;
      // Who can't be asked any more is not known to have come to the end.
      notice = look.notice ?? notice;
    }
    if (!this.#open.has(id)) {
      const undo = left === -1 ? null : undoing(command);
      if (undo !== null) {
        this.#logger.info(`${describe(command)} is cancelled: ${describe(undo)}`);
        const undone = await this.#authority.execute(undo);
        if (undone.notice !== null) this.#logger.warning(`${describe(undo)}: ${undone.notice}`);
      }
    } else if (left === -1) {
      const message = `${describe(command)} was ended by RESUME`;
      return { refusal: { code: "57014", message }, notice };
    }
    return { refusal, notice };
  }
}

/** As it may stand in the log: values of settings may be secret. */
function describe(command: Command): string {
  const word = command.kind.toUpperCase();
  if ("database" in command && command.database !== null) return `${word} '${command.database}'`;
  switch (command.kind) {
    case "set":
      return `${word} ${command.key}`;
    case "kill_client":
      return `${word} ${command.client}`;
    case "shutdown":
      return command.mode === "now"
        ? word
        : `${word} WAIT_FOR_${command.mode === "servers" ? "SERVERS" : "CLIENTS"}`;
    default:
      return word;
  }
}
