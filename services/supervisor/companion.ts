// A process beside the workers of this host, its budget coordinator or its overload monitor: started again whenever it
// ends, until it is stopped. Its death is no matter of life and death: workers go on with what was leased to them,
// and refuse nothing that no monitor told them to. So nothing about it ever ends the host.

import type { Logger } from "../../shared/telemetry/mod.ts";
import { StartFailure } from "./failure.ts";
import { restartLimits, RestartPolicy } from "./restart.ts";
import { ServiceProcess } from "./service_process.ts";

export interface CompanionOptions {
  /** What it is, for people: "budget coordinator". */
  readonly title: string;
  /** argv. */
  readonly command: readonly string[];
  /** What it is handed on its standard input; asked at each start. */
  readonly input: () => string;
  /** The environment variable with its seat. */
  readonly variable: string;
  /** The value of that; asked at each start. */
  readonly seat: () => string;
  readonly logger: Logger;
  /** Takes a line that it wrote to its standard error. */
  readonly passOn: (line: string) => void;
  readonly random: () => number;
  /** From SIGTERM to SIGQUIT, and from SIGQUIT to SIGKILL. */
  readonly stopMs: number;
}

/** After a row of quick deaths. */
const loopDelayMs = 10_000;

export class Companion {
  readonly #options: CompanionOptions;
  readonly #policy: RestartPolicy;
  #process: ServiceProcess | null = null;
  #restart: NodeJS.Timeout | null = null;
  #stopped = false;
  #ended: () => void = () => {};

  constructor(options: CompanionOptions) {
    this.#options = options;
    this.#policy = new RestartPolicy(restartLimits, options.random);
  }

  start(): void {
    const { title, command, variable, seat, input, passOn, logger } = this.#options;
    try {
      this.#process = ServiceProcess.start({
        command,
        environment: { [variable]: seat() },
        input: input(),
        passOn,
        onEnd: (ended) => this.#onEnd(ended),
        onFailure: (failure) => this.#again(performance.now(), failure.message),
      });
    } catch (error) {
      if (!(error instanceof StartFailure)) throw error;
      return this.#again(performance.now(), error.message);
    }
    if (this.#process !== null) {
      logger.info(`the ${title} is started`, { pid: this.#process.pid });
    }
  }

  /** Writes to its standard input. */
  hand(text: string): void {
    this.#process?.hand(text);
  }

  /** Resolves when no process is left; it gives its leadership up before it ends. */
  async stop(): Promise<void> {
    this.#stopped = true;
    if (this.#restart !== null) clearTimeout(this.#restart);
    const running = this.#process;
    if (running === null) return;
    const { title, stopMs, logger } = this.#options;
    const ended = new Promise<void>((resolve) => this.#ended = resolve);
    running.stop(stopMs, () =>
      running.quit(stopMs, () => {
        logger.warning(`the ${title} does not end, killing it`, { pid: running.pid });
      }));
    await ended;
  }

  #onEnd(ended: ServiceProcess): void {
    if (this.#process !== ended) return;
    this.#process = null;
    if (this.#stopped) return this.#ended();
    // What one that was killed had said last is no reason.
    const reason = ended.end.startsWith("code") ? ended.lastMessage : "";
    this.#again(
      ended.startedAt,
      `the ${this.#options.title} ended with ${ended.end}${reason === "" ? "" : `: ${reason}`}`,
    );
  }

  #again(startedAt: number, what: string): void {
    if (this.#stopped) return;
    const verdict = this.#policy.onDeath(startedAt, performance.now());
    const delayMs = verdict.kind === "restart" ? verdict.delayMs : loopDelayMs;
    this.#options.logger.error(`${what}; starting another one in ${delayMs} ms`);
    this.#restart = setTimeout(() => this.start(), delayMs);
  }
}
