// A host of two workers on a nats-server: what is said to its supervisor's workers holds on each of them, warnings
// of all monitors are shown, bounds of resource groups hold on each, and limits on the event loop's lag follow a reload.
// limit: 360 s

import { parseErrorFields } from "../../../shared/wire/mod.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import { type NatsServer, startNats } from "../../support/nats.ts";
import { type Pgweir, startPgweir } from "../../support/pgweir.ts";
import { type ConsoleRow } from "../../support/pooler.ts";
import { type Postgres, startPostgres } from "../../support/postgres.ts";
import { RawClient } from "../../support/raw_client.ts";
import { Monitor } from "./support.ts";

needs("postgresql", "nats-server");

const tests = suite("a host on overload");
let postgres: Postgres;
let pooler: Pgweir;
let monitor: Monitor;
let nats: NatsServer;
let supervisor: string;
/** A console and a client of each worker. */
const members = new Map<string, { console: RawClient; client: RawClient }>();

const ini = (settings: Record<string, string | number>, more = "", groups = {}) => ({
  databases: { shop: `host=127.0.0.1 port=${postgres.port} dbname=postgres ${more}` },
  pgbouncer: {
    bus_url: `nats://${encodeURIComponent(nats.token)}@127.0.0.1:${nats.port}`,
    // There is a monitor, and what the one here says is newer.
    max_os_cpu_wait_time_ratio_to_throw: 1000,
    ...settings,
  },
  ...groups,
});

tests.before(async () => {
  postgres = await startPostgres();
  nats = await startNats({ jetstream: true });
  pooler = await startPgweir({ ini: ini({}), workers: 2, readyTimeoutMs: 60_000 });
  monitor = await Monitor.join(nats);
  supervisor = await new Promise((resolve) => {
    const { bus } = monitor;
    bus.subscribe(bus.subjects.allPresence, ({ supervisor: name }) => resolve(name ?? ""));
  });
  // The kernel chooses the worker.
  await until("a console on each worker", async () => {
    const console = await RawClient.login(pooler, { user: "admin", database: "pgbouncer" });
    const [row] = await console.table("SHOW WORKER");
    const id = row!["worker_id"]!;
    if (members.has(id)) console.close();
    else members.set(id, { console, client: console });
    return members.size === 2;
  });
  const clients = new Map<string, RawClient>();
  await until("a client on each worker", async () => {
    const client = await RawClient.login(pooler, { user: "postgres", database: "shop" });
    const id = String((client.key!.processId >>> 16) & 0x7fff);
    if (clients.has(id)) client.close();
    else clients.set(id, client);
    return clients.size === 2;
  });
  for (const [id, { console }] of members) {
    members.set(id, { console, client: clients.get(id)! });
  }
});

tests.after(async () => {
  for (const { console, client } of members.values()) {
    console.close();
    client.close();
  }
  await monitor.bus.close();
  await pooler.stop();
  await nats.stop();
  await postgres.stop("immediate");
});

/** Waits until each worker says so. */
async function everywhere(
  what: string,
  is: (rows: ConsoleRow[]) => boolean,
  command = "SHOW OVERLOAD",
): Promise<void> {
  for (const [id, { console }] of members) {
    await until(`${what} on ${id}`, async () => is(await console.table(command)));
  }
}

async function answers(sql = "SELECT 1"): Promise<string[]> {
  const all: string[] = [];
  for (const { client } of members.values()) {
    client.send(f.Q(sql));
    all.push(await client.replies());
  }
  return all;
}

const good = 'T D C"SELECT 1" Z(I)';
const shed = "E(53000) Z(I)";

function sayToHost(name: string, transactions: number): string {
  const { bus } = monitor;
  const decision = {
    ...monitor.decision({ transactions, host: "here" }),
    supervisor: name,
  };
  bus.publish(bus.subjects.overloadHost(name), decision);
  return decision.reason;
}

