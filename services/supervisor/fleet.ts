// The worker processes of one host: starts them, restarts those that die, drains them. Decisions are in
// fleet_table.ts, restart.ts and worker_ids.ts; this file has the processes and the timers.
//
// A worker is ready when the bus says so, not when its process runs. Its standard error is passed on line
// by line; the last line of one that ends during the first start is why the start failed. Workers lead
// process groups of their own: a Ctrl-C at the terminal is for the supervisor, which asks them to drain.

import type { ChildProcess } from "node:child_process";
import process from "node:process";
import type { Logger } from "../../shared/telemetry/mod.ts";
import { StartFailure } from "./failure.ts";
import { FleetTable } from "./fleet_table.ts";
import { messageOf } from "./last_words.ts";
import { LineSplitter } from "./output.ts";
import { signalProcess, startProcess } from "./processes.ts";
import { restartLimits, RestartPolicy } from "./restart.ts";
import { WorkerIds } from "./worker_ids.ts";

export interface FleetTimes {
  /** From the start of a process until it must have said that it is ready. */
  readonly readyMs: number;
  /** From SIGTERM to SIGQUIT; null: for ever. */
  readonly drainMs: number | null;
  /** From SIGQUIT to SIGKILL. */
  readonly quitMs: number;
  /** A ready worker that has said nothing on the bus for so long hangs, and is ended. */
  readonly silentMs: number;
}

export interface FleetOptions {
  readonly count: number;
  /** argv of a worker. */
  readonly command: readonly string[];
  /** The value of PGWEIR_FLEET for the worker in a seat. */
  readonly seat: (index: number, workerId: number) => string;
  readonly times: FleetTimes;
  readonly logger: Logger;
  /** Takes a line that a worker wrote to its standard error. */
  readonly passOn: (line: string) => void;
  readonly random: () => number;
  /** Whether what workers say on the bus reaches us now: their silence means nothing otherwise. */
  readonly busConnected: () => boolean;
  /** Ids that workers of other hosts use. */
  readonly seenElsewhere: (workerId: number) => boolean;
}

interface Worker {
  readonly index: number;
  readonly id: number;
  readonly child: ChildProcess;
  readonly pid: number;
  readonly startedAt: number;
  readonly lines: LineSplitter;
  /** How it ended, once it has: its pid is no longer ours to signal. */
  end: string | null;
  /** Ends it when it does not get ready, or does not stop. */
  timer: NodeJS.Timeout | null;
}

/**
 * starting: the first start, where any end of a worker is a failure. running: workers that die are
 * restarted. stopping: nothing is started any more. The states only go forward.
 */
type Phase = "starting" | "running" | "stopping";

const lastWordsMs = 500;

/** False when it has ended. */
function signalWorker(worker: Worker, signal: NodeJS.Signals): boolean {
  return worker.end === null && signalProcess(worker.pid, signal);
}

export class Fleet {
  readonly #options: FleetOptions;
  readonly #table: FleetTable;
  readonly #ids: WorkerIds;
  readonly #policies: RestartPolicy[];
  readonly #workers: (Worker | null)[];
  readonly #restarts = new Set<NodeJS.Timeout>();
  #phase: Phase = "starting";
  #started: { resolve: () => void; reject: (failure: StartFailure) => void } | null = null;
  #allEnded: (() => void) | null = null;
  #drained: Promise<void> | null = null;

  /** Called once, when workers crash over and over; the fleet then restarts nothing more. */
  onGiveUp: (reason: string) => void = () => {};

  constructor(options: FleetOptions) {
    this.#options = options;
    this.#table = new FleetTable(options.count);
    this.#ids = new WorkerIds(options.random);
    this.#workers = Array.from({ length: options.count }, () => null);
    this.#policies = this.#workers.map(() => new RestartPolicy(restartLimits, options.random));
  }

