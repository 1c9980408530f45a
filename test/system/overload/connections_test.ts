// New connections while a database is overloaded, what is never refused, and for how long a decision holds: over a bus
// that is lost, from monitors that are not meant or not the newest. The decisions are made up, the bus is real.
// limit: 360 s

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseErrorFields } from "../../../shared/wire/mod.ts";
import { startEmbedded } from "../../bus/brokers.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import type { Pgweir } from "../../support/pgweir.ts";
import { type Postgres, startPostgres } from "../../support/postgres.ts";
import { RawClient } from "../../support/raw_client.ts";
import { tempDir } from "../../support/temp.ts";
import { type Fleet, startFleet } from "../cancel/fleet.ts";
import { own } from "../tls/support.ts";
import { closeAll, consoleOf, isFair, Monitor, open, overload, shedCounts } from "./support.ts";

needs("postgresql", "openssl");

const tests = suite("shed connections");
let postgres: Postgres;
let fleet: Fleet;
let pooler: Pgweir;
let monitor: Monitor;

tests.before(async () => {
  postgres = await startPostgres({ settings: { wal_level: "logical" } });
  const target = `host=127.0.0.1 port=${postgres.port} dbname=postgres`;
  const dir = tempDir("shed");
  writeFileSync(join(dir, "users.txt"), '"postgres" "secret"\n"vip" "secret"\n"admin" "secret"\n');
  fleet = await startFleet(startEmbedded, [1], {
    databases: {
      shop: `${target} user=postgres`,
      calm: `${target} user=postgres`,
      spared: `${target} user=postgres shed=never`,
    },
    users: { vip: "shed=never" },
    pgbouncer: {
      auth_type: "md5",
      auth_file: join(dir, "users.txt"),
      client_tls_sslmode: "allow",
      client_tls_cert_file: own.certFile,
      client_tls_key_file: own.keyFile,
    },
  });
  pooler = fleet.worker(1);
  monitor = await Monitor.join(fleet.broker);
});

tests.after.each(async () => {
  closeAll();
  await monitor.calm(pooler);
});

tests.after(async () => {
  await monitor.bus.close();
  await fleet.stop();
  await postgres.stop("immediate");
});

/** What the worker answers to a startup packet first: how to prove who it is, or an error. */
async function answerTo(
  database: string,
  user = "postgres",
  parameters: Readonly<Record<string, string>> = {},
  isEncrypted = false,
): Promise<string> {
  const client = await RawClient.connect(pooler);
  try {
    if (isEncrypted) await client.startTls();
    client.startup({ user, database, ...parameters });
    const message = await client.message();
    if (message?.type !== 0x45) return String.fromCharCode(message?.type ?? 0);
    const { severity, code, message: text, hint } = parseErrorFields(message.body);
    assert.is(hint, "Try again after a pause, and a longer one after each attempt");
    assert.is(await client.repliesUntilClosed(), "closed");
    return `${severity} ${code} ${text}`;
  } finally {
    client.close();
  }
}

const refused = "FATAL 57P03 server overloaded: the connection was refused";

async function works(client: RawClient): Promise<void> {
  client.send(f.Q("SELECT 1"));
  assert.is(await client.replies(), 'T D C"SELECT 1" Z(I)');
}

tests("connections are refused before anything is asked of them, as often as decided", async () => {
  await monitor.decide(pooler, "shop", { connections: 0.5 });
  let count = 0;
  for (let i = 0; i < 300; i++) {
    const answer = await answerTo("shop");
    if (answer !== "R") assert.is(answer, refused);
    if (answer === refused) count++;
  }
  assert.ok(isFair(count, 300, 0.5), `${count} of 300`);
  assert.equal(await shedCounts(pooler, "shop"), { transactions: 0, connections: count });
  await monitor.decide(pooler, "shop", { connections: 1 });
  assert.is(await answerTo("shop", "postgres", {}, true), refused);
  assert.is(await answerTo("shop", "postgres", { replication: "database" }), refused);
});

tests("who is connected stays, also for replication; cancels and the console get in", async () => {
  const client = await open(pooler, "shop");
  const parameters = { replication: "database" };
  const standby = await RawClient.login(pooler, {
    user: "postgres",
    password: "secret",
    database: "shop",
    parameters,
  });
  client.send(f.Q("SELECT pg_sleep(60)"));
  await until("the query to run", async () => {
    const sleeping = "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%'";
    return (await postgres.query(sleeping)).length > 0;
  });
  await monitor.decide(pooler, "shop", { connections: 1, transactions: 1 });
  await client.cancel();
  assert.is(await client.replies(), "T E(57014) Z(I)");
  assert.is((await standby.query("IDENTIFY_SYSTEM")).length, 1);
  assert.is((await standby.query("SELECT 1")).length, 1);
  await standby.end();
  client.send(f.Q("BEGIN"));
  assert.is(await client.replies(), "E(53000) Z(I)");
  assert.is((await consoleOf(pooler, "SHOW VERSION")).length, 1);
});

