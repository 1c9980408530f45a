// The control thread of a worker: answers what the data plane asks (addresses, derived keys, cancels
// of other workers), speaks for it on the bus, and handles signals. Losing the bus costs cancels
// between workers and presence, never traffic.

import { createHash } from "node:crypto";
import { hostname } from "node:os";
import process from "node:process";
import {
  type Bus,
  BusError,
  busOptions,
  type CancelOutcome,
  connectBus,
  type GroupRow,
  type GroupUses,
  packPids,
  type WorkerState,
} from "../../shared/bus/mod.ts";
import type { Config, Settings } from "../../shared/config/mod.ts";
import {
  type Command,
  Executor,
  type OperatorState,
  type ShutdownMode,
} from "../../shared/console/mod.ts";
import {
  type HostProcess,
  listenHosts,
  type LiveConfig,
  pamProblems,
  Resolver,
  Turns,
} from "../../shared/host/mod.ts";
import type { Report } from "../../shared/ledger/mod.ts";
import {
  bootId,
  findGroup,
  pgweirVersion,
  runtimeName,
  runtimeVersion,
  spawnThread,
  type Thread,
} from "../../shared/sys/mod.ts";
import type { Logger } from "../../shared/telemetry/mod.ts";
import { saltedPassword } from "../../shared/wire/mod.ts";
import { Asked } from "./asked.ts";
import { Commands } from "./commands.ts";
import { GroupGather } from "./group_gather.ts";
import { LdapLogin } from "./ldap_login.ts";
import { LocalBudget } from "./local_budget.ts";
import { LoneWorkforce } from "./lone_workforce.ts";
import { MeshAuthority } from "./mesh_authority.ts";
import { OverloadWatch } from "./overload_watch.ts";
import {
  Gauge,
  gaugeCount,
  type Performed,
  type PoolBackends,
  type ToControl,
  type ToPlane,
} from "./messages.ts";
import { PamLogin } from "./pam_login.ts";
import { PasswordChecks } from "./password_checks.ts";
import type { FleetSeat } from "./seat.ts";
import { systemUserName } from "./system_users.ts";

const presenceMs = 1000;
/** PBKDF2 runs at once: more would only take the data plane's cores from it. */
const saltsAtOnce = 2;
/** What the owner of a key gets to carry out a cancel; PostgreSQL answers in milliseconds. */
const cancelTimeoutMs = 5000;
/** Short: another supervisor may follow at once, and knows nothing of the slots that we hold. */
const watchSupervisorMs = 100;
/** Who counts backends may have been restarted, and knows nothing of those that do not change. */
const backendsMs = 5000;

/** Asks for nothing: the plane takes the state over. */
const lookOnly: Command = { kind: "wait_close", database: null };

const shutdownTexts: Readonly<Record<ShutdownMode, string>> = {
  now: "shutting down at once",
  servers: "shutting down, waiting for all server connections to be released",
  clients: "shutting down, waiting for all clients to disconnect",
};

export class Control {
  #config: Config;
  /** Marks the configuration that was handed over last. */
  #mark: string;
  /** Marks the one that the plane has put into effect. */
  #goesBy: string;
  readonly #seat: FleetSeat;
  /** null in a fleet. */
  readonly #host: HostProcess | null;
  readonly #logger: Logger;
  readonly #gauges = new Int32Array(new SharedArrayBuffer(4 * gaugeCount));
  readonly #resolver = new Resolver();
  readonly #salting = new Turns(saltsAtOnce);
  readonly #passwords = new PasswordChecks(
    new LdapLogin((host) => this.#resolver.resolve(host)),
    new PamLogin(),
    (id, verdict) => this.#tell({ type: "passwordChecked", id, verdict }),
  );
  readonly #cancels = new Asked<CancelOutcome>();
  #thread: Thread | null = null;
  #bus: Bus | null = null;
  #state: WorkerState = "starting";
  #addresses: readonly string[] = [];
  /** null in a fleet: there its supervisor has commands carried out. */
  readonly #executor: Executor | null;
  readonly #mesh: MeshAuthority;
  readonly #groups: GroupGather;
  /** Other workers that ask what is in use of resource groups. */
  readonly #useAsked = new Asked<GroupUses>();
  readonly #commands: Commands;
  readonly #performances = new Asked<Performed>();
  /** What operators have made of the pooler. */
  #operated: OperatorState;
  /** null where the limits are the mesh's. */
  readonly #localBudget: LocalBudget | null;
  #backends: readonly PoolBackends[] = [];
  /** Of the latest leader among coordinators. */
  #epoch = 0;
  /** Of the last message about backends of resource groups. */
  #groupsSeq = 0;
  #exit: (code: number) => void = () => {};
  readonly #timers: ReturnType<typeof setInterval>[] = [];

