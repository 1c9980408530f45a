// A monitor: looks at its processes each overload_interval and says on the bus what it has decided, for a host's
// workers or for databases. What it saw is in the log at debug level. It keeps nothing that a successor would
// need: who hears no monitor any more refuses nothing.

import { hostname } from "node:os";
import { performance } from "node:perf_hooks";
import { type Bus, type BusAddress, connectBus } from "../../shared/bus/mod.ts";
import type { Config } from "../../shared/config/mod.ts";
import type { BusService } from "../../shared/host/mod.ts";
import { type Logger, onceEvery } from "../../shared/telemetry/mod.ts";
import { decide } from "./decide.ts";
import { GroupKeeper } from "./group_keeper.ts";
import { PostmasterWatch } from "./postmaster.ts";
import { Proc } from "./proc.ts";
import { type Sample, Sampler } from "./sampler.ts";
import { entryPortOf, isWatched, type Scope, scopeProblem } from "./scope.ts";
import { WarningBook, type WarningChange } from "./warning_book.ts";
import { WorkerWatch } from "./worker_watch.ts";

export interface MonitorOptions {
  readonly config: Config;
  readonly bus: BusAddress;
  readonly scope: Scope;
  readonly logger: Logger;
}

const warningsMs = 5000;
/** What warnings are about is looked at so often, and ten times in the time for which it must last. */
const usesMs = 5000;
const missingMs = 60_000;

export class Monitor implements BusService {
  readonly #options: MonitorOptions;
  readonly #log: Logger;
  readonly #proc = new Proc();
  readonly #sampler: Sampler;
  readonly #warnings = new WarningBook();
  readonly #epoch = Date.now();
  readonly #sayMissing = onceEvery(missingMs);
  #config: Config;
  #bus: Bus | null = null;
  #pids: (now: number) => readonly number[] = () => [];
  /** null: it looks at no database. */
  readonly #groups: GroupKeeper | null;
  #timer: ReturnType<typeof setTimeout> | null = null;
  #warningsTimer: ReturnType<typeof setInterval> | null = null;
  #closed = false;
  /** When the next look is due. */
  #due = 0;
  #seq = 0;
  /** When the uses of CPU and memory are looked at next. */
  readonly #usesDue = { cpu: 0, memory: 0 };

