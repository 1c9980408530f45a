// One run of the benchmark, from starting PostgreSQL to the last measurement, and what it has found so
// far: result() is complete after run(), and partial when run() threw.
// It prints progress to stderr only. What it starts is stopped by run(), or at exit by test/support.

import { CertificateAuthority } from "../support/certificates.ts";
import { type Postgres, startPostgres } from "../support/postgres.ts";
import {
  type Contender,
  POOLED_DATABASE,
  poolsPreparedStatements,
  SESSION_DATABASE,
  type Setting,
  startContender,
} from "./contenders.ts";
import { measure, measureIdle, type Tools } from "./measure.ts";
import type { BenchOptions, ContenderName } from "./options.ts";
import { fillDatabase, type Programs, unprivilegedUser } from "./programs.ts";
import {
  type BenchResult,
  type Cell,
  FORMAT,
  type IdleResult,
  type Machine,
  type Sample,
  type Workload,
  workloadName,
} from "./results.ts";

/** The pool of a whole contender. */
const POOL_SIZE = 20;
const SCALE = 10;
const CONNECT_CLIENTS = 8;
const WARM_UP_SECONDS = 1;
/** More clients than are measured later: the kernel gives a fleet's processes unequal shares. */
const WARM_UP_SURPLUS = 1.25;

type GrowingCell = Omit<Cell, "samples"> & { readonly samples: Sample[] };

export class Bench {
  readonly #options: BenchOptions;
  readonly #machine: Machine;
  readonly #programs: Programs;
  readonly #tools: Tools;
  readonly #date = new Date().toISOString();
  readonly #workloads: readonly Workload[];
  readonly #cells: GrowingCell[] = [];
  readonly #idle: IdleResult[] = [];
  #serverVersion = "";