tests("spared users and databases get in, and nobody learns which databases exist", async () => {
  for (const database of ["shop", "calm", "spared"]) {
    await monitor.decide(pooler, database, { connections: 1 });
  }
  assert.is(await answerTo("shop", "vip"), "R");
  assert.is(await answerTo("spared"), "R");
  assert.is(await answerTo("calm"), refused);
  // A name that does not exist is treated as one of those that do, and always as the same.
  const answers = new Set<string>();
  for (let i = 0; i < 40; i++) {
    const answer = await answerTo(`nowhere${i}`);
    assert.is(await answerTo(`nowhere${i}`), answer);
    answers.add(answer);
  }
  assert.equal([...answers].sort(), [refused, "R"]);
  const { connections } = await shedCounts(pooler, "*");
  assert.is(connections, 0);
});

tests("a decision that is not said again is over after three intervals", async () => {
  const client = await open(pooler, "shop");
  await monitor.decide(pooler, "shop", { transactions: 1, connections: 1 });
  client.send(f.Q("SELECT 1"));
  assert.is(await client.replies(), "E(53000) Z(I)");
  monitor.say("shop", { transactions: 1, connections: 1, intervalMs: 700 });
  await until("it to be over", async () => {
    const rows = (await overload(pooler)).filter((row) => row["database"] === "shop");
    return rows.every((row) => row["reason"] === null);
  });
  for (let i = 0; i < 100; i++) await works(client);
  assert.is(await answerTo("shop"), "R");
  // What was counted is still told.
  assert.ok((await shedCounts(pooler, "shop")).transactions > 0);
  const begun = /overload of shop: new work is refused with probability 1\.00: decision/;
  const over = /overload is over: \d+ refused/;
  await until("the log to say so", () => begun.test(pooler.log()) && over.test(pooler.log()));
});

tests("old, doubled and foreign decisions do not count", async () => {
  const client = await open(pooler, "shop");
  await monitor.decide(pooler, "shop", { epoch: 4_000_000_000_100, seq: 50 });
  const foreign = await Monitor.join(fleet.broker, "another_mesh", "monitor-2");
  try {
    for (const epoch of [4_000_000_000_100, 4_100_000_000_000]) {
      foreign.say("shop", { transactions: 1, epoch, seq: 99 });
    }
    await foreign.bus.roundTripMs();
  } finally {
    await foreign.bus.close();
  }
  monitor.say("shop", { transactions: 1, epoch: 4_000_000_000_099, seq: 99 });
  monitor.say("shop", { transactions: 1, epoch: 4_000_000_000_100, seq: 49 });
  monitor.say("shop", { transactions: 1, epoch: 4_000_000_000_100, seq: 50 });
  // A decision about another supervisor's workers.
  const { bus } = monitor;
  const supervisor = "supervisor-of-others";
  bus.publish(bus.subjects.overloadHost(supervisor), {
    ...monitor.decision({ transactions: 1 }),
    supervisor,
  });
  // What comes behind them on the same connection is heard.
  await monitor.decide(pooler, "calm");
  for (let i = 0; i < 50; i++) await works(client);
  // A newer one counts, of the same database's other host as well.
  await monitor.decide(pooler, "shop", { transactions: 1, epoch: 4_000_000_000_101, seq: 1 });
  await monitor.decide(pooler, "shop", { epoch: 4_000_000_000_101, seq: 2, host: "db2" });
  client.send(f.Q("SELECT 1"));
  assert.is(await client.replies(), "E(53000) Z(I)");
  await monitor.decide(pooler, "shop", { epoch: 4_000_000_000_101, seq: 3 });
  await works(client);
});

tests(
  "a bus that is lost sheds nothing for long, and what is said when it is back counts",
  async () => {
    const client = await open(pooler, "calm");
    await monitor.decide(pooler, "calm", { transactions: 1 });
    const last = monitor.say("calm", { transactions: 1, intervalMs: 700 });
    await until("it to be heard", async () => {
      const rows = (await overload(pooler)).filter((row) => row["database"] === "calm");
      return rows.every(({ reason }) => reason === last || reason === null);
    });
    await fleet.broker.kill();
    await until("the last decision to be over", async () => {
      client.send(f.Q("SELECT 1"));
      return (await client.replies()) === 'T D C"SELECT 1" Z(I)';
    });
    for (let i = 0; i < 50; i++) await works(client);
    await fleet.broker.start();
    await until(
      "a decision to be heard again",
      async () => {
        monitor.say("calm", { transactions: 1 });
        client.send(f.Q("SELECT 1"));
        return (await client.replies()) === "E(53000) Z(I)";
      },
      90_000,
      50,
    );
  },
);

tests.run();
