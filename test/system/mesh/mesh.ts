// A mesh on hosts of the test's own: on each a nats-server (of one cluster, with JetStream) and `pgweir up`, and
// PostgreSQL on this machine, which is one more host of the network. A cut is the network's business, see hosts.ts.
// Clients of a host come by a network that no cut touches, as those on the host itself would.

import { writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { type Bus, connectBus, type Presence } from "../../../shared/bus/mod.ts";
import { runtimeCommand, runtimeName } from "../../../shared/sys/mod.ts";
import { createLogger } from "../../../shared/telemetry/mod.ts";
import { until } from "../../support/harness.ts";
import { type Host, HostNetwork } from "../../support/hosts.ts";
import { type Ini, iniText, userlistText, withDefaults } from "../../support/ini.ts";
import { ManagedProcess, type ProcessEnd } from "../../support/managed_process.ts";
import { findProgram } from "../../support/needs.ts";
import { type ConsoleRow, DEFAULT_USERS, defaultSettings } from "../../support/pooler.ts";
import { type Postgres, startPostgres } from "../../support/postgres.ts";
import { childrenOf, commandLine, isAlive, signal } from "../../support/processes.ts";
import { RawClient } from "../../support/raw_client.ts";
import { tempDir } from "../../support/temp.ts";

export const login = { user: "postgres", database: "postgres" };
const MESH = "cellar";
const WORKERS = 2;
const CLIENT_PORT = 6432;
const NATS_PORT = 4222;
const ROUTE_PORT = 6222;
const MONITOR_PORT = 8222;
const TOKEN = "the token of this mesh";

const root = resolve(import.meta.dirname!, "../../..");

/** The nats-server of a host. */
export class NatsNode {
  readonly host: Host;
  readonly #config: string;
  #process: ManagedProcess | null = null;

  constructor(host: Host, all: readonly Host[]) {
    this.host = host;
    const dir = tempDir("nats");
    this.#config = join(dir, "nats.conf");
    const routes = all.filter((other) => other !== host)
      .map((other) => `"nats://${other.address}:${ROUTE_PORT}"`);
    writeFileSync(
      this.#config,
      [
        `server_name: ${host.name}`,
        `listen: "${host.address}:${NATS_PORT}"`,
        `http: "${host.clientAddress}:${MONITOR_PORT}"`,
        `authorization { token: "${TOKEN}" }`,
        `jetstream { store_dir: "${dir}/store", max_memory_store: 64MB, max_file_store: 256MB }`,
        `cluster { name: mesh, listen: "${host.address}:${ROUTE_PORT}", routes: [${routes}] }`,
        "",
      ].join("\n"),
    );
  }

  get url(): string {
    return `nats://${encodeURIComponent(TOKEN)}@${this.host.address}:${NATS_PORT}`;
  }

  async start(): Promise<void> {
    this.#process = await this.host.launch({
      command: [findProgram("nats-server")!, "--config", this.#config],
    });
  }

  async kill(): Promise<void> {
    await this.#process?.stop("SIGKILL");
  }

  pause(): void {
    this.#process?.signal("SIGSTOP");
  }

  resume(): void {
    this.#process?.signal("SIGCONT");
  }

  log(): string {
    return this.#process?.output() ?? "";
  }

  /** The name of the server that leads JetStream's cluster as this one sees it; null: none that it knows of. */
  async leader(): Promise<string | null> {
    try {
      const state = await (await fetch(`${this.#monitor}/jsz`)).json();
      return state.meta_cluster?.leader || null;
    } catch {
      return null;
    }
  }

  /** Whether it has everything that the others have. */
  async healthy(): Promise<boolean> {
    try {
      const response = await fetch(`${this.#monitor}/healthz`);
      await response.text();
      return response.ok;
    } catch {
      return false;
    }
  }

  get #monitor(): string {
    return `http://${this.host.clientAddress}:${MONITOR_PORT}`;
  }
}

/** pgweir on a host. */
export class MeshHost {
  readonly host: Host;
  readonly nats: NatsNode;
  readonly port = CLIENT_PORT;
  readonly #ini: string;
  #process: ManagedProcess | null = null;
  #logs = "";

  constructor(host: Host, nats: NatsNode, ini: Ini) {
    this.host = host;
    this.nats = nats;
    const dir = tempDir("pgw");
    this.#ini = join(dir, "pgweir.ini");
    writeFileSync(join(dir, "userlist.txt"), userlistText({ ...DEFAULT_USERS, app: "" }));
    const defaults = { pgbouncer: defaultSettings(CLIENT_PORT, dir) };
    writeFileSync(this.#ini, iniText(withDefaults(ini, defaults)));
  }

  get name(): string {
    return this.host.name;
  }

  /** Where its clients connect to. */
  get clients(): { host: string; port: number } {
    return { host: this.host.clientAddress, port: this.port };
  }

  async launch(): Promise<void> {
    this.#process = await this.host.launch({
      command: [...runtimeCommand(), join(root, "services/cli.ts"), "up", this.#ini],
    });
  }

  async ready(): Promise<void> {
    const server = this.#process!;
    await server.ready(
      `pgweir on ${this.name}`,
      () => /^pgweir is ready/m.test(server.stdout()),
      120_000,
    );
  }