tests("a decision about a host holds on its workers, and one about another on none", async () => {
  sayToHost("supervisor-of-others", 1);
  const calm = sayToHost(supervisor, 0);
  await everywhere("it to be heard", (rows) => rows.some((row) => row["reason"] === calm));
  assert.equal(await answers(), [good, good]);
  const reason = sayToHost(supervisor, 1);
  await everywhere("it to be heard", (rows) => rows.some((row) => row["reason"] === reason));
  assert.equal(await answers(), [shed, shed]);
  for (const { console } of members.values()) {
    const [row] = await console.table("SHOW OVERLOAD");
    const { expires_ms: expires, ...others } = row!;
    assert.ok(Number(expires) > 100_000 && Number(expires) <= 180_000);
    assert.equal(others, {
      scope: "host",
      name: "here",
      database: "shop",
      reason,
      value: "4",
      min_to_throw: "2",
      max_to_throw: "6",
      throw_probability: "1",
      min_to_drop: "0",
      max_to_drop: "0",
      drop_probability: "0",
      shed_transactions: "1",
      shed_connections: "0",
      group_name: null,
    });
  }
  // A database that is spared from now on is, and one that is not any more is not.
  const { console } = [...members.values()][0]!;
  for (const [more, answer] of [["shed=never", good], ["", shed]] as const) {
    pooler.rewrite(ini({}, more));
    await console.query("RELOAD");
    assert.equal(await answers(), [answer, answer]);
  }
  const over = sayToHost(supervisor, 0);
  await everywhere("it to be over", (rows) => rows.some((row) => row["reason"] === over));
  assert.equal(await answers(), [good, good]);
});

// In an incident it was turned off, and clients were refused until the last decision was over.
tests("without bounds nothing is refused at once, whatever was said last", async () => {
  const reason = sayToHost(supervisor, 1);
  await everywhere("it to be heard", (rows) => rows.some((row) => row["reason"] === reason));
  assert.equal(await answers(), [shed, shed]);
  const { console } = [...members.values()][0]!;
  await console.query("SET max_os_cpu_wait_time_ratio_to_throw = 0");
  assert.equal(await answers(), [good, good]);
  await everywhere("nothing to be known", (rows) => rows.every((row) => row["reason"] === null));
  sayToHost(supervisor, 1);
  for (let i = 0; i < 20; i++) assert.equal(await answers(), [good, good]);
  await console.query("RELOAD");
});

/** What a client with such an application_name is told first, and whether it is let in. */
async function loginAnswer(name: string): Promise<string> {
  const client = await RawClient.connect(pooler);
  try {
    client.startup({ user: "postgres", database: "shop", application_name: name });
    const message = await client.message();
    if (message?.type !== 0x45) return String.fromCharCode(message?.type ?? 0);
    return parseErrorFields(message.body).code ?? "";
  } finally {
    client.close();
  }
}

tests(
  "bounds of a group hold for it and the groups below, on each worker, by the file",
  async () => {
    const { console } = [...members.values()][0]!;
    const load = async (strict: string) => {
      const groups = {
        strict,
        below: "parent=strict",
        loose: "max_os_cpu_wait_time_ratio_to_throw=0",
      };
      const rules = Object.keys(groups).map((name) => [name, `tag=${name} group=${name}`]);
      const named = "application_name=nightly group=below";
      const sections = { groups, group_rules: { ...Object.fromEntries(rules), named } };
      pooler.rewrite(ini({}, "", sections));
      await console.query("RELOAD");
    };
    const by = (group: string) => answers(`/* group=${group} */ SELECT 1`);
    // The ratio is 4.
    await load(
      "max_os_cpu_wait_time_ratio_to_throw=4 max_os_cpu_wait_time_ratio_to_drop_connection=4",
    );
    const calm = sayToHost(supervisor, 0);
    await everywhere("it to be heard", (rows) => rows.some((row) => row["reason"] === calm));
    assert.equal(await by("strict"), [shed, shed]);
    assert.equal(await by("below"), [shed, shed]);
    assert.equal([await answers(), await by("loose")], [[good, good], [good, good]]);
    assert.equal([await loginAnswer("nightly"), await loginAnswer("other")], ["57P03", "R"]);
    for (const { console: each } of members.values()) {
      const rows = await each.table("SHOW OVERLOAD");
      const told = rows.filter((row) => row["reason"] === calm && row["database"] === "shop")
        .map((
          row,
        ) => [
          row["group_name"],
          row["max_to_throw"],
          row["throw_probability"],
          row["drop_probability"],
        ]);
      assert.equal(told, [
        [null, "0", "0", "0"],
        ["strict", "4", "1", "1"],
        ["below", "4", "1", "1"],
        ["loose", "0", "0", "0"],
      ]);
      const shown = (await each.table("SHOW GROUPS"))
        .map((row) => [row["name"], row["min_to_throw"], row["max_to_throw"]]);
      assert.equal(shown, [["strict", null, "4"], ["below", null, "4"], ["loose", null, "0"]]);
    }
    const all = sayToHost(supervisor, 1);
    await everywhere("it to be heard", (rows) => rows.some((row) => row["reason"] === all));
    assert.equal([await answers(), await by("loose")], [[shed, shed], [good, good]]);
    // The lower bound of the decision, 2, is what the group has not set.
    await load("max_os_cpu_wait_time_ratio_to_throw=4000");
    await everywhere("the new bound", (rows) => {
      return rows.some((row) =>
        row["group_name"] === "below" && row["throw_probability"] === "0.0005"
      );
    });
    await load("min_os_cpu_wait_time_ratio_to_throw=5");
    for (let i = 0; i < 20; i++) assert.equal(await by("below"), [good, good]);
    assert.equal([await answers(), await loginAnswer("nightly")], [[shed, shed], "R"]);
    pooler.rewrite(ini({}));
    await console.query("RELOAD");
    const over = sayToHost(supervisor, 0);
    await everywhere("it to be over", (rows) => rows.some((row) => row["reason"] === over));
  },
);

