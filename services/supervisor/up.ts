// `pgweir up`: everything of one host, from nothing to ready and back to nothing. It puts the parts in
// order (lock, port, PostgreSQL, configuration, bus, coordinator, workers) and undoes them in the opposite
// one, whatever ended the start or the run. What a part does is in its own file.
// Invariant: when run() has returned, no process and no socket of this host is left.

import { randomBytes } from "node:crypto";
import { mkdirSync, renameSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join, resolve } from "node:path";
import process from "node:process";
import { type Config, problemText, reportLines } from "../../shared/config/mod.ts";
import {
  HostFailure,
  HostProcess,
  LiveConfig,
  loadWithFiles,
  RecordingReader,
  socketActivationProblem,
  withOptions,
} from "../../shared/host/mod.ts";
import { type Command, Executor, type ShutdownMode } from "../../shared/console/mod.ts";
import type { Rights } from "../../shared/bus/mod.ts";
import { isMonitored } from "../../shared/overload/mod.ts";
import { runtimeName } from "../../shared/sys/mod.ts";
import { createLogger, type Logger } from "../../shared/telemetry/mod.ts";
import type { UpCommand } from "./arguments.ts";
import { type ListenAddress, readyText } from "./banner.ts";
import { Companion } from "./companion.ts";
import { BadConfig, fileFailure, StartFailure } from "./failure.ts";
import { Fleet } from "./fleet.ts";
import { generatedIni, generatedUserlist, listenHost, poolSize } from "./generated_config.ts";
import { evidence, ownMark } from "./host_evidence.ts";
import { HostBus, newToken } from "./host_bus.ts";
import { type Identities, LocalIdentities } from "./identities.ts";
import { lockInstance } from "./instance_lock.ts";
import { checkListen } from "./listen_check.ts";
import { LocalPostgres } from "./local_postgres.ts";
import { printError, printOut } from "./output.ts";
import {
  bannerOf,
  listenAddresses,
  type Login,
  type ServerAddress,
  smallLimits,
  upstreamLogin,
  workerCount,
} from "./plan.ts";
import { preparePostgres } from "./postgres_files.ts";
import { maxConnections } from "./postmaster.ts";
import { PresenceTable } from "./presence_table.ts";
import { HostWorkforce } from "./workforce.ts";
import { StopRequests } from "./stop_requests.ts";
import { WorkerRegistry } from "./worker_registry.ts";

type Runtime = "bun" | "deno";

export interface UpContext {
  /** Where .pgweir is made, and what a relative path is relative to: the working directory. */
  readonly directory: string;
  /** See postgres_files.ts. */
  readonly systemDirectory: string;
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** argv of a worker. */
  readonly workerCommand: (runtime: Runtime, file: string) => readonly string[];
  /** argv of a process beside the workers. */
  readonly companionCommands: Readonly<
    Record<"coordinator" | "monitor", (runtime: Runtime, file: string) => readonly string[]>
  >;
  readonly times: {
    /** From the start of a worker until it must be ready. */
    readonly readyMs: number;
    /** How much longer than drain_timeout a worker may take to drain. */
    readonly drainMarginMs: number;
    /** From SIGQUIT to SIGKILL. */
    readonly quitMs: number;
    /** How long a ready worker may be silent on the bus. */
    readonly silentMs: number;
    /** How long a stop may take to tell the coordinators of other hosts which workers are gone. */
    readonly goodbyeMs: number;
    /** From SIGTERM to SIGQUIT of the coordinator, and of the monitor. */
    readonly companionMs: number;
  };
}

const demo: Login & { readonly name: string } = { name: "demo", user: "demo", password: "demo" };
const defaultPort = 6432;
/** For the coordinator that leads to say that it heard who is gone. */
const goneTimeoutMs = 2000;

const stopTexts = {
  clients: "waiting for all clients to disconnect; a second one ends at once",
  servers: "waiting for all server connections to be released; a second one ends at once",
  quit: "ending at once",
} as const;

