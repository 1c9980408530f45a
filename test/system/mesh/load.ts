// Clients that ask one short query after another, on several hosts at once, and keep book of every error. One whose
// connection is closed comes again: a host that lost its workers has clients as soon as it serves again.

import { f } from "../../support/notation.ts";
import { RawClient } from "../../support/raw_client.ts";
import { until } from "../../support/harness.ts";
import type { MeshHost } from "./mesh.ts";

export interface LoadError {
  /** Milliseconds since the load began. */
  readonly at: number;
  readonly text: string;
}

const ANSWER = 'T D C"SELECT 1" Z(I)';
const QUERY = f.Q("SELECT pg_sleep(0.02)");
/** Beyond any wait for a slot that is right, and short enough to be told from a hang. */
const PATIENCE_MS = 90_000;

const pause = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

/** The load on one host. */
export class Load {
  readonly host: MeshHost;
  readonly errors: LoadError[] = [];
  answered = 0;
  readonly #user: string;
  readonly #database: string;
  readonly #startedAt = performance.now();
  readonly #running: Promise<void>[] = [];
  #over = false;

  constructor(host: MeshHost, login: { user: string; database: string }) {
    this.host = host;
    this.#user = login.user;
    this.#database = login.database;
  }

  start(clients: number): void {
    for (let i = 0; i < clients; i++) this.#running.push(this.#run());
  }

  /** Lets every client end what it is in. */
  async stop(): Promise<void> {
    this.#over = true;
    await Promise.all(this.#running.splice(0));
    this.#over = false;
  }

  /** Waits until so many more queries were answered. */
  async progress(queries: number, timeoutMs = 90_000): Promise<void> {
    const goal = this.answered + queries;
    await until(
      `${queries} more answers on ${this.host.name}`,
      () => this.answered >= goal,
      timeoutMs,
      20,
    );
  }

  /** The errors since then, once each, with how often. */
  errorsSince(since: number): string[] {
    const counts = new Map<string, number>();
    for (const { text } of this.errors.slice(since)) counts.set(text, (counts.get(text) ?? 0) + 1);
    return [...counts].map(([text, count]) => `${count} x ${text}`);
  }

  #failed(text: string): void {
    this.errors.push({ at: Math.round(performance.now() - this.#startedAt), text });
  }

  async #run(): Promise<void> {
    while (!this.#over) {
      let client: RawClient;
      try {
        const login = { user: this.#user, database: this.#database };
        client = await RawClient.login(this.host.clients, login);
      } catch (error) {
        this.#failed(`log in: ${(error as Error).message}`);
        await pause(100);
        continue;
      }
      await this.#ask(client);
    }
  }

  async #ask(client: RawClient): Promise<void> {
    while (!this.#over) {
      client.send(QUERY);
      let answer: string;
      try {
        answer = await client.replies(1, { timeoutMs: PATIENCE_MS });
      } catch (error) {
        this.#failed((error as Error).message);
        return client.close();
      }
      if (answer === ANSWER) {
        this.answered++;
        continue;
      }
      this.#failed(answer);
      if (client.closeReason !== null) return;
    }
    await client.end();
  }
}
