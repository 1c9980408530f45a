// The worker processes of one host: starts them, restarts those that die, drains them. Decisions are in
// fleet_table.ts and restart.ts, who a worker is comes from identities.ts; this file has the processes and the
// clocks.
//
// A worker is ready when the bus says so, not when its process runs. The last line of one that ends during
// the first start is why the start failed. How long a worker was silent is judged over time in which we ran
// and the bus reached us: what we did not hear otherwise is no silence.

import type { Logger } from "../../shared/telemetry/mod.ts";
import { StartFailure } from "./failure.ts";
import { FleetTable } from "./fleet_table.ts";
import type { Identities, Identity } from "./identities.ts";
import { restartLimits, RestartPolicy } from "./restart.ts";
import { RunningClock } from "./running_clock.ts";
import { ServiceProcess } from "./service_process.ts";

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
  /** What a worker that starts is handed on its standard input. */
  readonly input: () => string;
  /** The value of PGWEIR_FLEET for the worker in a seat. */
  readonly seat: (index: number, identity: Identity) => string;
  readonly identities: Identities;
  readonly times: FleetTimes;
  readonly logger: Logger;
  /** Takes a line that a worker wrote to its standard error. */
  readonly passOn: (line: string) => void;
  readonly random: () => number;
  /** Whether what workers say on the bus reaches us now: their silence means nothing otherwise. */
  readonly busConnected: () => boolean;
}

interface Worker {
  readonly index: number;
  readonly identity: Identity;
  readonly process: ServiceProcess;
  /** By the clock of our running, when it was started; put forward each time it was judged late. */
  startedRan: number;
  /** By the clock of our listening, when it was last heard. */
  heardRan: number;
  /** It was told to end: it is not judged any more. */
  condemned: boolean;
}

/**
 * starting: the first start, where any end of a worker is a failure. running: workers that die are
 * restarted. stopping: nothing is started any more. The states only go forward.
 */
type Phase = "starting" | "running" | "stopping";

const minTickMs = 20;
const maxTickMs = 500;

export class Fleet {
  readonly #options: FleetOptions;
  readonly #table: FleetTable;
  readonly #policies: RestartPolicy[];
  readonly #workers: (Worker | null)[];
  readonly #restarts = new Set<NodeJS.Timeout>();
  /** Starts that wait for an identity. */
  readonly #naming = new Set<Promise<void>>();
  readonly #stopping = new AbortController();
  readonly #running: RunningClock;
  readonly #listening: RunningClock;
  readonly #ticker: NodeJS.Timeout;
  #phase: Phase = "starting";
  #started: { resolve: () => void; reject: (failure: unknown) => void } | null = null;
  #allEnded: (() => void) | null = null;
  #drained: Promise<void> | null = null;
  /** What workers were told to wait for. */
  #drainSignal: "SIGTERM" | "SIGINT" | null = null;

  /** Called once, when workers crash over and over; the fleet then restarts nothing more. */
  onGiveUp: (reason: string) => void = () => {};

  constructor(options: FleetOptions) {
    this.#options = options;
    this.#table = new FleetTable(options.count);
    this.#workers = Array.from({ length: options.count }, () => null);
    this.#policies = this.#workers.map(() => new RestartPolicy(restartLimits, options.random));
    const { readyMs, silentMs } = options.times;
    const tickMs = Math.max(minTickMs, Math.min(maxTickMs, readyMs / 20, silentMs / 20));
    this.#running = new RunningClock(tickMs);
    this.#listening = new RunningClock(tickMs);
    this.#ticker = setInterval(() => this.#tick(), tickMs);
  }