  /**
   * Starts all workers; resolves when all are ready, rejects when one ends or is late. Where the bus can't
   * be reached, workers that still run when they should be ready count as ready.
   */
  start(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#started = { resolve, reject };
      try {
        for (let index = 0; index < this.#options.count; index++) this.#startWorker(index);
      } catch (error) {
        if (!(error instanceof StartFailure)) throw error;
        this.#failStart(error);
      }
    });
  }

  /**
   * A worker announced itself ready on the bus: ours when both its id and its pid are. Returns whether one
   * of ours became ready by it.
   */
  onReady(workerId: number, pid: number): boolean {
    const worker = this.#workers.find((one) => one?.id === workerId && one.pid === pid);
    if (worker === undefined || worker === null) return false;
    if (this.#table.announced(workerId) === null) return false;
    if (this.#phase !== "stopping") this.#awaitSign(worker);
    this.#options.logger.info(`worker ${worker.id} is ready`, { pid: worker.pid });
    if (this.#table.allReady) this.#finishStart();
    return true;
  }

  /** A worker announced itself, whatever its state: it lives. */
  heard(workerId: number, pid: number): void {
    const worker = this.#workers.find((one) => one?.id === workerId && one.pid === pid);
    if (worker === undefined || worker === null || this.#phase === "stopping") return;
    if (this.#table.stateOf(worker.index) === "ready" && worker.end === null) {
      this.#awaitSign(worker);
    }
  }

  /**
   * Sends SIGHUP to every ready worker; one that is still starting may not listen for it and would die of
   * it, and it reads the present configuration anyway. Returns how many got it.
   */
  reload(): number {
    return this.#workers.filter((worker) =>
      worker !== null && this.#table.stateOf(worker.index) === "ready" &&
      signalWorker(worker, "SIGHUP")
    ).length;
  }

  /**
   * Lets workers finish what they do, within drainMs; resolves when none is left. Asked again it only
   * waits: a second SIGTERM would end a worker at once.
   */
  drain(): Promise<void> {
    this.#drained ??= this.#stop("SIGTERM", () => {
      for (const worker of this.#workers) {
        if (worker === null || worker.end !== null) continue;
        this.#setTimer(worker, this.#options.times.drainMs, () => this.#quitWorker(worker));
      }
    });
    return this.#drained;
  }

  /** Ends workers at once; also while they drain. Resolves when none is left. */
  quit(): Promise<void> {
    return this.#stop(null, () => {
      for (const worker of this.#workers) if (worker !== null) this.#quitWorker(worker);
    });
  }

  #startWorker(index: number): void {
    const { command, seat, seenElsewhere, times, passOn } = this.#options;
    const id = this.#ids.take(seenElsewhere);
    const lines = new LineSplitter(passOn);
    let child: ChildProcess;
    try {
      child = startProcess(
        command[0]!,
        command.slice(1),
        {
          // Standard output is for the supervisor's ready text; what a worker prints is a message.
          stdio: ["ignore", 2, "pipe"],
          detached: true,
          env: { ...process.env, PGWEIR_FLEET: seat(index, id) },
        },
        (failure) => {
          this.#ids.release(id);
          this.#spawnFailed(index, failure);
        },
      );
      if (child.pid === undefined) return;
    } catch (error) {
      this.#ids.release(id);
      throw error;
    }
    const worker: Worker = {
      index,
      id,
      child,
      pid: child.pid,
      startedAt: performance.now(),
      lines,
      end: null,
      timer: null,
    };
    this.#workers[index] = worker;
    this.#table.started(index, id);
    child.stderr!.on("data", (chunk: Uint8Array) => lines.push(chunk));
    child.on("exit", (code, signal) => {
      worker.end = signal ?? `code ${code}`;
      // "close" follows when its last words are read; unless a process it started holds the pipe.
      this.#setTimer(worker, lastWordsMs, () => this.#onEnd(worker));
    });
    child.on("close", () => this.#onEnd(worker));
    this.#setTimer(worker, times.readyMs, () => this.#onLate(worker));
  }

  #spawnFailed(index: number, failure: StartFailure): void {
    if (this.#phase === "starting") this.#failStart(failure);
    else this.#restartLater(index, performance.now(), failure.message);
  }

  #onLate(worker: Worker): void {
    const { busConnected, times, logger } = this.#options;
    if (!busConnected()) {
      if (this.#phase === "starting") {
        logger.warning("the bus can't be reached: whether the workers are ready is not known");
        this.#finishStart();
      }
      this.#setTimer(worker, times.readyMs, () => this.#onLate(worker));
      return;
    }
    const late = `is not ready after ${times.readyMs / 1000} s`;
    if (this.#phase === "starting") {
      return this.#failStart(new StartFailure(`start worker ${worker.id}: it ${late}`));
    }
    logger.error(`worker ${worker.id} ${late}, ending it`, { pid: worker.pid });
    this.#quitWorker(worker);
  }

  #awaitSign(worker: Worker): void {
    this.#setTimer(worker, this.#options.times.silentMs, () => this.#onSilent(worker));
  }

  #onSilent(worker: Worker): void {
    const { busConnected, times, logger } = this.#options;
    if (!busConnected()) return this.#awaitSign(worker);
    const what = `worker ${worker.id} has been silent for ${times.silentMs / 1000} s, ending it`;
    logger.error(what, { pid: worker.pid });
    this.#quitWorker(worker);
  }

  #onEnd(worker: Worker): void {
    const { index, id, end } = worker;
    if (this.#workers[index] !== worker) return;
    this.#setTimer(worker, null);
    worker.lines.end();
    this.#workers[index] = null;
    this.#table.died(index);
    this.#ids.release(id);
    switch (this.#phase) {
      case "starting": {
        const reason = messageOf(worker.lines.last) || "it printed no reason";
        return this.#failStart(
          new StartFailure(`start worker ${id}: it ended with ${end}: ${reason}`),
        );
      }
      case "running":
        return this.#restartLater(index, worker.startedAt, `worker ${id} ended with ${end}`);
      case "stopping":
        if (this.#workers.every((other) => other === null)) this.#allEnded?.();
    }
  }

  #restartLater(index: number, startedAt: number, what: string): void {
    const verdict = this.#policies[index]!.onDeath(startedAt, performance.now());
    if (verdict.kind === "give_up") {
      this.#phase = "stopping";
      const seconds = (verdict.withinMs / 1000).toFixed(1);
      this.onGiveUp(`${what}; that was death ${verdict.deaths} in ${seconds} s, giving up`);
      return;
    }
    this.#options.logger.error(`${what}, starting another one in ${verdict.delayMs} ms`);
    const timer = setTimeout(() => {
      this.#restarts.delete(timer);
      try {
        this.#startWorker(index);
      } catch (error) {
        if (!(error instanceof StartFailure)) throw error;
        this.#restartLater(index, performance.now(), error.message);
      }
    }, verdict.delayMs);
    this.#restarts.add(timer);
  }

  #finishStart(): void {
    if (this.#phase === "starting") this.#phase = "running";
    this.#started?.resolve();
    this.#started = null;
  }

  #failStart(failure: StartFailure): void {
    this.#phase = "stopping";
    this.#started?.reject(failure);
    this.#started = null;
  }

  #stop(signal: NodeJS.Signals | null, escalate: () => void): Promise<void> {
    this.#phase = "stopping";
    this.#started?.reject(new StartFailure("start the workers: asked to stop"));
    this.#started = null;
    for (const timer of this.#restarts) clearTimeout(timer);
    this.#restarts.clear();
    if (this.#workers.every((worker) => worker === null)) return Promise.resolve();
    if (signal !== null) {
      for (const worker of this.#workers) if (worker !== null) signalWorker(worker, signal);
    }
    escalate();
    return new Promise((resolve) => {
      const before = this.#allEnded;
      this.#allEnded = () => {
        before?.();
        resolve();
      };
    });
  }

  #quitWorker(worker: Worker): void {
    if (!signalWorker(worker, "SIGQUIT")) return;
    this.#setTimer(worker, this.#options.times.quitMs, () => {
      this.#options.logger.warning(`worker ${worker.id} does not end, killing it`, {
        pid: worker.pid,
      });
      signalWorker(worker, "SIGKILL");
    });
  }

  #setTimer(worker: Worker, delayMs: number | null, then: () => void = () => {}): void {
    if (worker.timer !== null) clearTimeout(worker.timer);
    worker.timer = delayMs === null ? null : setTimeout(then, delayMs);
  }
}
