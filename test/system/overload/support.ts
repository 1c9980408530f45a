// What the tests of shedding share: a worker in front of PostgreSQL on a real bus, and monitors' decisions that the
// test makes up. A decision holds for minutes here unless a test says otherwise, so that nothing hangs on time.

import {
  type Bus,
  connectBus,
  type OverloadDecision,
  type Shedding,
} from "../../../shared/bus/mod.ts";
import { createLogger } from "../../../shared/telemetry/mod.ts";
import type { Broker } from "../../bus/brokers.ts";
import { until } from "../../support/harness.ts";
import type { ConsoleRow, Pooler } from "../../support/pooler.ts";
import { RawClient } from "../../support/raw_client.ts";

/** Bounds and a probability, as of an overload. */
export function share(probability: number): Shedding {
  return probability === 0 ? { min: 0, max: 0, probability } : { min: 2, max: 6, probability };
}

export interface Said {
  /** Default 60 s. */
  readonly intervalMs?: number;
  readonly transactions?: number;
  readonly connections?: number;
  readonly epoch?: number;
  readonly seq?: number;
  readonly host?: string;
}

/** A monitor on a database host. */
export class Monitor {
  readonly bus: Bus;
  readonly #name: string;
  readonly #decided = new Set<string>();
  #epoch = 4_000_000_000_000;
  #seq = 0;

  private constructor(bus: Bus, name: string) {
    this.bus = bus;
    this.#name = name;
  }

  static async join(
    { url, token }: Pick<Broker, "url" | "token">,
    mesh = "default",
    name = "monitor-1",
  ): Promise<Monitor> {
    const logger = createLogger({ component: "test", level: "error", format: "text" });
    return new Monitor(await connectBus({ servers: [url], token, mesh, name, logger }), name);
  }

  decision(said: Said = {}): OverloadDecision {
    const seq = said.seq ?? ++this.#seq;
    return {
      monitor: this.#name,
      host: said.host ?? "db1",
      supervisor: "",
      database: "",
      epoch: said.epoch ?? this.#epoch,
      seq,
      intervalMs: said.intervalMs ?? 60_000,
      ratio: 4,
      waitUs: 2_000_000,
      busyUs: 500_000,
      reason: `decision ${this.#name} ${seq}`,
      transactions: share(said.transactions ?? 0),
      connections: share(said.connections ?? 0),
    };
  }

  /** Says it of a database; returns the reason, which is one of its own. */
  say(database: string, said: Said = {}): string {
    const decision = { ...this.decision(said), database };
    this.bus.publish(this.bus.subjects.overloadDatabase(this.#name), decision);
    return decision.reason;
  }

  /** Takes back what was decided. */
  async calm(pooler: Pooler): Promise<void> {
    for (const database of this.#decided) await this.decide(pooler, database);
    this.#decided.clear();
  }

  /** The same, and waits until the worker goes by it. */
  async decide(pooler: Pooler, database: string, said: Said = {}): Promise<void> {
    this.#decided.add(database);
    // What is said next has to be newer.
    this.#epoch = said.epoch ?? this.#epoch;
    this.#seq = said.seq ?? this.#seq;
    const reason = this.say(database, said);
    await until(`"${reason}" to hold`, async () => {
      return (await overload(pooler)).some((row) => row["reason"] === reason);
    });
  }
}

export async function overload(pooler: Pooler): Promise<ConsoleRow[]> {
  return await consoleOf(pooler, "SHOW OVERLOAD");
}

export async function consoleOf(pooler: Pooler, command: string): Promise<ConsoleRow[]> {
  const client = await open(pooler, "pgbouncer", "admin");
  try {
    return await client.table(command);
  } finally {
    await client.end();
  }
}

/** What was refused so far to the clients of a database. */
export async function shedCounts(
  pooler: Pooler,
  database: string,
): Promise<{ transactions: number; connections: number }> {
  const rows = (await overload(pooler)).filter((row) => row["database"] === database);
  const sum = (column: string) => rows.reduce((all, row) => all + Number(row[column]), 0);
  return { transactions: sum("shed_transactions"), connections: sum("shed_connections") };
}

/** How many of so many attempts were refused, and whether that is what the probability says. */
export function isFair(refused: number, attempts: number, probability: number): boolean {
  const sigma = Math.sqrt(attempts * probability * (1 - probability));
  // By chance alone beyond that once in a million.
  return Math.abs(refused - attempts * probability) <= 5 * sigma;
}

const opened: RawClient[] = [];

/** A client that `closeAll` closes. */
export async function open(
  pooler: Pooler,
  database: string,
  user = "postgres",
): Promise<RawClient> {
  const client = await RawClient.login(pooler, { user, database, password: "secret" });
  opened.push(client);
  return client;
}

export function closeAll(): void {
  for (const client of opened.splice(0)) client.close();
}
