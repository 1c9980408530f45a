// Two equal PostgreSQL servers, one asked directly and one through a pooler, and scripts that are run on both at the
// same time. The servers are copies of one cluster and are told the same in the same order, so even the numbers of
// their objects are equal. Only differences are reported; a script's own errors are part of what is compared.

import type { Message } from "../../../shared/wire/mod.ts";
import { assert, until } from "../../support/harness.ts";
import { type Pgweir, startPgweir } from "../../support/pgweir.ts";
import { type Postgres, type PostgresVersion, startPostgres } from "../../support/postgres.ts";
import { type Login, RawClient, ServerError, type Target } from "../../support/raw_client.ts";
import {
  type Difference,
  differences,
  type Mask,
  maskAlways,
  maskStatementNames,
  report,
} from "./compare.ts";
import { type Conversation, converse, type Exchange } from "./conversation.ts";
import type { Script } from "./scripts.ts";

export interface TwinsOptions {
  readonly version?: PostgresVersion;
  readonly mode: "session" | "transaction";
  /** Settings of the pooler. */
  readonly settings?: Readonly<Record<string, string | number>>;
}

export interface CompareOptions {
  readonly pipelined?: boolean;
  readonly as?: Login;
  /** For the direct and the pooled side; default: what the mode needs. */
  readonly masks?: readonly [Mask, Mask];
}

/** The database that scripts run in. */
export const DATABASE = "sieve";

const login: Login = { user: "postgres", database: DATABASE };

// A session's temporary tables are in a schema of its place in the server. Making one takes two object numbers, and
// two servers may give a session different places; so the schemas of all places are made beforehand.
const PLACES = 16;

async function fillPlaces(server: Postgres): Promise<void> {
  const clients: RawClient[] = [];
  await until(
    "a session in every place",
    async () => {
      try {
        const client = await RawClient.login(server, login);
        clients.push(client);
        await client.query("CREATE TEMPORARY TABLE place (content text)");
      } catch (error) {
        // A session that has just been ended may still have its place.
        if (!(error instanceof ServerError) || error.code !== "53300") throw error;
      }
      return clients.length === PLACES;
    },
    30_000,
    0,
  );
  for (const client of clients) await client.end();
}

export class Twins {
  readonly pooler: Pgweir;
  readonly direct: Postgres;
  readonly #pooled: Postgres;
  readonly #mask: Mask;

  private constructor(direct: Postgres, pooled: Postgres, pooler: Pgweir, mask: Mask) {
    this.direct = direct;
    this.#pooled = pooled;
    this.pooler = pooler;
    this.#mask = mask;
  }

  static async start(options: TwinsOptions): Promise<Twins> {
    const postgres = {
      settings: { max_connections: String(PLACES), max_prepared_transactions: "10" },
      ...(options.version === undefined ? {} : { version: options.version }),
    };
    const [direct, pooled] = await Promise.all([startPostgres(postgres), startPostgres(postgres)]);
    const pooler = await startPgweir({
      ini: {
        databases: { "*": `host=${pooled.host} port=${pooled.port}` },
        pgbouncer: { pool_mode: options.mode, default_pool_size: 2, ...options.settings },
      },
    });
    const mask = options.mode === "session" ? maskAlways : maskStatementNames;
    return new Twins(direct, pooled, pooler, mask);
  }

  async stop(): Promise<void> {
    await this.pooler.stop();
    await Promise.all([this.direct.stop("immediate"), this.#pooled.stop("immediate")]);
  }

  /** Makes the database anew on both servers; `settings` are the database's own. */
  async freshDatabase(settings: Readonly<Record<string, string>> = {}): Promise<void> {
    await this.onBoth(async (server) => {
      for (const { gid } of await server.query("SELECT gid FROM pg_prepared_xacts")) {
        await server.query(`ROLLBACK PREPARED '${gid}'`, [], DATABASE);
      }
      await server.query(`DROP DATABASE IF EXISTS ${DATABASE} WITH (FORCE)`);
      await server.query(`CREATE DATABASE ${DATABASE} TEMPLATE template0`);
      for (const [name, value] of Object.entries(settings)) {
        await server.query(`ALTER DATABASE ${DATABASE} SET ${name} = '${value}'`);
      }
      await fillPlaces(server);
    });
  }

  /** Does the same on both servers, past the pooler. */
  async onBoth(work: (server: Postgres) => Promise<void>): Promise<void> {
    await Promise.all([work(this.direct), work(this.#pooled)]);
  }

  /** Runs scripts one after the other, each on a connection of its own on either side; asserts equal replies. */
  async same(conversation: Conversation, scripts: readonly Script[]): Promise<void> {
    assert.is(report(await this.differences(conversation, scripts)), "");
  }

  async differences(
    conversation: Conversation,
    scripts: readonly Script[],
  ): Promise<Difference[]> {
    const found: Difference[] = [];
    for (const { name, statements } of scripts) {
      const exchanges = conversation.exchanges(statements);
      found.push(...await this.compare(name, exchanges, { pipelined: conversation.pipelined }));
    }
    return found;
  }

  /** Runs exchanges on a connection of their own on either side. */
  async compare(
    name: string,
    exchanges: readonly Exchange[],
    options: CompareOptions = {},
  ): Promise<Difference[]> {
    const { pipelined = false, as = login, masks = [this.#mask, this.#mask] } = options;
    const [direct, pooled] = await Promise.all([
      this.#run(this.direct, exchanges, pipelined, as),
      this.#run(this.pooler, exchanges, pipelined, as),
    ]);
    return differences(name, exchanges, direct, pooled, masks);
  }

  async #run(
    target: Target,
    exchanges: readonly Exchange[],
    pipelined: boolean,
    as: Login,
  ): Promise<Message[][]> {
    const client = await RawClient.login(target, as);
    try {
      return await converse(client, exchanges, pipelined);
    } finally {
      await client.end();
    }
  }

  /** After all scripts: the pooler lives, complained about nothing, and no session hangs in anything. */
  async nothingHangs(): Promise<void> {
    assert.is(this.pooler.end, null);
    await until(
      "all servers to be idle",
      async () => (await this.#pooled.backends()).every((backend) => backend.state === "idle"),
    );
    assert.not.match(this.pooler.log(), /\] (ERROR|FATAL) |at .*\.ts:\d+/);
  }
}
