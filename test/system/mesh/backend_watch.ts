// Looks at PostgreSQL's list of backends again and again, and remembers the most it ever showed for a user, by the
// host they came from. What comes and goes between two looks it does not see: a CONNECTION LIMIT of the role does.

import { until } from "../../support/harness.ts";
import type { Endpoint } from "../../support/hosts.ts";
import type { Postgres } from "../../support/postgres.ts";
import { RawClient } from "../../support/raw_client.ts";

const EVERY_MS = 20;

export interface Look {
  readonly total: number;
  readonly active: number;
  /** By client address. */
  readonly from: ReadonlyMap<string, number>;
}

export class BackendWatch {
  latest: Look = { total: 0, active: 0, from: new Map() };
  /** The one with the most backends. */
  most: Look = this.latest;
  looks = 0;
  readonly #client: RawClient;
  readonly #sql: string;
  readonly #running: Promise<void>;
  #over = false;

  private constructor(client: RawClient, user: string) {
    this.#client = client;
    this.#sql = `SELECT host(client_addr), count(*), count(*) FILTER (WHERE state = 'active')
      FROM pg_stat_activity WHERE usename = '${user}' GROUP BY 1`;
    this.#running = this.#run();
  }

  static async start(postgres: Postgres, user: string): Promise<BackendWatch> {
    const client = await RawClient.login(postgres, { user: "postgres", database: "postgres" });
    return new BackendWatch(client, user);
  }

  of(host: Endpoint): number {
    return this.latest.from.get(host.address) ?? 0;
  }

  /** Waits for a look from now on that is as wanted; the error says what the last one was. */
  async until(what: string, wanted: (look: Look) => boolean, timeoutMs: number): Promise<void> {
    const first = this.looks;
    try {
      await until(what, () => this.looks > first && wanted(this.latest), timeoutMs, EVERY_MS);
    } catch (error) {
      throw new Error(`${(error as Error).message}; last: ${this}`);
    }
  }

  /** What the latest look has shown. */
  toString(): string {
    const { total, active, from } = this.latest;
    const parts = [...from].map(([host, count]) => `${host}: ${count}`).join(", ");
    return `${total} backends (${parts}), ${active} active`;
  }

  async end(): Promise<void> {
    this.#over = true;
    await this.#running;
    await this.#client.end();
  }

  async #run(): Promise<void> {
    while (!this.#over) {
      const rows = await this.#client.query(this.#sql);
      const sum = (at: number) => rows.reduce((total, row) => total + Number(row[at]), 0);
      this.latest = {
        total: sum(1),
        active: sum(2),
        from: new Map(rows.map((row) => [row[0] ?? "", Number(row[1])])),
      };
      if (this.latest.total > this.most.total) this.most = this.latest;
      this.looks++;
      await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
    }
  }
}