  constructor(
    config: Config,
    mark: string,
    seat: FleetSeat,
    host: HostProcess | null,
    live: LiveConfig | null,
    state: OperatorState,
    logger: Logger,
  ) {
    this.#config = config;
    this.#mark = mark;
    this.#goesBy = mark;
    this.#seat = seat;
    this.#host = host;
    this.#logger = logger;
    this.#operated = state;
    this.#mesh = new MeshAuthority(seat.supervisor, () => this.#bus);
    this.#groups = new GroupGather(seat.workerId, this.#mesh, () => this.#bus);
    this.#executor = live === null ? null : new Executor(
      new LoneWorkforce({
        perform: (command, state, again) => this.#perform(command, state, again),
        takeConfig: (changed) => this.#takeConfig(changed),
        shutdown: (mode) => this.#shutdown(mode),
      }, live),
    );
    this.#commands = new Commands(this.#executor ?? this.#mesh, logger, (id, outcome) => {
      this.#tell({ type: "commanded", id, outcome });
    });
    const isLocal = seat.bus === null || config.settings.budgetMode === "static";
    this.#localBudget = isLocal
      ? new LocalBudget(config, seat, (grant) => this.#tell({ type: "grant", grant }))
      : null;
  }

  /** Runs until the data plane has stopped; returns the exit code. */
  async run(): Promise<number> {
    const ended = new Promise<number>((resolve) => this.#exit = resolve);
    this.#watch();
    try {
      // Not left to the first login to find out.
      const [missing] = pamProblems(this.#config);
      if (missing !== undefined) throw new Error(missing);
      await this.#joinBus();
      await this.#startPlane();
    } catch (error) {
      this.#logger.error(`start worker: ${(error as Error).message}`);
      this.#exit(1);
    }
    const code = await ended;
    for (const timer of this.#timers) clearInterval(timer);
    this.#setState("gone");
    await this.#bus?.close();
    this.#thread?.terminate();
    this.#passwords.close();
    return code;
  }

  #watch(): void {
    let asked: ShutdownMode | null = null;
    const ask = (signal: string, mode: ShutdownMode) => {
      const next = asked === null || (asked === "clients" && mode === "servers") ? mode : "now";
      this.#logger.info(`got ${signal}, ${shutdownTexts[next]}`);
      asked = next;
      this.#host?.stopping();
      this.#shutdown(next);
    };
    process.on("SIGTERM", () => ask("SIGTERM", "clients"));
    process.on("SIGINT", () => ask("SIGINT", "servers"));
    process.on("SIGQUIT", () => ask("SIGQUIT", "now"));
    process.on("SIGHUP", () => {
      this.#reopenLog();
      this.#logger.info("got SIGHUP, re-reading config");
      const reload = () => this.#give({ kind: "reload" });
      void (this.#host === null ? reload() : this.#host.reload(reload));
    });
    const onSignal = (signal: NodeJS.Signals, command: Command) => {
      process.on(signal, () => {
        this.#logger.info(`got ${signal}, ${command.kind.toUpperCase()}`);
        void this.#give(command);
      });
    };
    onSignal("SIGUSR1", { kind: "pause", database: null });
    onSignal("SIGUSR2", { kind: "resume", database: null });
    const { supervisorPid } = this.#seat;
    if (supervisorPid === 0) return;
    this.#timers.push(setInterval(() => {
      if (process.ppid === supervisorPid) return;
      this.#logger.warning("supervisor is gone, stopping");
      this.#stopNow();
    }, watchSupervisorMs));
  }

  /** A signal concerns all workers, as a command of the console does. */
  async #give(command: Command): Promise<void> {
    const { refusal, notice } = await (this.#executor ?? this.#mesh).execute(command);
    if (refusal !== null) this.#logger.warning(refusal.message);
    if (notice !== null) this.#logger.warning(notice);
  }

  #reopenLog(): void {
    try {
      this.#host?.reopenLog();
    } catch (error) {
      this.#logger.error((error as Error).message);
    }
  }

  #stopNow(): void {
    this.#shutdown("now");
  }

  #shutdown(mode: ShutdownMode): void {
    if (this.#thread === null) this.#exit(0);
    this.#tell({ type: "shutdown", mode });
  }

  // --- changes while it runs

  /** New settings take effect: the one place where all of a worker hears of them. Throws to refuse them. */
  #takeConfig(config: Config): void {
    this.#host?.configureLog(config);
    this.#config = config;
    this.#logger.setLevel(config.settings.verbose > 0 ? "debug" : "info");
    this.#logger.setFormat(config.settings.logFormat);
    // The plane first: what it holds by the former limits it gives up by the new ones.
    this.#tell({ type: "config", config });
    this.#localBudget?.setConfig(config);
  }

  /** The supervisor has something new for all workers. */
  takeOver(config: Config, mark: string, state: OperatorState): void {
    if (mark !== this.#mark) this.#takeConfig(config);
    this.#mark = mark;
    this.#operated = state;
    // The plane takes one after the other: when it has answered it goes by the new configuration as well.
    void this.#perform(lookOnly, state, true).then(() => {
      this.#goesBy = mark;
      this.#announce();
    });
  }

  /** Has the plane do its part of a command. */
  #perform(command: Command, state: OperatorState, again: boolean): Promise<Performed> {
    return new Promise((resolve) => {
      const id = this.#performances.add(resolve);
      this.#tell({ type: "perform", id, command, state, again });
    });
  }

  // --- the data plane

  async #startPlane(): Promise<void> {
    const listen = await listenHosts(this.#config.settings.listenAddr);
    const thread = spawnThread(new URL("./plane/thread.ts", import.meta.url), "pgweir plane");
    this.#thread = thread;
    thread.onMessage = (message) => this.#onPlane(message as ToControl);
    thread.onError = (error) => {
      this.#logger.error(`data plane failed: ${error.message}`);
      if (error.stack !== undefined) this.#logger.error(error.stack);
      this.#exit(1);
    };
    const { index, count, workerId, supervisorPid } = this.#seat;
    thread.post(
      {
        type: "start",
        config: this.#config,
        seat: { index, count, workerId, incarnation: this.#seat.incarnation, supervisorPid },
        listen,
        socketGroup: socketGroup(this.#config.settings),
        mockKey: createHash("sha256").update(this.#seat.fleetSecret).digest(),
        gauges: this.#gauges,
        version: pgweirVersion,
        leaseMs: this.#localBudget === null ? this.#config.settings.budgetLeaseMs : null,
      } satisfies ToPlane,
    );
    this.#goesBy = this.#mark;
    if (this.#operated.revision > 0) void this.#perform(lookOnly, this.#operated, true);
  }

  #tell(message: ToPlane): void {
    this.#thread?.post(message);
  }

  #onPlane(message: ToControl): void {
    switch (message.type) {
      case "wake":
        if (this.#thread !== null) this.#thread.wakeFd = message.fd;
        return;
      case "ready":
        this.#onReady(message.addresses);
        return;
      case "failed":
        this.#logger.error(message.message);
        this.#exit(1);
        return;
      case "log":
        for (const record of message.records) this.#logger[record.level](record.message);
        Atomics.add(this.#gauges, Gauge.linesWritten, message.records.length);
        return;
      case "salt":
        this.#salt(message.id, message.password, message.salt, message.iterations);
        return;
      case "nameUser":
        this.#nameUser(message.id, message.uid);
        return;
      case "resolve":
        this.#resolve(message.id, message.host);
        return;
      case "checkPassword":
        void this.#passwords.check(message.id, message.proof);
        return;
      case "abandonPassword":
        this.#passwords.abandon(message.id);
        return;
      case "routeCancel":
        this.#routeCancel(message);
        return;
      case "cancelOutcome":
        this.#cancels.answer(message.id, message.outcome);
        return;
      case "reports":
        if (this.#localBudget !== null) this.#localBudget.onReports(message.reports);
        else this.#report(message.reports);
        return;
      case "tablesChanged": {
        const { workerId: worker } = this.#seat;
        const { database } = message;
        this.#bus?.publish(this.#bus.subjects.tableChanges(worker), { worker, database });
        return;
      }
      case "groupBackends":
        this.#tellGroupBackends(message.rows);
        return;
      case "command":
        this.#commands.give(message.id, message.command, message.user);
        return;
      case "abandon":
        this.#commands.abandon(message.id);
        return;
      case "performed":
        this.#performances.answer(message.id, message.performed);
        return;
      case "gatherGroups": {
        const { id } = message;
        void this.#groups.gather().then((gathered) => {
          this.#tell({ type: "groupsGathered", id, gathered });
        });
        return;
      }
      case "groupUses":
        this.#useAsked.answer(message.id, message.uses);
        return;
      case "backends":
        this.#backends = message.pools;
        this.#tellBackends();
        return;
      case "draining": {
        this.#setState("draining");
        const limit = this.#config.settings.drainTimeoutMs;
        if (limit > 0) this.#timers.push(setInterval(() => this.#stopNow(), limit));
        return;
      }
      case "stopped":
        this.#exit(0);
        return;
    }
  }

  #onReady(addresses: readonly string[]): void {
    this.#addresses = addresses;
    try {
      this.#host?.becomeUser(addresses.filter((address) => address.startsWith("/")));
    } catch (error) {
      this.#logger.fatal((error as Error).message);
      this.#exit(1);
      return;
    }
    this.#setState("ready");
    for (const address of addresses) {
      const isUnix = address.startsWith("/") || address.startsWith("@");
      this.#logger.info(`listening on ${isUnix ? `unix:${address}` : address}`);
    }
    this.#logger.info(`process up: pgweir ${pgweirVersion}, ${runtimeName} ${runtimeVersion()}`);
    this.#host?.ready();
  }

  async #salt(
    id: number,
    password: string | Uint8Array,
    salt: Uint8Array,
    iterations: number,
  ): Promise<void> {
    let salted: Uint8Array | null = null;
    try {
      salted = await this.#salting.run(() => saltedPassword(password, salt, iterations));
    } catch (error) {
      this.#logger.error(`derive SCRAM key: ${(error as Error).message}`);
    }
    this.#tell({ type: "salted", id, salted });
  }

  async #nameUser(id: number, uid: number): Promise<void> {
    this.#tell({ type: "userNamed", id, name: await systemUserName(uid) });
  }

  async #resolve(id: number, host: string): Promise<void> {
    const answer = await this.#resolver.resolve(host);
    this.#logger.debug(`dns: ${host} = ${answer.addresses.join(", ") || answer.reason}`);
    this.#tell({ type: "resolved", id, answer });
  }

  // --- the bus

  async #joinBus(): Promise<void> {
    const { bus, mesh, workerId } = this.#seat;
    if (bus === null) return;
    const joined = await connectBus({
      // Without a token it is no embedded bus, and the file says how to log in.
      ...(bus.token === null ? busOptions(this.#config.settings) : { token: bus.token }),
      servers: bus.servers,
      // A host starts, and serves, without its bus.
      background: true,
      name: `worker-${workerId}`,
      mesh,
      logger: this.#logger,
    });
    this.#bus = joined;
    joined.subscribe(joined.subjects.cancel(workerId), (request) =>
      new Promise((resolve) => {
        // The data plane answers each; a worker that stops meanwhile answers nobody.
        const id = this.#cancels.add((outcome) => resolve({ outcome }));
        this.#tell({ type: "cancel", id, processId: request.processId, secret: request.secret });
      }));
    // The embedded bus has this host alone.
    const isMesh = bus.token === null;
    joined.onReconnect(() => {
      if (isMesh) this.#mesh.listens();
      this.#announce();
      this.#tell({ type: "refresh" });
    });
    joined.subscribe(joined.subjects.consoleWorker(workerId), ({ command, state, again }) => {
      return this.#perform(command, state, again);
    });
    joined.subscribe(joined.subjects.groupUses(workerId), () =>
      new Promise((resolve) => {
        const id = this.#useAsked.add(resolve);
        this.#tell({ type: "groupUses", id });
      }));
    joined.subscribe(joined.subjects.allTableChanges, ({ worker, database }) => {
      if (worker !== workerId) this.#tell({ type: "tablesChanged", database });
    });
    joined.subscribe(joined.subjects.allPresence, (presence) => this.#mesh.heard(presence));
    if (isMesh) this.#mesh.listens();
    this.#joinBudget(joined);
    new OverloadWatch(this.#seat.supervisor, (message) => this.#tell(message))
      .join(joined, workerId);
    this.#timers.push(setInterval(() => this.#announce(), presenceMs));
    this.#announce();
  }

  #joinBudget(bus: Bus): void {
    if (this.#localBudget !== null) return;
    const { workerId } = this.#seat;
    bus.subscribe(bus.subjects.budgetGrant(workerId), (grant) => {
      this.#tell({ type: "grant", grant });
    });
    bus.subscribe(bus.subjects.budgetLeader, ({ epoch }) => {
      this.#tell({ type: "leader", epoch });
      if (epoch > this.#epoch && this.#config.settings.budgetAuth !== "") this.#tellBackends();
      this.#epoch = Math.max(this.#epoch, epoch);
    });
    if (this.#config.settings.budgetAuth === "") return;
    this.#timers.push(setInterval(() => this.#tellBackends(), backendsMs));
  }

  /** Lost reports are made good by the next ones: the plane says everything each second. */
  #report(reports: readonly Report[]): void {
    const bus = this.#bus;
    if (bus === null) return;
    const subject = bus.subjects.budgetReport(this.#seat.workerId);
    for (const report of reports) bus.publish(subject, report);
  }

  #tellBackends(): void {
    const bus = this.#bus;
    if (bus === null) return;
    bus.publish(bus.subjects.budgetBackends(this.#seat.workerId), {
      worker: this.#seat.workerId,
      incarnation: this.#seat.incarnation,
      leaves: this.#backends.map(({ leaf, pids }) => ({ leaf, pids: packPids(pids) })),
    });
  }

  #tellGroupBackends(rows: readonly GroupRow[]): void {
    const { workerId: worker, incarnation } = this.#seat;
    this.#bus?.publish(this.#bus.subjects.groupBackends(worker), {
      worker,
      incarnation,
      seq: ++this.#groupsSeq,
      rows,
    });
  }

  #setState(state: WorkerState): void {
    this.#state = state;
    this.#announce();
  }

  #announce(): void {
    const bus = this.#bus;
    if (bus === null) return;
    bus.publish(bus.subjects.presence(this.#seat.workerId), {
      id: this.#seat.workerId,
      incarnation: this.#seat.incarnation,
      host: hostname(),
      boot: bootId(),
      pid: process.pid,
      state: this.#state,
      addresses: this.#addresses,
      clients: this.#gauges[Gauge.clients] as number,
      servers: this.#gauges[Gauge.servers] as number,
      configMark: this.#goesBy,
      runtime: `${runtimeName} ${runtimeVersion()}`,
      supervisor: this.#seat.supervisor,
    });
  }

  async #routeCancel(message: Extract<ToControl, { type: "routeCancel" }>): Promise<void> {
    const { id, workerId, processId, secret } = message;
    let outcome: CancelOutcome | null = null;
    const bus = this.#bus;
    if (bus !== null) {
      const request = { processId, secret, source: this.#seat.workerId };
      try {
        ({ outcome } = await bus.request(bus.subjects.cancel(workerId), request, cancelTimeoutMs));
      } catch (error) {
        const nobody = error instanceof BusError && error.code === "NO_RESPONDERS";
        this.#logger.warning(
          nobody
            ? `cancel request with the key of an unknown worker: ${workerId}`
            : `route cancel to worker ${workerId}: ${(error as Error).message}`,
        );
      }
    }
    this.#tell({ type: "cancelRouted", id, outcome });
  }
}

/** null: none is named, or there is no socket file to give to one. */
function socketGroup({ unixSocketDir, unixSocketGroup: name }: Settings): number | null {
  if (name === "" || !unixSocketDir.startsWith("/")) return null;
  const group = findGroup(name);
  if (group === null) throw new Error(`could not find the group "${name}" of unix_socket_group`);
  return group;
}
