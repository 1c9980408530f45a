// Hosts of the tests' own: network namespaces on this machine, each with a name, addresses and a line to a common
// switch that can be pulled. It is no emulation of a slow or lossy network: what is not cut arrives at once.
//   mesh network   hosts and this machine ("outside"); this is the one that cuts are about
//   client network the same again, never cut: how a test reaches the clients' side of a host that is cut off
// A namespace lives as long as a process in it, and its interfaces with it: nothing has to be removed by name, so
// nothing is left by a run that was killed. Two runs never share a subnet: a socket's name is the lock.

import { execFileSync, spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:net";
import { networkInterfaces } from "node:os";
import { join } from "node:path";
import { until } from "./harness.ts";
import { type LaunchOptions, ManagedProcess } from "./managed_process.ts";
import { tempDir } from "./temp.ts";

/** What can be cut off from another one. */
export interface Endpoint {
  readonly name: string;
  /** On the mesh network. */
  readonly address: string;
  /** On the client network. */
  readonly clientAddress: string;
}

// The range for tests of network devices (RFC 2544): nobody's real network is in it.
const SUBNETS = Array.from({ length: 512 }, (_, i) => `198.${18 + (i >> 8)}.${i & 255}`);
const MAX_HOSTS = 100;
const NAMESPACES = ["--net", "--uts", "--mount"];
const BOOT_ID = "/proc/sys/kernel/random/boot_id";
/** A station that does not exist: what is sent to it is lost without a word. */
const NOBODY = "02:00:00:00:00:01";

/** Ends the test file as skipped where it may not make namespaces and interfaces: not root, or a container. */
export function needsHosts(): void {
  const probe = "ip link add probe0 type bridge && ip link add probe1 type veth peer name probe2";
  if (spawnSync("unshare", [...NAMESPACES, "sh", "-c", probe], { stdio: "ignore" }).status === 0) {
    return;
  }
  console.log("SKIP network namespaces not permitted");
  process.exit(0);
}

function enter(pid: number): string[] {
  return ["nsenter", "--target", String(pid), ...NAMESPACES, "--"];
}

/** Runs `ip` for some lines of commands, in the namespaces of a process or in our own. */
function ip(pid: number | null, lines: readonly string[]): void {
  const [program = "", ...args] = [...pid === null ? [] : enter(pid), "ip", "-batch", "-"];
  execFileSync(program, args, {
    input: lines.join("\n") + "\n",
    stdio: ["pipe", "ignore", "pipe"],
  });
}

/** A process that does nothing but keep new namespaces, for as long as this one lives. */
async function keeper(): Promise<ManagedProcess> {
  const command = ["tail", `--pid=${process.pid}`, "-f", "/dev/null"];
  const started = await ManagedProcess.launch({ command: ["unshare", ...NAMESPACES, ...command] });
  await started.ready(
    "namespaces",
    () => readFileSync(`/proc/${started.pid}/comm`, "utf8") === "tail\n",
  );
  return started;
}

function isUsed(subnet: string): boolean {
  const addresses = Object.values(networkInterfaces()).flatMap((entries) => entries ?? []);
  return addresses.some(({ address }) => address.startsWith(`${subnet}.`));
}

/** Takes a subnet that no other run has; it is free again when the server is closed, or this process ends. */
async function takeSubnet(): Promise<{ subnet: string; number: number; lock: Server }> {
  const first = Math.floor(Math.random() * SUBNETS.length);
  for (let i = 0; i < SUBNETS.length; i++) {
    const number = (first + i) % SUBNETS.length;
    const subnet = SUBNETS[number]!;
    const lock = createServer();
    const taken = await new Promise<boolean>((resolve) => {
      lock.once("error", () => resolve(false));
      lock.listen({ path: `\0pgweir-test-${subnet}` }, () => resolve(true));
    });
    if (!taken) continue;
    lock.unref();
    if (!isUsed(subnet)) return { subnet, number, lock };
    lock.close();
  }
  throw new Error(`find a subnet for hosts: all ${SUBNETS.length} are taken`);
}

export class Host implements Endpoint {
  readonly name: string;
  readonly address: string;
  readonly clientAddress: string;
  readonly #keeper: ManagedProcess;
  readonly #switchPid: number;
  readonly #port: string;

  constructor(
    endpoint: Endpoint,
    keeper: ManagedProcess,
    switchPid: number,
    port: string,
  ) {
    this.name = endpoint.name;
    this.address = endpoint.address;
    this.clientAddress = endpoint.clientAddress;
    this.#keeper = keeper;
    this.#switchPid = switchPid;
    this.#port = port;
  }

  /** The process whose namespaces are this host's. */
  get pid(): number {
    return this.#keeper.pid;
  }

  /** argv that runs a program on this host; it keeps the pid it is started with, and starts in "/". */
  command(argv: readonly string[]): string[] {
    return [...enter(this.pid), ...argv];
  }

  /** Starts a process on this host. */
  launch(options: LaunchOptions): Promise<ManagedProcess> {
    return ManagedProcess.launch({ ...options, command: this.command(options.command) });
  }

  /** Runs a program on this host to its end; gives what it printed. */
  run(...argv: readonly string[]): string {
    const [program = "", ...args] = this.command(argv);
    return execFileSync(program, args, { stdio: ["ignore", "pipe", "pipe"] }).toString();
  }

  /** Pulls the line to the mesh network: nobody can be reached but the host itself. */
  cut(): void {
    ip(this.#switchPid, [`link set dev ${this.#port} down`]);
  }

  heal(): void {
    ip(this.#switchPid, [`link set dev ${this.#port} up`]);
  }

  /** From now on processes that look see another boot id, as after a restart of the machine. */
  newBoot(): void {
    const file = join(tempDir("boot"), "boot_id");
    writeFileSync(file, `${crypto.randomUUID()}\n`);
    this.run("mount", "--bind", file, BOOT_ID);
  }

  bootId(): string {
    return this.run("cat", BOOT_ID).trim();
  }

  /** Its processes lose the network with it; ends none of them. */
  async remove(): Promise<void> {
    await this.#keeper.stop("SIGKILL");
  }
}

export class HostNetwork {
  readonly hosts: readonly Host[];
  /** This machine, where the test and what it starts by itself run. */
  readonly outside: Endpoint;
  /** Of both networks, as in `198.18.7.0/24`. */
  readonly subnet: string;
  readonly #switch: ManagedProcess;
  readonly #lock: Server;
  readonly #device: string;
  readonly #lost = new Set<string>();

  private constructor(
    hosts: readonly Host[],
    outside: Endpoint,
    device: string,
    parts: { subnet: string; keeper: ManagedProcess; lock: Server },
  ) {
    this.hosts = hosts;
    this.outside = outside;
    this.subnet = `${parts.subnet}.0/24`;
    this.#switch = parts.keeper;
    this.#lock = parts.lock;
    this.#device = device;
  }

  /** Makes a host of each name. */
  static async create(names: readonly string[]): Promise<HostNetwork> {
    if (names.length > MAX_HOSTS) {
      throw new Error(`make hosts: ${names.length}, wanted at most ${MAX_HOSTS}`);
    }
    const { subnet, number, lock } = await takeSubnet();
    const endpoint = (name: string, at: number): Endpoint => ({
      name,
      address: `${subnet}.${at + 1}`,
      clientAddress: `${subnet}.${at + 129}`,
    });
    const outside = endpoint("outside", 0);
    const device = `pgwtest${number}`;
    const middle = await keeper();
    ip(middle.pid, [
      "link add mesh type bridge",
      "link add clients type bridge",
      `link add mesh0 type veth peer name ${device}m netns ${process.pid}`,
      `link add clients0 type veth peer name ${device}c netns ${process.pid}`,
      "link set dev mesh0 master mesh up",
      "link set dev clients0 master clients up",
      "link set dev mesh up",
      "link set dev clients up",
    ]);
    ip(null, addressLines(`${device}m`, `${device}c`, outside));
    const hosts: Host[] = [];
    for (const [index, name] of names.entries()) {
      const own = await keeper();
      const at = index + 1;
      ip(middle.pid, [
        `link add mesh${at} type veth peer name eth0 netns ${own.pid}`,
        `link add clients${at} type veth peer name eth1 netns ${own.pid}`,
        `link set dev mesh${at} master mesh up`,
        `link set dev clients${at} master clients up`,
      ]);
      const host = new Host(endpoint(name, at), own, middle.pid, `mesh${at}`);
      ip(own.pid, ["link set dev lo up", ...addressLines("eth0", "eth1", host)]);
      host.run("hostname", name);
      host.newBoot();
      hosts.push(host);
    }
    return new HostNetwork(hosts, outside, device, { subnet, keeper: middle, lock });
  }

  /** Neither of the two reaches the other any more; both reach everybody else. */
  cutBetween(one: Endpoint, other: Endpoint): void {
    this.cutOneWay(one, other);
    this.cutOneWay(other, one);
  }

  /** What the first sends to the second is lost, the other direction works. */
  cutOneWay(from: Endpoint, to: Endpoint): void {
    const { pid, device } = this.#place(from);
    ip(pid, [`neigh replace ${to.address} lladdr ${NOBODY} dev ${device} nud permanent`]);
    this.#lost.add(`${from.name} ${to.name}`);
  }

  healBetween(one: Endpoint, other: Endpoint): void {
    for (const [from, to] of [[one, other], [other, one]] as const) {
      if (!this.#lost.delete(`${from.name} ${to.name}`)) continue;
      const { pid, device } = this.#place(from);
      ip(pid, [`neigh del ${to.address} dev ${device}`]);
    }
  }

  /** Everybody reaches everybody. */
  healAll(): void {
    const all = [this.outside, ...this.hosts];
    for (const host of this.hosts) host.heal();
    for (const [at, one] of all.entries()) {
      for (const other of all.slice(at + 1)) this.healBetween(one, other);
    }
  }

  /** Removes the hosts and the networks; what still runs on a host keeps it until it ends. */
  async remove(): Promise<void> {
    for (const host of this.hosts) await host.remove();
    await this.#switch.stop("SIGKILL");
    await until("the network to be gone", () => !(`${this.#device}m` in networkInterfaces()));
    this.#lock.close();
  }

  #place(endpoint: Endpoint): { pid: number | null; device: string } {
    if (endpoint === this.outside) return { pid: null, device: `${this.#device}m` };
    const host = this.hosts.find((each) => each === endpoint);
    if (host === undefined) throw new Error(`find the host "${endpoint.name}": it is none of ours`);
    return { pid: host.pid, device: "eth0" };
  }
}

function addressLines(mesh: string, clients: string, own: Endpoint): string[] {
  return [
    `addr add ${own.address}/25 dev ${mesh}`,
    `addr add ${own.clientAddress}/25 dev ${clients}`,
    `link set dev ${mesh} up`,
    `link set dev ${clients} up`,
  ];
}
