// What the protocol tests share: PostgreSQL with a pooler in front of it, and the default oracle, which is that the
// pooler answers the same bytes with the same messages as PostgreSQL itself. Not a test.

import { createHash } from "node:crypto";
import type { Message } from "../../../shared/wire/mod.ts";
import { assert, until } from "../../support/harness.ts";
import { notation } from "../../support/notation.ts";
import { type Pgweir, startPgweir } from "../../support/pgweir.ts";
import { type Postgres, type PostgresOptions, startPostgres } from "../../support/postgres.ts";
import { type Login, RawClient, type Target } from "../../support/raw_client.ts";

export const login: Login = { user: "postgres", database: "postgres" };

export interface PairOptions {
  /** Settings of the pooler. */
  readonly settings?: Readonly<Record<string, string | number>>;
  /** Of the database entry, beside host and port. */
  readonly database?: string;
  readonly userlist?: Readonly<Record<string, string>>;
  /** Of `[users]`. */
  readonly users?: Readonly<Record<string, string>>;
  readonly postgres?: PostgresOptions;
}

/** The connect string of a server. */
export function connectString(server: { host: string; port: number }, more = ""): string {
  return `host=${server.host} port=${server.port} ${more}`.trim();
}

/** A pooler in front of any server, under every database name. */
export function startPooler(
  server: { host: string; port: number },
  options: PairOptions = {},
): Promise<Pgweir> {
  return startPgweir({
    ini: {
      databases: { "*": connectString(server, options.database) },
      users: options.users ?? {},
      pgbouncer: { max_client_conn: 1000, ...options.settings },
    },
    ...(options.userlist === undefined ? {} : { userlist: options.userlist }),
  });
}

/** PostgreSQL, and a pooler in front of it with one server connection unless `settings` says otherwise. */
export async function startPair(
  options: PairOptions = {},
): Promise<{ postgres: Postgres; pooler: Pgweir }> {
  const postgres = await startPostgres(options.postgres);
  const settings = { default_pool_size: 1, ...options.settings };
  return { postgres, pooler: await startPooler(postgres, { ...options, settings }) };
}

/** Messages in the notation that shows values and settings; a long one is cut to its ends and its hash. */
export function transcript(messages: readonly Message[]): string {
  return messages.map((message) => {
    const text = notation(message, { values: true, settings: true });
    if (text.length <= 200) return text;
    const hash = createHash("md5").update(text).digest("hex");
    return `${text.slice(0, 40)}..${text.length} characters ${hash}..${text.slice(-20)}`;
  }).join(" ");
}

/** The replies of one connection to some bytes, up to the `count`-th ReadyForQuery. */
export async function ask(
  client: RawClient,
  parts: readonly Uint8Array[],
  count = 1,
): Promise<string> {
  client.send(...parts);
  const messages = await client.messagesUntil("Z", count);
  return transcript(messages) + (client.closeReason === null ? "" : " closed");
}

const opened: RawClient[] = [];

/** A client that `closeAll` closes, so that one failed test does not hold the server of the next. */
export async function open(target: Target, as: Login = login): Promise<RawClient> {
  const client = await RawClient.login(target, as);
  opened.push(client);
  return client;
}

/** For `after.each`: drops what a failed test left open. */
export function closeAll(): void {
  for (const client of opened.splice(0)) client.close();
}

/** Two connections that are told the same: one through the pooler, one straight to PostgreSQL. */
export class Twin {
  readonly pooled: RawClient;
  readonly direct: RawClient;

  private constructor(pooled: RawClient, direct: RawClient) {
    this.pooled = pooled;
    this.direct = direct;
  }

  /** `direct`: what the straight one logs in to, where the two must not find each other's objects. */
  static async login(
    pooler: Target,
    postgres: Target,
    as: Login = login,
    direct: Login = as,
  ): Promise<Twin> {
    return new Twin(await open(pooler, as), await open(postgres, direct));
  }

  /** Sends the same to both; asserts that both give the same messages, and gives them. */
  async same(parts: readonly Uint8Array[], count = 1): Promise<string> {
    const [pooled, direct] = await Promise.all([
      ask(this.pooled, parts, count),
      ask(this.direct, parts, count),
    ]);
    assert.is(pooled, direct);
    return pooled;
  }

  async end(): Promise<void> {
    await Promise.all([this.pooled.end(), this.direct.end()]);
  }
}

/** Waits until the pooler has noticed that its connections to servers have ended: all of them, or those of a user. */
export async function noServers(pooler: Pgweir, user?: string): Promise<void> {
  await until("the pooler to have no server", async () => {
    const rows = await pooler.console("SHOW SERVERS");
    return rows.every((row) => user !== undefined && row["user"] !== user);
  });
}

/** After all tests of a file: the pooler lives, and PostgreSQL has no session that hangs in anything. */
export async function nothingHangs(pooler: Pgweir, postgres: Postgres): Promise<void> {
  assert.is(pooler.end, null);
  await until(
    "all servers to be idle",
    async () => (await postgres.backends()).every((backend) => backend.state === "idle"),
  );
  const isComplaint = (line: string) => /\] (ERROR|FATAL) |at .*\.ts:\d+/.test(line);
  assert.equal(pooler.log().split("\n").filter(isComplaint), []);
}

/** Runs `work` for every item, a few at a time. */
export async function inParallel<T>(
  items: readonly T[],
  width: number,
  work: (item: T) => Promise<void>,
): Promise<void> {
  const queue = [...items];
  const one = async () => {
    for (let item = queue.shift(); item !== undefined; item = queue.shift()) await work(item);
  };
  await Promise.all(Array.from({ length: width }, one));
}

/** 1 to `last`. */
export function upTo(last: number): number[] {
  return Array.from({ length: last }, (_, at) => at + 1);
}