  constructor(options: BenchOptions, machine: Machine, programs: Programs) {
    this.#options = options;
    this.#machine = machine;
    this.#programs = programs;
    this.#tools = {
      pgbench: programs.pgbench,
      user: "postgres",
      cores: machine.cores,
      tls: options.tls,
    };
    this.#workloads = [
      ...options.protocols.flatMap((kind) => options.clients.map((clients) => ({ kind, clients }))),
      ...(options.connections ? [{ kind: "connect" as const, clients: CONNECT_CLIENTS }] : []),
    ];
  }

  result(): BenchResult {
    return {
      format: FORMAT,
      date: this.#date,
      machine: this.#machine,
      versions: { PostgreSQL: this.#serverVersion, ...this.#programs.versions },
      rounds: this.#options.rounds,
      seconds: this.#options.seconds,
      poolSize: POOL_SIZE,
      tls: this.#options.tls,
      contenders: this.#options.contenders,
      cells: this.#cells,
      idle: this.#idle,
    };
  }

  async run(): Promise<void> {
    say(`about ${Math.ceil(this.#expectedSeconds() / 60)} min: ${this.#plan()}`);
    const server = await this.#startServer();
    const setting = this.#setting(server);
    const contenders: Contender[] = [];
    try {
      for (const name of this.#options.contenders) {
        contenders.push(await startContender(name, setting));
      }
      for (const contender of contenders) await this.#warmUp(contender);
      await this.#measureRounds(contenders);
    } finally {
      for (const contender of contenders) await contender.stop();
    }
    if (this.#options.connections && !this.#options.tls) await this.#measureMemory(setting);
    await server.stop();
  }

  async #startServer(): Promise<Postgres> {
    const server = await startPostgres({
      settings: {
        max_connections: String(this.#maxConnections()),
        shared_buffers: "256MB",
        // The log of the initial load needs no flushing on a server nobody will recover.
        wal_level: "minimal",
        max_wal_senders: "0",
        max_wal_size: "1GB",
      },
    });
    await server.query(`CREATE DATABASE ${POOLED_DATABASE}`);
    await fillDatabase(this.#tools.pgbench.path, server, SCALE, POOLED_DATABASE);
    const [row] = await server.query("SHOW server_version");
    this.#serverVersion = String(row?.["server_version"]).split(" ", 1)[0] as string;
    return server;
  }

  #mostClients(): number {
    return Math.max(CONNECT_CLIENTS, ...this.#options.clients);
  }

  #warmUpClients(): number {
    return Math.ceil(this.#mostClients() * WARM_UP_SURPLUS);
  }

  /** Server connections stay open between the turns of a contender, so all of them count. */
  #maxConnections(): number {
    const sessions = this.#options.contenders.map((name) =>
      this.#poolsBySession(name, "prepared")
        // Each process of a fleet keeps the most sessions that ever reached it.
        ? this.#warmUpClients() * (name.shape === "fleet" ? this.#machine.cores : 1)
        : 0
    );
    return 20 + POOL_SIZE * 2 * this.#options.contenders.length +
      sessions.reduce((sum, count) => sum + count, 0);
  }

  #poolsBySession(name: ContenderName, kind: Workload["kind"]): boolean {
    return kind === "prepared" && this.#options.protocols.includes("prepared") &&
      !poolsPreparedStatements(name, this.#programs.pgbouncer);
  }

  #database(name: ContenderName, kind: Workload["kind"]): string {
    return this.#poolsBySession(name, kind) ? SESSION_DATABASE : POOLED_DATABASE;
  }

  #setting(server: Postgres): Setting {
    return {
      serverPort: server.port,
      user: this.#tools.user,
      poolSize: POOL_SIZE,
      maxClients: Math.max(this.#warmUpClients(), this.#options.idleClients * 2) + 100,
      maxSessions: this.#warmUpClients(),
      cores: this.#machine.cores,
      pgbouncer: this.#programs.pgbouncer,
      pgbouncerUser: unprivilegedUser(),
      certificate: this.#options.tls ? new CertificateAuthority().issue("pooler") : null,
      scramSecret: null,
    };
  }

  /** Opens every server connection that will be needed, and lets a just-in-time compiler do its work. */
  async #warmUp(contender: Contender): Promise<void> {
    for (const kind of new Set(this.#workloads.map((workload) => workload.kind))) {
      say(`warm up ${contender.name.id}, ${kind}`);
      const clients = kind === "connect" ? CONNECT_CLIENTS : this.#warmUpClients();
      const database = this.#database(contender.name, kind);
      await measure(this.#tools, contender, { kind, clients }, database, WARM_UP_SECONDS);
    }
  }

  async #measureRounds(contenders: readonly Contender[]): Promise<void> {
    for (let round = 1; round <= this.#options.rounds; round++) {
      for (const workload of this.#workloads) {
        for (const contender of contenders) {
          const sample = await measure(
            this.#tools,
            contender,
            workload,
            this.#database(contender.name, workload.kind),
            workload.kind === "connect" ? this.#options.connectSeconds : this.#options.seconds,
          );
          this.#cell(workload, contender.name).samples.push(sample);
          say(
            `round ${round} of ${this.#options.rounds}, ${workloadName(workload)}, ` +
              `${contender.name.id}: ${sample.tps.toFixed(0)} TPS, ` +
              `${sample.cpuMicros.toFixed(1)} µs of CPU each`,
          );
        }
      }
    }
  }

  #cell(workload: Workload, name: ContenderName): GrowingCell {
    const { kind, clients } = workload;
    let cell = this.#cells.find((known) =>
      known.contender === name.id && known.kind === kind && known.clients === clients
    );
    if (cell === undefined) {
      const note = this.#poolsBySession(name, kind) ? "session pooling" : null;
      cell = { kind, clients, contender: name.id, note, samples: [] };
      this.#cells.push(cell);
    }
    return cell;
  }

  /** In fresh processes: memory that earlier runs left behind would take in the idle clients. */
  async #measureMemory(setting: Setting): Promise<void> {
    for (const name of this.#options.contenders) {
      const contender = await startContender(name, setting);
      try {
        const idle = await measureIdle(
          this.#tools,
          contender,
          POOLED_DATABASE,
          this.#options.idleClients,
        );
        this.#idle.push(idle);
        say(
          `memory of ${name.id}: ${(idle.restBytes / 1e6).toFixed(1)} MB at rest, ` +
            `${idle.bytesPerClient.toFixed(0)} bytes per idle client`,
        );
      } finally {
        await contender.stop();
      }
    }
  }

  #expectedSeconds(): number {
    const { contenders, rounds, seconds, connectSeconds, connections } = this.#options;
    const overhead = 0.2;
    const perRound = this.#workloads.reduce(
      (sum, { kind }) => sum + overhead + (kind === "connect" ? connectSeconds : seconds),
      0,
    );
    const warmUp = (this.#options.protocols.length + 1) * (WARM_UP_SECONDS + overhead);
    return 5 + contenders.length * (rounds * perRound + warmUp + (connections ? 6 : 0));
  }

  #plan(): string {
    const { contenders, rounds, seconds } = this.#options;
    return `${
      contenders.map((name) => name.id).join(", ")
    }; ${this.#workloads.length} workloads, ` +
      `${rounds} rounds of ${seconds} s`;
  }
}

function say(text: string): void {
  console.error(text);
}
