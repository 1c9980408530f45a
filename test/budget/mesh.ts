// A small mesh for tests of the coordinator: real coordinator processes on a real bus, and workers that are
// nothing but a lease table each, in this process, where what all of them hold can be added up at any
// moment. A worker opens when it may and wants to, and closes when it must; it serves nobody.

import { randomUUID } from "node:crypto";
import { cpSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { decode } from "@msgpack/msgpack";
import { leaderKey } from "../../services/budget/election.ts";
import { chargesKey, decodeCharges } from "../../services/budget/saved_charges.ts";
import {
  type Bus,
  BusError,
  connectBus,
  EmbeddedBus,
  MemoryStore,
  openEmbeddedStore,
  openStore,
  serveStore,
  type Store,
} from "../../shared/bus/mod.ts";
import { type Grant, type Lease, LeaseTable, poolLeaf } from "../../shared/ledger/mod.ts";
import { runtimeCommand } from "../../shared/sys/mod.ts";
import { createLogger } from "../../shared/telemetry/mod.ts";
import { patientBus, patientStore } from "../bus/patience.ts";
import { assert, until } from "../support/harness.ts";
import { ManagedProcess } from "../support/managed_process.ts";
import { type NatsServer, startNats } from "../support/nats.ts";
import { handles } from "../support/processes.ts";
import { tempDir } from "../support/temp.ts";

const cli = resolve(import.meta.dirname!, "../../services/cli.ts");
const stepMs = 20;
const reportMs = 50;
const fullReportMs = 1000;
/** A new leader waits so long for workers of which it finds nothing saved; a little less, to be on the safe side. */
const heardInTimeMs = 2900;

export const pool = poolLeaf("shop", "app");

export type Face = "embedded" | "nats";

export interface MeshOptions {
  readonly face: Face;
  readonly poolSize: number;
  readonly leaseS?: number;
  /** Lines for [pgbouncer]. */
  readonly settings?: readonly string[];
  /** The entry of "shop". */
  readonly database?: string;
}

export class TestMesh {
  readonly bus: Bus;
  readonly nats: NatsServer | null;
  readonly iniFile: string;
  readonly workers: TestWorker[] = [];
  /** Moments at which more was held or allowed than the cap. */
  readonly violations: string[] = [];
  /** The machine stood still when a worker had to be heard: what was given away then is no violation. */
  #excused = false;
  leaseMs: number;
  #cap: number;
  readonly #options: MeshOptions;
  readonly #embedded: { readonly url: string; readonly broker: EmbeddedBus } | null;
  readonly #closers: (() => unknown)[];
  readonly #natsFiles: string;

  static async start(options: MeshOptions): Promise<TestMesh> {
    const logger = createLogger({ component: "test", level: "error", format: "text" });
    const name = "test";
    const mesh = "default";
    const natsFiles = join(tempDir("nats"), "store");
    if (options.face === "nats") {
      const extraArguments = ["--jetstream", "--store_dir", natsFiles];
      const nats = await startNats({ extraArguments });
      const { url, token } = nats;
      const bus = await connectBus({ servers: [url], token, name, mesh, logger, ...patientBus });
      const closers = [() => bus.close(), () => nats.stop()];
      return new TestMesh(options, bus, nats, null, closers, natsFiles);
    }
    const broker = new EmbeddedBus({});
    const token = randomUUID();
    const { url } = await broker.start({ token });
    const bus = await connectBus({ servers: [url], token, name, mesh, logger, ...patientBus });
    const stop = serveStore(bus, new MemoryStore());
    const closers = [stop, () => bus.close(), () => broker.close()];
    return new TestMesh(options, bus, null, { url, broker }, closers, natsFiles);
  }

  private constructor(
    options: MeshOptions,
    bus: Bus,
    nats: NatsServer | null,
    embedded: { url: string; broker: EmbeddedBus } | null,
    closers: (() => unknown)[],
    natsFiles: string,
  ) {
    this.#natsFiles = natsFiles;
    this.#options = options;
    this.bus = bus;
    this.nats = nats;
    this.#embedded = embedded;
    this.#closers = closers;
    this.#cap = options.poolSize;
    this.leaseMs = (options.leaseS ?? 10) * 1000;
    this.iniFile = join(tempDir("budget"), "pgweir.ini");
    this.write({});
  }

  /** Writes the file; a bad one when `broken`. The highest pool size so far is what is checked. */
  write(change: { readonly poolSize?: number; readonly broken?: boolean }): void {
    const { settings = [], database = "host=127.0.0.1" } = this.#options;
    const poolSize = change.poolSize ?? this.#options.poolSize;
    this.#cap = Math.max(this.#cap, poolSize);
    const lines = [
      "[databases]",
      `shop = ${database}`,
      "[pgbouncer]",
      "pool_mode = transaction",
      `default_pool_size = ${poolSize}`,
      "budget_mode = leased",
      `budget_lease = ${this.leaseMs / 1000}`,
      ...(this.nats === null
        ? []
        : [`bus_url = nats://${this.nats.token}@127.0.0.1:${this.nats.port}`]),
      ...settings,
      ...(change.broken ? ["pool_mode = nonsense"] : []),
      "",
    ];
    writeFileSync(this.iniFile, lines.join("\n"));
  }

  async startCoordinator(): Promise<TestCoordinator> {
    const seat = this.#embedded === null ? {} : { PGWEIR_BUDGET: this.#seat(this.#embedded) };
    const child = await ManagedProcess.launch({
      command: [...runtimeCommand(), cli, "budget", this.iniFile],
      environment: { ...process.env as Record<string, string>, ...seat },
    });
    return new TestCoordinator(child);
  }

  /** As a supervisor gives it: with the rights of a coordinator and no others. */
  #seat({ url, broker }: { readonly url: string; readonly broker: EmbeddedBus }): string {
    const name = `budget-${randomUUID().slice(0, 8)}`;
    const busToken = randomUUID();
    broker.allow(busToken, this.bus.subjects.coordinatorRights(name));
    const { pid } = process;
    const mesh = "default";
    return JSON.stringify({
      busUrl: url,
      busToken,
      mesh,
      supervisorPid: pid,
      embedded: true,
      name,
    });
  }

  /** Starts coordinators and waits until one of them leads; the leader comes first. */
  async startCoordinators(count: number): Promise<TestCoordinator[]> {
    const all = await Promise.all(Array.from({ length: count }, () => this.startCoordinator()));
    const leader = await leaderOf(all);
    // The others say nothing. One that has not come as far as to handle signals could not be stopped in good order.
    await until(
      "all to handle signals",
      () => all.every((one) => handles(one.process.pid, "SIGTERM")),
    );
    return [leader, ...all.filter((one) => one !== leader)];
  }

  /** One that uses one leaf only. */
  addWorker(wanted = 0, leaf = pool): TestWorker {
    const worker = new TestWorker(this, this.workers.length + 1, leaf);
    worker.wanted = wanted;
    this.workers.push(worker);
    return worker;
  }

  /** What the store says that a worker is charged. */
  async chargeOf({ id, incarnation }: TestWorker): Promise<number> {
    const store = await this.#store();
    const key = chargesKey(id, incarnation);
    const stored = await store.get(key);
    const saved = stored === null ? null : decodeCharges(key, stored.value)?.saved;
    return saved?.charges.get(pool)?.charge ?? 0;
  }

  /** The store loses what is saved of a worker. */
  async forgetCharge({ id, incarnation }: TestWorker): Promise<void> {
    const store = await this.#store();
    if (!(await store.remove(chargesKey(id, incarnation)))) throw new Error("nothing was saved");
  }

  /** The nats-server ends and comes back without its files, or with those of `keepStore()`. */
  async loseStore(which: "all" | "newest" = "all"): Promise<void> {
    await this.#betweenStarts(() => {
      rmSync(this.#natsFiles, { recursive: true });
      if (which === "newest") cpSync(this.#keptFiles, this.#natsFiles, { recursive: true });
    });
  }

  /** The nats-server ends and comes back; what it has then is kept. */
  async keepStore(): Promise<void> {
    await this.#betweenStarts(() => cpSync(this.#natsFiles, this.#keptFiles, { recursive: true }));
  }

  get #keptFiles(): string {
    return `${this.#natsFiles}.kept`;
  }

  async #store(): Promise<Store> {
    return this.nats === null
      ? openEmbeddedStore(this.bus, patientStore.requestMs)
      : await openStore(this.bus, patientStore);
  }

  async #betweenStarts(work: () => void): Promise<void> {
    if (this.nats === null) throw new Error("lose the store: it is in this process");
    await this.nats.kill();
    work();
    await this.nats.start();
  }

  /** What all workers together hold. */
  get held(): number {
    return this.workers.reduce((sum, worker) => sum + worker.lease.held, 0);
  }

  check(): void {
    const used = this.workers.map(({ lease }) => Math.max(lease.granted, lease.held));
    const sum = used.reduce((a, b) => a + b, 0);
    if (sum > this.#cap) this.violations.push(`${used.join("+")} of ${this.#cap}`);
  }

  checkViolations(): void {
    if (!this.#excused) assert.equal(this.violations, []);
  }

  /** Has a worker heard by a new leader that found nothing saved of it. */
  async unmute(worker: TestWorker, leader: TestCoordinator): Promise<void> {
    worker.unmute();
    const { epoch, at } = await until("the leader's begin", () => leader.terms.at(-1));
    await until("it to be heard", () => worker.grants.some((grant) => grant.epoch >= epoch));
    if (Date.now() - at > heardInTimeMs) this.#excused = true;
  }

  /** As a supervisor says it, again and again until a leader has noted it. */
  async reportGone({ id, incarnation }: TestWorker): Promise<void> {
    const gone = { worker: id, incarnation };
    const isNoted = () =>
      this.bus.request(this.bus.subjects.budgetGone, gone, 3000).then(() => true, (error) => {
        if (error instanceof BusError) return false;
        throw error;
      });
    await until("a leader to note it", isNoted);
  }

  /** Whether the store says that whoever led last has given its term up. */
  async hasResigned(): Promise<boolean> {
    const stored = await (await this.#store()).get(leaderKey);
    return stored !== null && (decode(stored.value) as { resigned?: unknown }).resigned === true;
  }

  async stop(): Promise<void> {
    for (const worker of this.workers) worker.stop();
    for (const close of this.#closers) await close();
  }
}

/** Starts a mesh for one test, in which the cap must have been kept at every moment. */
export async function withMesh(
  options: MeshOptions,
  run: (mesh: TestMesh) => Promise<void>,
): Promise<void> {
  const mesh = await TestMesh.start(options);
  try {
    await run(mesh);
    mesh.checkViolations();
  } finally {
    await mesh.stop();
  }
}

export class TestCoordinator {
  readonly process: ManagedProcess;

  constructor(process: ManagedProcess) {
    this.process = process;
  }

  get log(): string {
    return this.process.stderr();
  }

  /** The terms in which it took office, and when. */
  get terms(): { readonly epoch: number; readonly at: number }[] {
    const line = /^(\S+) (\S+) UTC .*budget coordinator leads.*?epoch=(\d+)/gm;
    return [...this.log.matchAll(line)].map(([, day, time, epoch]) => ({
      epoch: Number(epoch),
      at: Date.parse(`${day}T${time}Z`),
    }));
  }

  get epochs(): number[] {
    return this.terms.map(({ epoch }) => epoch);
  }

  async reload(): Promise<void> {
    const lines = () => this.log.match(/reload/g)?.length ?? 0;
    const before = lines();
    this.process.signal("SIGHUP");
    await until("the reload", () => lines() > before);
  }
}

/** The one that took office in the highest epoch, once there is one above `epoch`. */
export async function leaderOf(
  coordinators: readonly TestCoordinator[],
  epoch = 0,
): Promise<TestCoordinator> {
  try {
    return await until(
      "a leader",
      () => coordinators.find(({ epochs }) => (epochs.at(-1) ?? 0) > epoch),
      60_000,
    );
  } catch (error) {
    throw new Error(
      `${(error as Error).message}\n${coordinators.map(({ log }) => log).join("---\n")}`,
    );
  }
}

/** The one that leads first: after some seconds in which the machine stood still, it may be another one. */
export function leadingFirst(coordinators: readonly TestCoordinator[]): TestCoordinator[] {
  const last = ({ epochs }: TestCoordinator) => epochs.at(-1) ?? 0;
  return [...coordinators].sort((a, b) => last(b) - last(a));
}

/** Nobody else may have taken office after `epoch`, unless the leader was kept from renewing its term, and says so. */
export async function onlyLeader(
  leader: TestCoordinator,
  other: TestCoordinator,
  epoch = 0,
): Promise<void> {
  if (other.epochs.every((one) => one <= epoch)) return;
  await until("the leader's loss of its term", () => /could not be renewed/.test(leader.log));
}

export class TestWorker {
  readonly id: number;
  readonly incarnation = Date.now();
  readonly table: LeaseTable;
  readonly lease: Lease;
  /** Server connections it has a use for. */
  wanted = 0;
  /** What came, applied or not. */
  readonly grants: Grant[] = [];
  readonly #mesh: TestMesh;
  readonly #timers: ReturnType<typeof setInterval>[];
  readonly #unsubscribe: (() => void)[] = [];
  #mute = false;
  #closes = true;
  #fullAt = 0;

  constructor(mesh: TestMesh, id: number, leaf: string) {
    this.id = id;
    this.#mesh = mesh;
    const { bus, leaseMs } = mesh;
    this.table = new LeaseTable({ worker: id, incarnation: this.incarnation, leaseMs });
    this.lease = this.table.lease(leaf);
    this.#unsubscribe.push(
      bus.subscribe(bus.subjects.budgetGrant(id), (grant) => this.#onGrant(grant)),
      bus.subscribe(bus.subjects.budgetLeader, ({ epoch }) => {
        if (!this.#mute && this.table.onLeader(epoch, performance.now())) this.#report(true);
      }),
    );
    this.#timers = [
      setInterval(() => this.#step(), stepMs),
      setInterval(() => this.#report(false), reportMs),
    ];
  }

  /** Says that it is there. */
  present(): void {
    const { bus } = this.#mesh;
    bus.publish(bus.subjects.presence(this.id), {
      id: this.id,
      incarnation: this.incarnation,
      host: "here",
      boot: "today",
      pid: process.pid,
      state: "ready",
      addresses: [],
      clients: 0,
      servers: this.lease.held,
      configMark: "",
      runtime: "test",
    });
  }

  /** Says and hears nothing more; what it holds it keeps, as a process that is cut off does. */
  mute(): void {
    this.#mute = true;
  }

  unmute(): void {
    this.#mute = false;
  }

  /** Its connections are held by somebody else: it neither opens nor closes. */
  freeze(): void {
    this.#closes = false;
  }

  /** The process is dead; what it held is closed by PostgreSQL. */
  die(): void {
    this.stop();
    this.lease.held = 0;
    this.lease.granted = 0;
  }

  stop(): void {
    for (const timer of this.#timers) clearInterval(timer);
    for (const stop of this.#unsubscribe) stop();
  }

  #onGrant(grant: Grant): void {
    if (this.#mute) return;
    this.grants.push(grant);
    this.table.onGrant(grant, performance.now());
    this.#mesh.check();
  }

  #step(): void {
    const { lease, table } = this;
    table.expire(performance.now());
    this.#mesh.check();
    if (!this.#closes) return;
    const before = `${lease.held} ${lease.wanted}`;
    lease.wanted = this.wanted;
    const target = Math.min(lease.limit, Math.max(this.wanted, 0));
    if (lease.held < target) lease.held += Math.min(lease.room, target - lease.held);
    else if (lease.held > target) lease.held -= 1;
    if (`${lease.held} ${lease.wanted}` !== before) lease.touch();
    this.#mesh.check();
  }

  #report(full: boolean): void {
    if (this.#mute) return;
    const now = performance.now();
    const due = full || now - this.#fullAt >= fullReportMs;
    if (due) this.#fullAt = now;
    const { bus } = this.#mesh;
    for (const report of this.table.reports(now, due)) {
      bus.publish(bus.subjects.budgetReport(this.id), report);
    }
  }
}
