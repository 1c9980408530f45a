// Several workers on one client port and one bus, started without a supervisor, so that a test decides which
// worker has which id and which of them dies. The broker is the embedded one or a real nats-server.

import { type Broker, type StartBroker } from "../../bus/brokers.ts";
import { until } from "../../support/harness.ts";
import { type Ini, withDefaults } from "../../support/ini.ts";
import { type Pgweir, startPgweir } from "../../support/pgweir.ts";
import { RawClient } from "../../support/raw_client.ts";
import { freePort } from "../../support/temp.ts";
import { cancelKeyWorker } from "../../../shared/wire/mod.ts";

export interface Member {
  readonly id: number;
  readonly worker: Pgweir;
}

export class Fleet {
  readonly host = "127.0.0.1";
  readonly port: number;
  readonly broker: Broker;
  readonly members: Member[] = [];
  readonly #ini: Ini;
  readonly #ids: readonly number[];

  constructor(broker: Broker, port: number, ini: Ini, ids: readonly number[]) {
    this.broker = broker;
    this.port = port;
    // Nobody here hands out slots.
    this.#ini = withDefaults(ini, {
      // Each worker has its part: that must do however the kernel spreads the clients.
      pgbouncer: { budget_mode: "static", max_client_conn: 1000 },
    });
    this.#ids = ids;
  }

  async startWorker(id: number): Promise<void> {
    const seat = {
      index: this.#ids.indexOf(id),
      count: this.#ids.length,
      workerId: id,
      busUrl: this.broker.url,
      busToken: this.broker.token,
      fleetSecret: "shared by the workers of this test",
      mesh: "default",
      supervisorPid: 0,
    };
    const worker = await startPgweir({
      ini: this.#ini,
      port: this.port,
      environment: { PGWEIR_FLEET: JSON.stringify(seat) },
      readyTimeoutMs: 60_000,
    });
    this.members.push({ id, worker });
  }

  /** The worker with this id that was started last. */
  worker(id: number): Pgweir {
    const found = this.members.findLast((member) => member.id === id);
    if (found === undefined) throw new Error(`find worker ${id}: it was not started`);
    return found.worker;
  }

  /** Logs in until every worker has `each` of the clients; the kernel chooses where one lands. */
  async clients(each: number, login: { user: string; database: string }): Promise<RawClient[]> {
    const perWorker = new Map<number, RawClient[]>(this.#ids.map((id) => [id, []]));
    const surplus: RawClient[] = [];
    await until(
      `${each} clients on every worker`,
      async () => {
        const client = await RawClient.login(this, login);
        const own = perWorker.get(ownerOf(client))!;
        (own.length < each ? own : surplus).push(client);
        return [...perWorker.values()].every((list) => list.length === each);
      },
      60_000,
      0,
    );
    for (const client of surplus) await client.end();
    return [...perWorker.values()].flat();
  }

  async stop(): Promise<void> {
    await Promise.all(this.members.map(({ worker }) => worker.stop()));
    await this.broker.stop();
  }
}

/** The id of the worker a client is connected to, which its cancel key tells. */
export function ownerOf(client: RawClient): number {
  const { processId, secret } = client.key!;
  return cancelKeyWorker(processId, secret);
}

export async function startFleet(
  start: StartBroker,
  ids: readonly number[],
  ini: Ini,
): Promise<Fleet> {
  const fleet = new Fleet(await start({}), await freePort(), ini, ids);
  for (const id of ids) await fleet.startWorker(id);
  return fleet;
}