tests("warnings of all monitors are shown, the oldest first", async () => {
  const { bus } = monitor;
  const at = Date.UTC(2026, 4, 6, 7, 8, 9);
  const warning = {
    kind: "cpu",
    raisedAt: at,
    clearedAt: null,
    value: 0.97,
    warn: 0.9,
    clear: 0.8,
  };
  const said = (name: string, host: string, warnings: object[]) =>
    bus.publish(bus.subjects.overloadWarnings(name), {
      monitor: name,
      host,
      epoch: 1,
      seq: 1,
      warnings: warnings as never,
    });
  said("monitor-1", "here", [warning]);
  const memory = { ...warning, kind: "memory", raisedAt: at - 60_000, clearedAt: at };
  said("monitor-2", "there", [memory]);
  await everywhere("both", (rows) => rows.length === 2, "SHOW WARNINGS");
  const { console } = [...members.values()][0]!;
  const rest = { value: "0.97", warn_ratio: "0.9", clear_ratio: "0.8" };
  assert.equal(await console.table("SHOW WARNINGS"), [
    {
      time: "2026-05-06 07:07:09 UTC",
      host: "there",
      kind: "memory",
      ...rest,
      cleared: "2026-05-06 07:08:09 UTC",
      monitor: "monitor-2",
    },
    {
      time: "2026-05-06 07:08:09 UTC",
      host: "here",
      kind: "cpu",
      ...rest,
      cleared: null,
      monitor: "monitor-1",
    },
  ]);
});

tests("limits on the lag follow a reload on every worker, and shed by what it is", async () => {
  const ofWorker = (rows: ConsoleRow[]) => rows.filter(({ scope }) => scope === "worker");
  const { console } = [...members.values()][0]!;
  const reload = async (settings: Record<string, string | number>) => {
    pooler.rewrite(ini({ overload_interval: 0.1, ...settings }));
    await console.query("RELOAD");
  };
  await everywhere("nothing to be measured", (rows) => ofWorker(rows)[0]?.reason == null);
  // Nobody is so late as that, and then everybody is later than that.
  await reload({ min_event_loop_lag_to_throw: 60_000, max_event_loop_lag_to_throw: 90_000 });
  await everywhere("the upper bound", (rows) => {
    return ofWorker(rows).some((row) => row["max_to_throw"] === "90000");
  });
  for (let i = 0; i < 20; i++) assert.equal(await answers(), [good, good]);
  await reload({ min_event_loop_lag_to_throw: 0, max_event_loop_lag_to_throw: 1 });
  await everywhere("the lower bound", (rows) => {
    return ofWorker(rows).some((row) => row["max_to_throw"] === "1");
  });
  for (const { client } of members.values()) {
    await until("a refusal by the lag", async () => {
      client.send(f.Q("SELECT 1"));
      return await client.replies() === shed;
    });
  }
  const line = /overload of this worker: new work .*: event loop lag of \d+ ms/;
  await until("the log to say by how much", () => line.test(pooler.log()));
  await reload({});
  await everywhere("no bound", (rows) => ofWorker(rows).every(({ reason }) => reason === null));
  for (let i = 0; i < 20; i++) assert.equal(await answers(), [good, good]);
});

tests.run();