export class Up {
  readonly #command: UpCommand;
  readonly #context: UpContext;
  readonly #stopRequests = new StopRequests();
  readonly #stopped = new AbortController();
  readonly #presence = new PresenceTable();
  readonly #unlock: (() => void)[] = [];
  /** null until a configuration is loaded. */
  #host: HostProcess | null = null;
  #logger: Logger = createLogger({ component: "supervisor", level: "info", format: "text" });
  #live: LiveConfig | null = null;
  #workforce: HostWorkforce | null = null;
  #executor: Executor | null = null;
  #postgres: LocalPostgres | null = null;
  #hostBus: HostBus | null = null;
  /** null in budget_mode static. */
  #registry: WorkerRegistry | null = null;
  #coordinator: Companion | null = null;
  /** null: nothing is to be monitored. */
  #monitor: Companion | null = null;
  /** Monitors that were needed no more and end. */
  readonly #endingMonitors = new Set<Promise<void>>();
  /** Where the workers listen. */
  #addresses: readonly ListenAddress[] = [];
  /** What the workers run on; null until they are started. */
  #runtime: Runtime | null = null;
  #fleet: Fleet | null = null;
  /** Resolves when the fleet has ended; null until it was asked to. */
  #fleetEnd: Promise<void> | null = null;
  /** As a worker names it, e.g. "bun 1.4.5"; workers may run on another runtime than we. */
  #workerRuntime = "";
  /** Resolves with the exit code when the run is over. */
  readonly #over: Promise<number>;
  #end: (code: number) => void = () => {};

  constructor(command: UpCommand, context: UpContext) {
    this.#command = command;
    this.#context = context;
    this.#over = new Promise((resolve) => this.#end = resolve);
  }

  /** Returns the exit code. */
  async run(): Promise<number> {
    try {
      const ready = await this.#start();
      const { options, lone } = this.#command;
      if (!options.daemon && !lone) printOut(ready);
      this.#host?.ready();
      return await this.#over;
    } catch (error) {
      if (this.#stopped.signal.aborted) {
        this.#logger.warning("stopped before it was ready");
      } else if (error instanceof StartFailure) {
        const isReport = error instanceof BadConfig;
        printError(isReport ? `${error.message}\n` : `pgweir: ${error.message}\n`);
      } else throw error;
      return 1;
    } finally {
      await this.#close();
    }
  }

