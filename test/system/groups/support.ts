// Clients of resource groups of one pooler, and what SHOW GROUPS says of them.

import { until } from "../../support/harness.ts";
import type { Pgweir } from "../../support/pgweir.ts";
import { RawClient, ServerError } from "../../support/raw_client.ts";

export class GroupClients {
  readonly #pooler: Pgweir;
  readonly #opened: RawClient[] = [];

  constructor(pooler: Pgweir) {
    this.#pooler = pooler;
  }

  /** Its group is that of the application_name. */
  readonly client = async (
    application_name: string,
    database = "shop",
    more: Record<string, string> = {},
  ): Promise<RawClient> => {
    const made = await RawClient.login(this.#pooler, {
      user: "postgres",
      database,
      parameters: { application_name, ...more },
    });
    this.#opened.push(made);
    return made;
  };

  /** "running queued" of a group. */
  readonly seen = async (group: string): Promise<string> => {
    const row = (await this.#pooler.console("SHOW GROUPS")).find(({ name }) => name === group)!;
    return `${row["running_queries"]} ${row["queued_queries"]}`;
  };

  readonly shows = async (group: string, wanted: string): Promise<void> => {
    let last = "";
    await until(`${group} to show ${wanted}`, async () => {
      last = await this.seen(group);
      return last === wanted;
    }).catch((error) => {
      throw new Error(`${(error as Error).message}, it shows ${last}`);
    });
  };

  /** All clients leave; nothing is left of them in any group. */
  async leave(): Promise<void> {
    for (const each of this.#opened.splice(0)) each.close();
    await until("all groups to be empty", async () => {
      const rows = await this.#pooler.console("SHOW GROUPS");
      return rows.every((row) => row["running_queries"] === "0" && row["queued_queries"] === "0");
    });
  }
}

export async function refusalOf(promise: Promise<unknown>): Promise<ServerError> {
  try {
    await promise;
  } catch (error) {
    if (error instanceof ServerError) return error;
    throw error;
  }
  throw new Error("no error came");
}