  /** The supervisor's children that run a sub-command: pooler, budget. */
  servicePids(command: string): number[] {
    return childrenOf(this.#process!.pid)
      .filter((pid) => commandLine(pid).includes(`cli.ts ${command}`));
  }

  log(): string {
    return this.#logs + (this.#process?.output() ?? "");
  }

  login(): Promise<RawClient> {
    return RawClient.login(this.clients, login);
  }

  async console(command: string): Promise<ConsoleRow[]> {
    const client = await RawClient.login(this.clients, { user: "admin", database: "pgbouncer" });
    try {
      return await client.table(command);
    } finally {
      await client.end();
    }
  }

  /** SIGTERM lets clients end what they are in, SIGQUIT does not. */
  async stop(name: "SIGTERM" | "SIGQUIT" = "SIGTERM"): Promise<ProcessEnd | null> {
    const server = this.#process;
    this.#process = null;
    const end = await server?.stop(name, 60_000) ?? null;
    this.#logs += server?.output() ?? "";
    return end;
  }

  /** Ends the supervisor and everything it started at once, as a power cut would. */
  async crash(): Promise<void> {
    const server = this.#process!;
    this.#process = null;
    const children = childrenOf(server.pid);
    server.signal("SIGKILL");
    for (const pid of children) signal(pid, "SIGKILL");
    await server.ended();
    await until("the services to end", () => !children.some(isAlive));
    this.#logs += server.output();
  }
}

export class Mesh {
  readonly network: HostNetwork;
  readonly nats: readonly NatsNode[];
  readonly postgres: Postgres;
  readonly hosts: readonly MeshHost[];

  constructor(
    network: HostNetwork,
    nats: readonly NatsNode[],
    postgres: Postgres,
    hosts: readonly MeshHost[],
  ) {
    this.network = network;
    this.nats = nats;
    this.postgres = postgres;
    this.hosts = hosts;
  }

  /** Starts pgweir on all hosts at the same instant and waits until all are ready. */
  async start(): Promise<void> {
    await Promise.all(this.hosts.map((host) => host.launch()));
    await Promise.all(this.hosts.map((host) => host.ready()));
  }

  /** Waits until most of the nats-servers follow one of them; gives that one. */
  async natsLeader(): Promise<NatsNode> {
    return await until(
      "a leader of the nats-servers",
      async () => {
        const leaders = await Promise.all(this.nats.map((node) => node.leader()));
        return this.nats.find(({ host: { name } }) =>
          leaders.filter((leader) => leader === name).length * 2 > leaders.length
        );
      },
      120_000,
      50,
    );
  }

  /** A connection of the test to the mesh's bus. */
  async bus(): Promise<Bus> {
    return await connectBus({
      servers: this.nats.map((node) => node.url),
      name: "test",
      mesh: MESH,
      logger: createLogger({ component: "test", level: "error", format: "text" }),
    });
  }

  async stop(): Promise<void> {
    this.network.healAll();
    await Promise.all(this.hosts.map((host) => host.stop("SIGQUIT")));
    await Promise.all(this.nats.map((node) => node.kill()));
    await this.postgres.stop("immediate");
    await this.network.remove();
  }
}

export interface MeshOptions {
  readonly names: readonly string[];
  /** How many of the hosts, from the first on, run pgweir; default all. The others have a nats-server only. */
  readonly poolers?: number;
  /** Parameters of the entry `postgres` in `[databases]`. */
  readonly database?: string;
  /** `[groups]` and `[group_rules]` of the hosts. */
  readonly groups?: Pick<Ini, "groups" | "group_rules">;
  /** More of the hosts' `[pgbouncer]` and `[pgweir]`. */
  readonly settings?: Readonly<Record<string, string | number>>;
  readonly own?: Readonly<Record<string, string | number>>;
  /** More of postgresql.conf. */
  readonly postgres?: Readonly<Record<string, string>>;
}

/** Starts everything but pgweir itself: `start()` does that. */
export async function makeMesh(options: MeshOptions): Promise<Mesh> {
  const network = await HostNetwork.create(options.names);
  const postgres = await startPostgres({
    settings: {
      max_connections: "200",
      listen_addresses: `127.0.0.1,${network.outside.address}`,
      ...options.postgres,
    },
    hba: [`host all all ${network.subnet} trust`],
  });
  const nats = network.hosts.map((host) => new NatsNode(host, network.hosts));
  await Promise.all(nats.map((node) => node.start()));
  const ini = {
    databases: {
      postgres: `host=${network.outside.address} port=${postgres.port} ${options.database ?? ""}`,
    },
    pgbouncer: { listen_addr: "*", ...options.settings },
    pgweir: {
      workers: WORKERS,
      runtime: runtimeName,
      mesh: MESH,
      bus_url: nats.map((node) => node.url).join(","),
      ...options.own,
    },
    ...options.groups,
  };
  const hosts = network.hosts.slice(0, options.poolers)
    .map((host, at) => new MeshHost(host, nats[at]!, ini));
  const mesh = new Mesh(network, nats, postgres, hosts);
  await mesh.natsLeader();
  await until(
    "the nats-servers to be one cluster",
    async () => (await Promise.all(nats.map((node) => node.healthy()))).every(Boolean),
    120_000,
    50,
  );
  return mesh;
}

/** What workers say of themselves, as the bus tells it. */
export class PresenceWatch {
  /** The latest of each worker. */
  readonly workers: Map<string, Presence> = new Map();
  readonly #stop: () => void;

  constructor(bus: Bus) {
    this.#stop = bus.subscribe(bus.subjects.allPresence, (presence) => {
      this.workers.set(`${presence.host} ${presence.pid}`, presence);
    });
  }

  ready(): Presence[] {
    return [...this.workers.values()].filter((worker) => worker.state === "ready");
  }

  end(): void {
    this.#stop();
  }
}
