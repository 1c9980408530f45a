// A real nats-server on a random port of 127.0.0.1, with a token, or a cluster of them. Each can be frozen,
// killed and started again on the same port, which is how tests take the bus away and give it back.

import { join } from "node:path";
import { connect } from "node:net";
import { until } from "./harness.ts";
import { ManagedProcess } from "./managed_process.ts";
import { findProgram } from "./needs.ts";
import { freeze } from "./processes.ts";
import { freePort, tempDir } from "./temp.ts";

export interface NatsOptions {
  /** Default: a random one. An empty token means none is asked for. */
  readonly token?: string;
  readonly port?: number;
  /** Default false; the store is in a temp folder that a restart keeps. */
  readonly jetstream?: boolean;
  /** More arguments, e.g. for a cluster. */
  readonly extraArguments?: readonly string[];
}

export class NatsServer {
  readonly host = "127.0.0.1";
  readonly port: number;
  readonly token: string;
  readonly #arguments: readonly string[];
  #process: ManagedProcess | null = null;
  #logs = "";

  constructor(port: number, token: string, options: NatsOptions) {
    this.port = port;
    this.token = token;
    this.#arguments = [
      ...["--addr", this.host, "--port", String(port)],
      ...(token === "" ? [] : ["--auth", token]),
      ...(options.jetstream ? ["--jetstream", "--store_dir", join(tempDir("nats"), "store")] : []),
      ...options.extraArguments ?? [],
    ];
  }

  get url(): string {
    return `nats://${this.host}:${this.port}`;
  }

  get pid(): number {
    if (this.#process === null) throw new Error("nats-server: not running");
    return this.#process.pid;
  }

  async start(): Promise<void> {
    if (this.#process !== null) throw new Error("start nats-server: already started");
    const program = findProgram("nats-server");
    if (program === null) throw new Error("start nats-server: not installed");
    const server = await ManagedProcess.launch({ command: [program, ...this.#arguments] });
    this.#process = server;
    await server.ready("nats-server to greet", () => greets(this.host, this.port));
  }

  /** Ends it in order. Does nothing when it does not run. */
  async stop(): Promise<void> {
    await this.#stop("SIGTERM");
  }

  /** Ends it as a crash would. */
  async kill(): Promise<void> {
    await this.#stop("SIGKILL");
  }

  /** Stops it and starts it again on the same port. */
  async restart(): Promise<void> {
    await this.stop();
    await this.start();
  }

  /** Freezes it: connections stay open and nothing is answered. */
  async pause(): Promise<void> {
    await freeze(this.pid);
  }

  resume(): void {
    process.kill(this.pid, "SIGCONT");
  }

  log(): string {
    return this.#logs + (this.#process?.output() ?? "");
  }

  async #stop(name: NodeJS.Signals): Promise<void> {
    const server = this.#process;
    if (server === null) return;
    this.#process = null;
    await server.stop(name);
    this.#logs += server.output();
  }
}

/** Whether a NATS server sends its INFO line to a new connection. */
function greets(host: string, port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host, port });
    const answer = (good: boolean) => {
      socket.destroy();
      resolve(good);
    };
    socket.once("data", (bytes) => answer(bytes.toString().startsWith("INFO ")));
    socket.once("error", () => answer(false));
    socket.once("close", () => answer(false));
    socket.setTimeout(2_000, () => answer(false));
  });
}

export async function startNats(options: NatsOptions = {}): Promise<NatsServer> {
  const token = options.token ?? crypto.randomUUID();
  const server = new NatsServer(options.port ?? await freePort(), token, options);
  await server.start();
  return server;
}

/** Servers with one JetStream among them. A member that is started again keeps its port and its store. */
export class NatsCluster {
  readonly members: readonly NatsServer[];

  constructor(members: readonly NatsServer[]) {
    this.members = members;
  }

  get urls(): string[] {
    return this.members.map((member) => member.url);
  }

  get token(): string {
    return this.members[0]!.token;
  }

  async stop(): Promise<void> {
    await Promise.all(this.members.map((member) => member.stop()));
  }
}

/** Starts a cluster and waits until its members have elected who leads JetStream. */
export async function startNatsCluster(size: number): Promise<NatsCluster> {
  const token = crypto.randomUUID();
  const ports: number[] = [];
  while (ports.length < size * 2) {
    const port = await freePort();
    if (!ports.includes(port)) ports.push(port);
  }
  const routes = ports.slice(size).map((port) => `nats://127.0.0.1:${port}`);
  const members = routes.map((route, at) =>
    new NatsServer(ports[at]!, token, {
      jetstream: true,
      extraArguments: [
        ...["--name", `member-${at}`, "--cluster_name", "test"],
        ...["--cluster", route, "--routes", routes.join(",")],
      ],
    })
  );
  const cluster = new NatsCluster(members);
  try {
    await Promise.all(members.map((member) => member.start()));
    await until(
      "JetStream of the cluster to have a leader",
      () => members.some((member) => /JetStream cluster new.* leader/.test(member.log())),
      90_000,
    );
  } catch (error) {
    await cluster.stop();
    throw error;
  }
  return cluster;
}