  /** SIGTERM waits for clients, SIGINT for their transactions; a second one, or SIGQUIT, ends at once. */
  stop(signal: "SIGINT" | "SIGTERM" | "SIGQUIT"): void {
    const step = this.#stopRequests.on(signal, performance.now());
    if (step === "nothing") return;
    this.#logger.info(
      `got ${signal}, ${stopTexts[step]}`,
    );
    this.#host?.stopping();
    this.#stopped.abort();
    if (step === "quit") this.#fleetEnd = this.#fleet?.quit() ?? null;
    else this.#fleetEnd = this.#fleet?.drain(step === "servers" ? "SIGINT" : "SIGTERM") ?? null;
    this.#end(0);
  }

  /** SIGHUP: the workers and the coordinator read their configuration again, if there is nothing wrong with it. */
  reload(): void {
    try {
      this.#host?.reopenLog();
    } catch (error) {
      this.#logger.error((error as Error).message);
    }
    this.#logger.info("got SIGHUP, re-reading config");
    void this.#host?.reload(() => this.#give({ kind: "reload" }));
  }

  /** SIGUSR1 and SIGUSR2, as PgBouncer takes them. */
  operate(signal: "SIGUSR1" | "SIGUSR2"): void {
    const kind = signal === "SIGUSR1" ? "pause" : "resume";
    this.#logger.info(`got ${signal}, ${kind.toUpperCase()}`);
    void this.#give({ kind, database: null });
  }

  async #give(command: Command): Promise<void> {
    const answer = await this.#executor?.execute(command);
    if (answer?.refusal) this.#logger.warning(answer.refusal.message);
    if (answer?.notice) this.#logger.warning(answer.notice);
  }

  #takeConfig(config: Config): void {
    this.#host?.configureLog(config);
    this.#logger.setLevel(config.settings.verbose > 0 ? "debug" : "info");
    this.#logger.setFormat(config.settings.logFormat);
    this.#monitorIfNeeded(config);
  }

  /** From the console of a worker, here or elsewhere. */
  #shutdown(mode: ShutdownMode): void {
    if (mode === "now") return this.stop("SIGQUIT");
    this.stop(mode === "servers" ? "SIGINT" : "SIGTERM");
  }

  /** Commands of the console for the workers of this host. */
  #takeCommands({ bus, name }: HostBus): void {
    if (this.#live === null) return;
    const workforce = new HostWorkforce({
      bus,
      live: this.#live,
      fleet: () => this.#fleet,
      tellCompanions: (text) => {
        this.#coordinator?.hand(text);
        this.#monitor?.hand(text);
      },
      takeConfig: (config) => this.#takeConfig(config),
      shutdown: (mode) => this.#shutdown(mode),
    });
    const executor = new Executor(workforce);
    this.#workforce = workforce;
    this.#executor = executor;
    bus.subscribe(
      bus.subjects.consoleHost(name),
      ({ command, again }) => again ? executor.left(command) : executor.execute(command),
    );
  }

  /** Returns the ready text. */
  async #start(): Promise<string> {
    const { file } = this.#command;
    const config = file === null ? await this.#generateConfig() : await this.#readConfig(file);
    const workers = workerCount(this.#command, config, availableParallelism());
    const runtime = this.#command.runtime ?? config.settings.runtime;
    if (config.settings.budgetMode === "static") {
      for (const warning of smallLimits(config, workers)) this.#logger.warning(warning);
    }
    this.#hostBus = await HostBus.start(config.settings, this.#logger);
    this.#stopped.signal.throwIfAborted();
    this.#takeCommands(this.#hostBus);
    this.#listen(this.#hostBus);
    const identities = config.settings.budgetMode === "static"
      ? new LocalIdentities(Math.random, (id) => this.#presence.inUse(id, performance.now()))
      : await this.#startBudget(config, runtime, this.#hostBus);
    await this.#startFleet(config, { workers, runtime, identities }, this.#hostBus);
    const isDemo = file === null && this.#command.upstream === null;
    const running = this.#workerRuntime || runtime;
    return readyText(
      bannerOf(config, this.#addresses, workers, running, isDemo ? demo : null),
    );
  }

  async #readConfig(file: string): Promise<Config> {
    const config = this.#load(file);
    this.#unlock.push(lockInstance(resolve(this.#context.directory, file)));
    const others = this.#command.lone && config.settings.soReuseport;
    const addresses = listenAddresses(config);
    this.#addresses = others ? addresses : await checkListen(addresses, "listen_port names it");
    this.#onHost((host) => host.becomeUser([]));
    return config;
  }

  async #generateConfig(): Promise<Config> {
    const { upstream, workers } = this.#command;
    const stateDirectory = join(this.#context.directory, ".pgweir");
    const login = upstream === null ? demo : upstreamLogin(upstream, this.#context.environment);
    try {
      mkdirSync(stateDirectory, { recursive: true });
    } catch (error) {
      throw fileFailure("make the directory", stateDirectory, error);
    }
    this.#unlock.push(lockInstance(stateDirectory));
    const listenPort = this.#command.port ?? defaultPort;
    const wanted = [{ host: listenHost, port: listenPort }];
    this.#addresses = await checkListen(wanted, "--port names another");
    const runtime = this.#command.runtime ?? (runtimeName === "deno" ? "deno" : "bun");
    const server = upstream ?? await this.#startPostgres(stateDirectory);
    const authFile = join(stateDirectory, "userlist.txt");
    const file = join(stateDirectory, "pgweir.ini");
    writeWhole(authFile, generatedUserlist(login.user, login.password));
    writeWhole(
      file,
      generatedIni({ server, user: login.user, listenPort, authFile, workers, runtime }),
    );
    return this.#load(file);
  }

  async #startPostgres(stateDirectory: string): Promise<ServerAddress> {
    const log = (line: string) => this.#logger.info(line);
    const files = await preparePostgres({
      stateDirectory,
      systemDirectory: this.#context.systemDirectory,
      demo,
      log,
    });
    // A copied or linked state directory leads to the same data.
    this.#unlock.push(lockInstance(files.dataDirectory));
    this.#stopped.signal.throwIfAborted();
    const workers = this.#command.workers ?? availableParallelism();
    this.#postgres = new LocalPostgres({
      files,
      maxConnections: maxConnections(workers, poolSize),
      logFile: join(stateDirectory, "postgres.log"),
      log,
      aborted: this.#stopped.signal,
    });
    this.#postgres.onUnexpectedExit = (reason) => this.#fail(`PostgreSQL ended: ${reason}`);
    const port = await this.#postgres.start();
    return { host: "127.0.0.1", port, database: demo.name, sslmode: "disable" };
  }

  #load(file: string): Config {
    const reader = new RecordingReader();
    const { options } = this.#command;
    const loaded = loadWithFiles(file, reader.read, options.user);
    if (loaded.config === null) throw new BadConfig(reportLines(file, loaded).join("\n"));
    const config = withOptions(loaded.config, options);
    this.#host = new HostProcess(config, options);
    this.#logger = createLogger({
      component: "supervisor",
      level: config.settings.verbose > 0 ? "debug" : "info",
      format: config.settings.logFormat,
      write: this.#host.log.write,
    });
    this.#live = new LiveConfig(config, reader.texts, options, this.#logger);
    this.#onHost((host) => host.open());
    for (const warning of loaded.warnings) this.#logger.warning(problemText(warning));
    const unused = socketActivationProblem();
    if (unused !== null) this.#logger.warning(unused);
    return config;
  }

  #onHost(action: (host: HostProcess) => void): void {
    try {
      if (this.#host !== null) action(this.#host);
    } catch (error) {
      throw error instanceof HostFailure ? new StartFailure(error.message) : error;
    }
  }

  /** What a child prints is a part of the log. */
  readonly #passOn = (line: string): void => this.#host?.log.write(`${line}\n`);

  /** Hears the workers of all hosts; ours are known by their ids and pids. */
  #listen({ bus }: HostBus): void {
    bus.subscribe(bus.subjects.allPresence, (presence) => {
      this.#presence.saw(presence, performance.now());
      this.#fleet?.heard(presence.id, presence.pid);
      this.#workforce?.heard(presence.id, presence.configMark);
      if (presence.state !== "ready") return;
      if (this.#fleet?.onReady(presence.id, presence.pid)) this.#workerRuntime = presence.runtime;
    });
  }

  /** What budget_mode leased needs beside the bus: the store, ids that are unique by it, a coordinator. */
  async #startBudget(config: Config, runtime: Runtime, hostBus: HostBus): Promise<Identities> {
    const { bus } = hostBus;
    const store = await hostBus.openStore(this.#stopped.signal);
    this.#stopped.signal.throwIfAborted();
    this.#registry = new WorkerRegistry({
      store,
      mark: ownMark(),
      evidence,
      reportGone: async ({ id, incarnation }) => {
        await bus.request(bus.subjects.budgetGone, { worker: id, incarnation }, goneTimeoutMs);
      },
      seenOnBus: (id) => this.#presence.inUse(id, performance.now()),
      listeningMs: () => hostBus.listeningMs(),
      random: Math.random,
      logger: this.#logger,
    });
    this.#registry.start();
    this.#coordinator = this.#companion({
      title: "budget coordinator",
      command: this.#commandOf(this.#context.companionCommands.coordinator, runtime, config.path),
      variable: "PGWEIR_BUDGET",
      name: "budget",
      rights: (name) => bus.subjects.coordinatorRights(name),
      mesh: config.settings.mesh,
      hostBus,
    });
    this.#coordinator.start();
    return this.#registry;
  }

  /** With a seat of its own at each start: its name on the bus is never that of another process. */
  #companion(
    { title, command, variable, name: prefix, rights, mesh, hostBus }: {
      readonly title: string;
      readonly command: readonly string[];
      readonly variable: string;
      readonly name: string;
      readonly rights: (name: string) => Rights;
      readonly mesh: string;
      readonly hostBus: HostBus;
    },
  ): Companion {
    return new Companion({
      title,
      command,
      variable,
      input: () => this.#workforce?.input ?? "",
      seat: () => {
        const name = `${prefix}-${randomBytes(6).toString("hex")}`;
        return JSON.stringify({
          busUrl: hostBus.url,
          busToken: hostBus.token(title, rights(name)),
          mesh,
          supervisor: hostBus.name,
          supervisorPid: process.pid,
          handed: true,
          embedded: hostBus.isEmbedded,
          name,
        });
      },
      logger: this.#logger,
      passOn: this.#passOn,
      random: Math.random,
      stopMs: this.#context.times.companionMs,
    });
  }

  /** Starts the overload monitor, or ends it, as the configuration wants it. */
  #monitorIfNeeded(config: Config): void {
    const hostBus = this.#hostBus;
    const runtime = this.#runtime;
    if (hostBus === null || runtime === null || this.#stopped.signal.aborted) return;
    const isNeeded = isMonitored(config);
    if (isNeeded && this.#monitor === null) {
      this.#monitor = this.#companion({
        title: "overload monitor",
        command: this.#commandOf(this.#context.companionCommands.monitor, runtime, config.path),
        variable: "PGWEIR_OVERLOAD",
        name: "overload",
        rights: (name) => hostBus.bus.subjects.monitorRights(hostBus.name, name),
        mesh: config.settings.mesh,
        hostBus,
      });
      this.#monitor.start();
    } else if (!isNeeded && this.#monitor !== null) {
      const ended = this.#monitor.stop();
      this.#monitor = null;
      this.#endingMonitors.add(ended);
      void ended.then(() => this.#endingMonitors.delete(ended));
    }
  }

  async #startFleet(
    config: Config,
    plan: { workers: number; runtime: Runtime; identities: Identities },
    hostBus: HostBus,
  ): Promise<void> {
    const { drainTimeoutMs, mesh } = config.settings;
    const { times } = this.#context;
    const { bus } = hostBus;
    const fleetSecret = newToken();
    this.#fleet = new Fleet({
      count: plan.workers,
      command: this.#commandOf(this.#context.workerCommand, plan.runtime, config.path),
      identities: plan.identities,
      input: () => this.#workforce?.input ?? "",
      seat: (index, { id, incarnation }) =>
        JSON.stringify({
          index,
          count: plan.workers,
          workerId: id,
          incarnation,
          busUrl: hostBus.url,
          busToken: hostBus.token(
            `seat ${index}`,
            bus.subjects.workerRights(id, `worker-${id}`),
          ),
          fleetSecret,
          mesh,
          supervisor: hostBus.name,
          supervisorPid: process.pid,
        }),
      times: {
        readyMs: times.readyMs,
        drainMs: drainTimeoutMs === 0 ? null : drainTimeoutMs + times.drainMarginMs,
        quitMs: times.quitMs,
        silentMs: times.silentMs,
      },
      logger: this.#logger,
      passOn: this.#passOn,
      random: Math.random,
      busConnected: () => bus.connected,
    });
    this.#fleet.onGiveUp = (reason) => this.#fail(reason);
    await this.#fleet.start();
    this.#runtime = plan.runtime;
    this.#monitorIfNeeded(config);
  }

  #commandOf(
    command: UpContext["workerCommand"],
    runtime: Runtime,
    file: string,
  ): readonly string[] {
    try {
      return command(runtime, file);
    } catch (error) {
      throw new StartFailure((error as Error).message);
    }
  }

  #fail(reason: string): void {
    this.#logger.fatal(reason);
    this.#fleetEnd ??= this.#fleet?.drain("SIGINT") ?? null;
    this.#end(1);
  }

  /** Workers first, so that what they drain still finds its slots, PostgreSQL and the bus. */
  async #close(): Promise<void> {
    // One that was not asked to end failed to start, and has nothing to drain.
    await (this.#fleetEnd ?? this.#fleet?.quit());
    // With the embedded bus nobody is left who would want to know.
    await this.#registry?.close(this.#hostBus?.isEmbedded ? 0 : this.#context.times.goodbyeMs);
    await Promise.all([
      this.#coordinator?.stop(),
      this.#monitor?.stop(),
      ...this.#endingMonitors,
    ]);
    await this.#postgres?.stop();
    await this.#hostBus?.close();
    for (const unlock of this.#unlock.reverse()) unlock();
    this.#logger.info("stopped");
    this.#host?.close();
  }
}

/** Never half a file, and never for a moment readable by others: it may hold a password. */
function writeWhole(path: string, text: string): void {
  const half = `${path}.new`;
  try {
    writeFileSync(half, text, { mode: 0o600 });
    renameSync(half, path);
  } catch (error) {
    throw fileFailure("write", path, error);
  }
}