  /**
   * Starts all workers; resolves when all are ready, rejects when one ends or is late. Where the bus can't
   * be reached, workers that still run when they should be ready count as ready.
   */
  start(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#started = { resolve, reject };
      for (let index = 0; index < this.#options.count; index++) this.#startWorker(index);
    });
  }

  /**
   * A worker announced itself ready on the bus: ours when both its id and its pid are. Returns whether one
   * of ours became ready by it.
   */
  onReady(workerId: number, pid: number): boolean {
    const worker = this.#workerOf(workerId, pid);
    if (worker === null || this.#table.announced(workerId) === null) return false;
    worker.heardRan = this.#listening.ranMs;
    this.#options.logger.info(`worker ${workerId} is ready`, { pid });
    if (this.#table.allReady) this.#finishStart();
    return true;
  }

  /** A worker announced itself, whatever its state: it lives. */
  heard(workerId: number, pid: number): void {
    const worker = this.#workerOf(workerId, pid);
    if (worker !== null) worker.heardRan = this.#listening.ranMs;
  }

  /** Writes to the standard input of every worker, also of those that start. */
  hand(text: string): void {
    for (const worker of this.#workers) worker?.process.hand(text);
  }

  /** The ids of the workers that are ready. */
  get readyIds(): number[] {
    return this.#workers.flatMap((worker) =>
      worker !== null && !worker.condemned && this.#table.stateOf(worker.index) === "ready"
        ? [worker.identity.id]
        : []
    );
  }

  /**
   * Lets clients leave (SIGTERM), or only finish what they do (SIGINT), within drainMs; resolves when no worker is
   * left. The same asked again it only waits: a second signal would end a worker at once.
   */
  drain(signal: "SIGTERM" | "SIGINT"): Promise<void> {
    const { drainMs } = this.#options.times;
    const isLess = this.#drainSignal === "SIGTERM" && signal === "SIGINT";
    if (this.#drained === null || isLess) {
      this.#drainSignal = signal;
      this.#drained = this.#stop((worker) =>
        worker.process.stop(drainMs, () => this.#quitWorker(worker), signal)
      );
    }
    return this.#drained;
  }

  /** Ends workers at once; also while they drain. Resolves when none is left. */
  quit(): Promise<void> {
    return this.#stop((worker) => this.#quitWorker(worker));
  }

  #workerOf(workerId: number, pid: number): Worker | null {
    const isIt = (worker: Worker | null) =>
      worker?.identity.id === workerId && worker.process.pid === pid;
    return this.#workers.find(isIt) ?? null;
  }

  #startWorker(index: number): void {
    const naming = this.#nameAndStart(index).catch((error: unknown) => {
      if (this.#phase === "starting") this.#failStart(error);
      else if (error instanceof StartFailure) this.#spawnFailed(index, error);
      else throw error;
    });
    this.#naming.add(naming);
    void naming.then(() => this.#naming.delete(naming));
  }

  async #nameAndStart(index: number): Promise<void> {
    const { command, seat, input, identities, passOn } = this.#options;
    const identity = await identities.take(this.#stopping.signal);
    if (identity === null) return;
    let process: ServiceProcess | null = null;
    try {
      if (this.#phase === "stopping") return;
      process = ServiceProcess.start({
        command,
        environment: { PGWEIR_FLEET: seat(index, identity) },
        input: input(),
        passOn,
        onEnd: (ended) => this.#onEnd(index, ended),
        onFailure: (failure) => this.#spawnFailed(index, failure),
      });
    } finally {
      if (process === null) identities.release(identity);
    }
    if (process === null) return;
    this.#workers[index] = {
      index,
      identity,
      process,
      startedRan: this.#running.ranMs,
      heardRan: this.#listening.ranMs,
      condemned: false,
    };
    this.#table.started(index, identity.id);
  }

  #spawnFailed(index: number, failure: StartFailure): void {
    if (this.#phase === "starting") this.#failStart(failure);
    else if (this.#phase === "running") {
      this.#restartLater(index, performance.now(), failure.message);
    }
  }

  /** Judges who is late and who is silent. */
  #tick(): void {
    const { busConnected, times } = this.#options;
    this.#running.tick(performance.now());
    if (busConnected()) this.#listening.tick(performance.now());
    else this.#listening.pause();
    if (this.#phase === "stopping") return;
    for (const worker of this.#workers) {
      if (worker === null || worker.condemned || !worker.process.running) continue;
      if (this.#table.stateOf(worker.index) === "starting") {
        if (this.#running.ranMs - worker.startedRan >= times.readyMs) this.#onLate(worker);
      } else if (this.#listening.ranMs - worker.heardRan >= times.silentMs) {
        this.#condemn(worker, `has been silent for ${times.silentMs / 1000} s`);
      }
    }
  }

  #onLate(worker: Worker): void {
    const { busConnected, times, logger } = this.#options;
    worker.startedRan = this.#running.ranMs;
    if (!busConnected()) {
      if (this.#phase === "starting") {
        logger.warning("the bus can't be reached: whether the workers are ready is not known");
        this.#finishStart();
      }
      return;
    }
    const late = `is not ready after ${times.readyMs / 1000} s`;
    if (this.#phase === "starting") {
      return this.#failStart(new StartFailure(`start worker ${worker.identity.id}: it ${late}`));
    }
    this.#condemn(worker, late);
  }

  #condemn(worker: Worker, why: string): void {
    worker.condemned = true;
    const { pid } = worker.process;
    this.#options.logger.error(`worker ${worker.identity.id} ${why}, ending it`, { pid });
    this.#quitWorker(worker);
  }

  #onEnd(index: number, ended: ServiceProcess): void {
    const worker = this.#workers[index];
    if (worker?.process !== ended) return;
    const { id } = worker.identity;
    this.#workers[index] = null;
    this.#table.died(index);
    this.#options.identities.release(worker.identity);
    switch (this.#phase) {
      case "starting": {
        const reason = ended.lastMessage || "it printed no reason";
        return this.#failStart(
          new StartFailure(`start worker ${id}: it ended with ${ended.end}: ${reason}`),
        );
      }
      case "running":
        return this.#restartLater(index, ended.startedAt, `worker ${id} ended with ${ended.end}`);
      case "stopping":
        if (this.#workers.every((other) => other === null)) this.#allEnded?.();
    }
  }

  #restartLater(index: number, startedAt: number, what: string): void {
    const verdict = this.#policies[index]!.onDeath(startedAt, performance.now());
    if (verdict.kind === "give_up") {
      this.#enterStopping();
      const seconds = (verdict.withinMs / 1000).toFixed(1);
      this.onGiveUp(`${what}; that was death ${verdict.deaths} in ${seconds} s, giving up`);
      return;
    }
    this.#options.logger.error(`${what}, starting another one in ${verdict.delayMs} ms`);
    const timer = setTimeout(() => {
      this.#restarts.delete(timer);
      this.#startWorker(index);
    }, verdict.delayMs);
    this.#restarts.add(timer);
  }

  #finishStart(): void {
    if (this.#phase === "starting") this.#phase = "running";
    this.#started?.resolve();
    this.#started = null;
  }

  #failStart(failure: unknown): void {
    this.#enterStopping();
    this.#started?.reject(failure);
    this.#started = null;
  }

  #enterStopping(): void {
    this.#phase = "stopping";
    this.#stopping.abort();
    for (const timer of this.#restarts) clearTimeout(timer);
    this.#restarts.clear();
  }

  async #stop(end: (worker: Worker) => void): Promise<void> {
    this.#enterStopping();
    this.#started?.reject(new StartFailure("start the workers: asked to stop"));
    this.#started = null;
    for (const worker of this.#workers) if (worker !== null) end(worker);
    await Promise.all(this.#naming);
    if (this.#workers.some((worker) => worker !== null)) {
      await new Promise<void>((resolve) => {
        const before = this.#allEnded;
        this.#allEnded = () => {
          before?.();
          resolve();
        };
      });
    }
    clearInterval(this.#ticker);
  }

  #quitWorker(worker: Worker): void {
    const { quitMs } = this.#options.times;
    worker.process.quit(quitMs, () => {
      const what = `worker ${worker.identity.id} does not end, killing it`;
      this.#options.logger.warning(what, { pid: worker.process.pid });
    });
  }
}