  constructor(options: MonitorOptions) {
    this.#options = options;
    this.#log = options.logger;
    this.#config = options.config;
    this.#sampler = new Sampler(this.#proc);
    const { scope, logger, bus: { name } } = options;
    this.#groups = scope.kind === "workers" ? null : new GroupKeeper({
      proc: this.#proc,
      isMeant: (database) => isWatched(this.#config, scope.names, database),
      name,
      epoch: this.#epoch,
      logger,
    });
  }

  async start(): Promise<void> {
    const bus = await connectBus({ ...this.#options.bus, logger: this.#log, background: true });
    if (this.#closed) return await bus.close();
    this.#bus = bus;
    if (!this.#proc.countsWait) {
      this.#log.warning(
        "this kernel does not count how long threads wait for a CPU (no /proc/self/schedstat): nothing will be " +
          "refused by os_cpu_wait_time_ratio; max_event_loop_lag_to_throw works without it",
      );
    }
    this.#pids = this.#watch(bus);
    this.#groups?.join(bus);
    this.#due = performance.now();
    this.#look(bus);
    this.#warningsTimer = setInterval(() => this.#sayWarnings(bus), warningsMs);
  }

  problemOf(config: Config): string | null {
    return scopeProblem(config, this.#options.scope);
  }

  setConfig(config: Config): void {
    this.#config = config;
  }

  async close(): Promise<void> {
    this.#closed = true;
    if (this.#timer !== null) clearTimeout(this.#timer);
    if (this.#warningsTimer !== null) clearInterval(this.#warningsTimer);
    this.#groups?.close();
    await this.#bus?.close();
  }

  #watch(bus: Bus): (now: number) => readonly number[] {
    const { scope } = this.#options;
    if (scope.kind === "workers") {
      const workers = new WorkerWatch(scope.supervisor);
      bus.subscribe(bus.subjects.allPresence, (said) => workers.heard(said, performance.now()));
      return (now) => workers.pids(now);
    }
    const postmaster = new PostmasterWatch({
      proc: this.#proc,
      hints: scope.hints,
      entryPort: () => entryPortOf(this.#config, scope.names),
      onFound: ({ pid, port }) => this.#log.info("watching a PostgreSQL", { pid, port }),
      onMissing: (why) => this.#sayMissing(() => this.#log.warning(`watch PostgreSQL: ${why}`)),
    });
    return () => postmaster.pids();
  }

  #look(bus: Bus): void {
    const now = performance.now();
    const { settings } = this.#config;
    const { overloadIntervalMs } = settings;
    // Steps that were missed are not made up for.
    this.#due = Math.max(this.#due + overloadIntervalMs, now + overloadIntervalMs / 2);
    this.#timer = setTimeout(() => this.#look(bus), this.#due - now);
    const pids = this.#pids(now);
    const sample = this.#sampler.take(pids, now, {
      cpu: settings.cpuOverloadWarnRatio > 0 &&
        this.#isDue("cpu", now, settings.cpuOverloadDurationSeconds),
      memory: settings.memoryOverloadWarnRatio > 0 &&
        this.#isDue("memory", now, settings.memoryOverloadDurationSeconds),
    });
    this.#groups?.look(bus, pids, this.#config);
    if (sample === null) return;
    this.#say(bus, sample);
    const changes = this.#warnings.take(sample, now, Date.now(), settings);
    for (const change of changes) this.#tellLog(change);
    if (changes.length > 0) this.#sayWarnings(bus);
  }

  #isDue(use: "cpu" | "memory", now: number, seconds: number): boolean {
    if (now < this.#usesDue[use]) return false;
    const stepMs = Math.min(usesMs, seconds * 1000 / 10);
    // Looks are never quite on time.
    this.#usesDue[use] = now + stepMs - this.#config.settings.overloadIntervalMs / 2;
    return true;
  }

  #say(bus: Bus, sample: Sample): void {
    const { scope } = this.#options;
    const { waitUs, busyUs, elapsedMs, ...seen } = sample;
    const { name } = this.#options.bus;
    for (const database of scope.kind === "workers" ? [null] : scope.names) {
      const decision = decide(sample, this.#config, database);
      const { ratio, transactions, connections } = decision;
      if (this.#log.enabled("debug")) {
        this.#log.debug("overload sample", {
          ...(database === null ? {} : { database }),
          elapsed_ms: Math.round(elapsedMs),
          wait_us: waitUs,
          busy_us: busyUs,
          ratio,
          throw: transactions.probability,
          drop: connections.probability,
          ...seen,
        });
      }
      const supervisor = scope.kind === "workers" ? scope.supervisor : "";
      const subject = database === null
        ? bus.subjects.overloadHost(supervisor)
        : bus.subjects.overloadDatabase(name);
      bus.publish(subject, {
        ...decision,
        monitor: name,
        host: hostname(),
        supervisor,
        database: database ?? "",
        epoch: this.#epoch,
        seq: ++this.#seq,
        intervalMs: this.#config.settings.overloadIntervalMs,
        waitUs,
        busyUs,
        reason: reasonOf(sample, scope),
      });
    }
  }

  #tellLog({ step, warning, durationMs }: WarningChange): void {
    const { kind, value, warn, clear } = warning;
    const what = kind === "cpu" ? "CPU" : "memory";
    const seconds = durationMs / 1000;
    if (step === "raise") {
      this.#log.warning(
        `${what} in use is ${percent(value)}, above ${percent(warn)} for ${seconds} s`,
      );
    } else if (step === "off") {
      this.#log.info(
        `the warning of ${what} in use above ${percent(warn)} is cleared: it was switched off ` +
          `(${kind}_overload_warn_ratio = 0)`,
      );
    } else {
      this.#log.info(
        `${what} in use is ${percent(value)} again, the warning at ${percent(clear)} is cleared`,
      );
    }
  }

  #sayWarnings(bus: Bus): void {
    const { warnings } = this.#warnings;
    const { name } = this.#options.bus;
    bus.publish(bus.subjects.overloadWarnings(name), {
      monitor: name,
      host: hostname(),
      epoch: this.#epoch,
      seq: ++this.#seq,
      warnings,
    });
  }
}

function reasonOf(
  { waitUs, busyUs, elapsedMs, processes, pressure }: Sample,
  scope: Scope,
): string {
  const seconds = (value: number) => `${(value / 1e6).toFixed(2)} s`;
  const who = scope.kind === "workers" ? "workers" : "processes of PostgreSQL";
  const host = pressure === null ? "" : `, CPU pressure of the host ${percent(pressure)}`;
  return `${processes} ${who} waited ${seconds(waitUs)} for CPU and used ${seconds(busyUs)} in ` +
    `${seconds(elapsedMs * 1000)}${host}`;
}

function percent(value: number): string {
  return `${Math.round(value * 100)} %`;
}
