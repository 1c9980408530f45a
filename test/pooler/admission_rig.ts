// The admission and the budget of some workers and the ledger that they share, with a clock that the test moves and
// nothing in between: reports and grants arrive when time passes.

import { Admission } from "../../services/pooler/plane/admission.ts";
import { Budget } from "../../services/pooler/plane/budget.ts";
import type { ClientSession } from "../../services/pooler/plane/client.ts";
import { ParameterTracker } from "../../services/pooler/plane/parameters.ts";
import type { Plane } from "../../services/pooler/plane/plane.ts";
import type { Refusal } from "../../services/pooler/plane/refusals.ts";
import type { ServerConnection } from "../../services/pooler/plane/server.ts";
import { type Config, loadConfig } from "../../shared/config/mod.ts";
import { leafRules, Ledger, type Report } from "../../shared/ledger/mod.ts";
import { assert } from "../support/harness.ts";

const leaseMs = 10_000;
const stepMs = 5;
const sweepMs = 100;

const tracker = new ParameterTracker([]);

export class Mesh {
  now = 1_000_000;
  readonly workers: Worker[];
  readonly #ledger: Ledger;
  /** The coordinator hears nothing. */
  isCut = false;
  /** Reports and grants. */
  messages = 0;

  constructor(groups: string, count: number) {
    const { config, problems } = loadConfig(
      "main.ini",
      () =>
        "[databases]\na = host=h user=u\n[pgbouncer]\npool_mode = transaction\nauth_type = any\n" +
        groups,
    );
    assert.equal(problems, []);
    const rules = leafRules(config!);
    this.#ledger = new Ledger({ epoch: 1, rules, leaseMs, silentMs: 3000, now: this.now });
    this.workers = Array.from({ length: count }, (_, at) => new Worker(this, config!, at, count));
    this.pass(500);
  }

  pass(ms: number): void {
    this.passUntil(() => false, ms);
  }

  /** At most so long. */
  passUntil(isDone: () => boolean, ms: number): void {
    for (const end = this.now + ms; this.now < end && !isDone();) {
      this.now += stepMs;
      for (const worker of this.workers) worker.step();
      if (this.isCut) continue;
      for (const worker of this.workers) {
        for (const report of worker.reports.splice(0)) {
          this.messages++;
          this.#ledger.report(report, this.now);
        }
      }
      for (const { worker, grant } of this.#ledger.decide(this.now)) {
        this.messages++;
        this.workers[worker - 1]!.budget.onGrant(grant);
      }
      for (const worker of this.workers) worker.endBatch();
    }
  }
}

export class Worker {
  readonly admission: Admission;
  readonly budget: Budget;
  readonly plane: Plane;
  readonly reports: Report[] = [];
  readonly #mesh: Mesh;
  #timers: { readonly at: number; readonly run: () => void }[] = [];
  #sweepAt = 0;

  constructor(mesh: Mesh, config: Config, index: number, count: number) {
    this.#mesh = mesh;
    const plane = {
      config,
      settings: config.settings,
      seat: { index, count, workerId: index + 1, incarnation: 1, supervisorPid: 0 },
      tracker,
      pools: new Map(),
      // Of what begins nothing is looked at.
      arena: { bytes: new Uint8Array(0) },
      reactor: {
        get now() {
          return mesh.now;
        },
        after: (ms: number, run: () => void) => this.#timers.push({ at: mesh.now + ms, run }),
      },
      control: {
        post: ({ reports }: { reports: readonly Report[] }) => this.reports.push(...reports),
      },
    };
    this.plane = plane as unknown as Plane;
    this.budget = new Budget(this.plane, leaseMs, () => mesh.now);
    Object.assign(plane, { budget: this.budget });
    this.admission = new Admission(this.plane);
    this.admission.setConfig(config);
  }

  step(): void {
    const { now } = this.#mesh;
    const due = this.#timers.filter(({ at }) => at <= now);
    this.#timers = this.#timers.filter(({ at }) => at > now);
    for (const { run } of due) run();
    if (now >= this.#sweepAt) {
      this.#sweepAt = now + sweepMs;
      this.admission.sweep(now);
      this.budget.sweep(now);
    }
    this.endBatch();
  }

  endBatch(): void {
    this.admission.onBatchEnd();
    this.budget.onBatchEnd();
  }

  client(user: string): Client {
    return new Client(this, user);
  }
}

export class Client {
  readonly #worker: Worker;
  readonly #session: ClientSession;
  state: "idle" | "waits" | "runs" | "refused" = "idle";
  refusal: Refusal | null = null;

  constructor(worker: Worker, user: string) {
    this.#worker = worker;
    const server = {} as ServerConnection;
    this.#session = {
      plane: worker.plane,
      user,
      database: "a",
      address: { host: "10.0.0.1", port: 1 },
      parameters: tracker.none,
      place: null,
      pool: { serves: true, acquire: () => server },
      onServer: () => this.state = "runs",
      refuseWaiting: (refusal: Refusal) => {
        this.state = "refused";
        this.refusal = refusal;
      },
    } as unknown as ClientSession;
  }

  begin(): this {
    this.state = "waits";
    this.refusal = null;
    if (this.#worker.admission.acquire(this.#session, 0, 0) !== null) this.state = "runs";
    this.#worker.endBatch();
    return this;
  }

  end(): void {
    assert.is(this.state, "runs");
    this.#worker.admission.end({ place: this.#session.place } as unknown as ServerConnection);
    this.state = "idle";
    this.#worker.endBatch();
  }
}
