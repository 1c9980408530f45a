// Clients of resource groups that never stop, and an eye on what PostgreSQL runs for each group. A query says its group
// in its text, where pg_stat_activity shows it.

import { cancelKeyWorker } from "../../../shared/wire/mod.ts";
import { until } from "../../support/harness.ts";
import type { Postgres } from "../../support/postgres.ts";
import { RawClient, ServerError, type Target } from "../../support/raw_client.ts";

/** A function whose call `take(kind, most)` fails when so many of a kind run already, each until its transaction ends. */
export const takesOneOf = `
  CREATE FUNCTION take(kind int, most int) RETURNS void LANGUAGE plpgsql AS $$
  BEGIN
    FOR place IN 1 .. most LOOP
      IF pg_try_advisory_xact_lock(kind, place) THEN RETURN; END IF;
    END LOOP;
    RAISE EXCEPTION 'more than % run of kind %', most, kind;
  END $$`;

const lookMs = 20;
const pause = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

/** Clients of one group, by application_name; one whose connection is lost comes again. */
export class GroupLoad {
  answered = 0;
  /** SQLSTATEs, or what was thrown. */
  readonly errors: string[] = [];
  readonly #pooler: Target;
  readonly #group: string;
  readonly #database: string;
  readonly #work: string;
  readonly #running: Promise<void>[] = [];
  readonly #workers = new Set<number>();
  #logins = 0;
  #over = false;

  /** `work`: what each query selects. */
  constructor(
    pooler: Target,
    group: string,
    clients: number,
    { database = "app", work = "pg_sleep(0.03)" } = {},
  ) {
    this.#pooler = pooler;
    this.#group = group;
    this.#database = database;
    this.#work = work;
    this.#add(clients);
  }

  #add(clients: number): void {
    for (let n = 0; n < clients; n++) this.#running.push(this.#run());
  }

  /** Adds clients until so many workers have some: which one a client comes to is the kernel's choice. */
  async everywhere(workers: number): Promise<void> {
    while (this.#workers.size < workers) {
      const before = this.#logins;
      this.#add(4);
      await until("more clients to come", () => this.#logins >= before + 4, 60_000, lookMs);
    }
  }

  async stop(): Promise<void> {
    this.#over = true;
    await Promise.all(this.#running);
  }

  async progress(queries: number): Promise<void> {
    const goal = this.answered + queries;
    await until(
      `${queries} more answers in ${this.#group}`,
      () => this.answered >= goal,
      60_000,
      lookMs,
    );
  }

  async #run(): Promise<void> {
    while (!this.#over) {
      try {
        const client = await RawClient.login(this.#pooler, {
          user: "app",
          database: this.#database,
          parameters: { application_name: this.#group },
        });
        const { processId, secret } = client.key!;
        this.#workers.add(cancelKeyWorker(processId, secret));
        this.#logins++;
        while (!this.#over) {
          await client.query(`/* run ${this.#group} */ SELECT ${this.#work}`, 120_000);
          this.answered++;
        }
        await client.end();
      } catch (error) {
        this.errors.push(error instanceof ServerError ? error.code : (error as Error).message);
        await pause(100);
      }
    }
  }
}

const running =
  "SELECT substring(query from '^/. run (\\w+) ./'), count(*) FROM pg_stat_activity " +
  "WHERE state = 'active' AND query LIKE '/* run %' GROUP BY 1";

/** The most that ran at once, looked for every 20 ms: ever, and since `forget`. */
export class GroupWatch {
  looks = 0;
  #most = new Map<string, number>();
  readonly #ever = new Map<string, number>();
  readonly #client: RawClient;
  readonly #sql: string;
  readonly #running: Promise<void>;
  #over = false;

  private constructor(client: RawClient, sql: string) {
    this.#client = client;
    this.#sql = sql;
    this.#running = this.#run();
  }

  /** `sql`: each group and how much of it runs. */
  static async start(postgres: Postgres, sql = running): Promise<GroupWatch> {
    const client = await RawClient.login(postgres, { user: "postgres", database: "postgres" });
    return new GroupWatch(client, sql);
  }

  /** Of a group; of all of them by "". */
  most(group = ""): number {
    return this.#most.get(group) ?? 0;
  }

  ever(group = ""): number {
    return this.#ever.get(group) ?? 0;
  }

  /** For another pooler. */
  restart(): void {
    this.#ever.clear();
    this.forget();
  }

  forget(): void {
    this.#most = new Map();
  }

  async reached(count: number, group = ""): Promise<void> {
    await until(
      `${count} of ${group === "" ? "all" : group} to run at once`,
      () => this.most(group) >= count,
      60_000,
      lookMs,
    ).catch((error) => {
      throw new Error(`${(error as Error).message}, it was ${this.most(group)} at most`);
    });
  }

  async end(): Promise<void> {
    this.#over = true;
    await this.#running;
    await this.#client.end();
  }

  async #run(): Promise<void> {
    while (!this.#over) {
      const rows = await this.#client.query(this.#sql);
      let total = 0;
      for (const [group, count] of rows) {
        total += Number(count);
        this.#note(group as string, Number(count));
      }
      this.#note("", total);
      this.looks++;
      await pause(lookMs);
    }
  }

  #note(group: string, count: number): void {
    for (const most of [this.#most, this.#ever]) {
      most.set(group, Math.max(count, most.get(group) ?? 0));
    }
  }
}
