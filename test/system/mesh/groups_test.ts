// Resource groups of several hosts: group a may run 2, group b 6, and both together 6, on two hosts with two workers each
// and a cluster of nats-servers. Clients of both hammer both hosts while a worker is stopped for longer than a lease, one
// is killed, and a host is cut off from the bus. What runs is counted in PostgreSQL, by locks that each query takes and
// holds to its end: one that found no lock free would be one too many, however short that lasted, and would fail. A look at
// all locks at once, every 20 ms, shows that as many do run.
// limit: 300 s
// load: waits

import { assert, suite, until } from "../../support/harness.ts";
import { needsHosts } from "../../support/hosts.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import { signal } from "../../support/processes.ts";
import { RawClient } from "../../support/raw_client.ts";
import { Backend, parseErrorFields } from "../../../shared/wire/mod.ts";
import { GroupLoad, GroupWatch, takesOneOf } from "../groups/group_load.ts";
import { workerIdOf } from "../budget/support.ts";
import { makeMesh, type MeshHost } from "./mesh.ts";

needs("postgresql", "nats-server", "iproute2");
needsHosts();

const TOTAL = 6;
const MOST_OF_A = 2;
const CLIENTS = 10;
const LEASE_S = 2;

const mesh = await makeMesh({
  // The third has a nats-server only, for a majority.
  names: ["north", "south", "west"],
  poolers: 2,
  database: "pool_size=24",
  own: { budget_lease: LEASE_S, budget_auth: "user=postgres dbname=postgres" },
  groups: {
    groups: {
      both: `max_concurrent_queries=${TOTAL}`,
      a: `parent=both max_concurrent_queries=${MOST_OF_A} queue_timeout=0`,
      b: `parent=both max_concurrent_queries=${TOTAL} queue_timeout=0`,
    },
    group_rules: { a: "application_name=a group=a", b: "application_name=b group=b" },
  },
});
const { postgres, network } = mesh;
const [north, south] = mesh.hosts as [MeshHost, MeshHost];
await postgres.query("CREATE ROLE app LOGIN");
await postgres.query(takesOneOf);
const watch = await GroupWatch.start(
  postgres,
  "SELECT CASE classid WHEN 2 THEN 'a' ELSE 'b' END, count(*) FROM pg_locks " +
    "WHERE locktype = 'advisory' AND classid IN (2, 3) GROUP BY 1",
);
const kinds = { a: [2, MOST_OF_A], b: [3, TOTAL] } as const;
const loads: GroupLoad[] = [];

const tests = suite("resource groups of several hosts");

tests.before(async () => {
  await mesh.start();
  for (const { clients } of mesh.hosts) {
    for (const group of ["a", "b"] as const) {
      const work = `take(1, ${TOTAL}), take(${kinds[group].join()}), pg_sleep(0.02)`;
      loads.push(new GroupLoad(clients, group, CLIENTS, { database: "postgres", work }));
    }
  }
});

tests.after(async () => {
  network.healAll();
  // Of a test that has failed.
  for (const each of loads) void each.stop();
  await watch.end();
  await mesh.stop();
});

/** All that may run does, with clients of both groups on both hosts, and never more. */
async function allInUse(): Promise<void> {
  watch.forget();
  await watch.reached(TOTAL);
  await watch.reached(MOST_OF_A, "a");
  await Promise.all(loads.map((load) => load.progress(20)));
  neverTooMany();
}

function neverTooMany(): void {
  assert.is(Math.max(TOTAL, watch.ever()), TOTAL);
  assert.is(Math.max(MOST_OF_A, watch.ever("a")), MOST_OF_A);
  // What take() raises; what else there may be is of clients that lost their worker.
  const errors = loads.flatMap((load) => load.errors);
  assert.not.ok(errors.includes("P0001"), errors.join());
}

/** A fault lasts longer than a lease, so that what hangs on a lease has ended. */
const outlast = () => new Promise<void>((resolve) => setTimeout(resolve, 1500 * LEASE_S));

/** What SHOW GROUPS says of `both`, and its notices. */
async function shown(host: MeshHost): Promise<{ numbers: number[]; notices: string[] }> {
  const client = await RawClient.login(host.clients, { user: "admin", database: "pgbouncer" });
  try {
    client.send(f.Q("SHOW GROUPS"));
    const messages = await client.messagesUntil("Z");
    const notices = messages.filter(({ type }) => type === Backend.noticeResponse)
      .map(({ body }) => parseErrorFields(body).message);
    const row = (await client.table("SHOW GROUPS")).find(({ name }) => name === "both")!;
    const columns = ["running_queries", "queued_queries", "granted_queries", "admitted"];
    return { numbers: columns.map((column) => Number(row[column])), notices };
  } finally {
    client.close();
  }
}

tests("as many run as may, on both hosts together, and SHOW GROUPS says so on each", async () => {
  await allInUse();
  const answered = loads.reduce((sum, load) => sum + load.answered, 0);
  for (const host of mesh.hosts) {
    await until("all workers to be in the sums", async () => {
      const { numbers: [running, queued, granted, admitted] } = await shown(host);
      // Workers are asked one after the other, so these are not of one moment.
      return running! > 0 && queued! > 4 * CLIENTS - 3 * TOTAL && granted! >= TOTAL &&
        admitted! >= answered;
    });
  }
});

tests("a worker that is stopped keeps what it has, and goes on with no more", async () => {
  const [pid] = north.servicePids("pooler");
  signal(pid!, "SIGSTOP");
  try {
    await outlast();
    await Promise.all(loads.slice(2).map((load) => load.progress(10)));
    neverTooMany();
    const { notices } = await shown(south);
    assert.equal(notices, [`no answer from: worker ${workerIdOf(pid!)} of north`]);
  } finally {
    signal(pid!, "SIGCONT");
  }
  await allInUse();
});

tests("what a killed worker has begun counts up to its end, and its slots come back", async () => {
  const [pid] = south.servicePids("pooler");
  signal(pid!, "SIGKILL");
  await until("another worker", () => {
    const pids = south.servicePids("pooler");
    return pids.length === 2 && !pids.includes(pid!);
  }, 30_000);
  await allInUse();
});

tests(
  "a host that is cut off from the bus has no more than it had, and all is shared again after it",
  async () => {
    network.cutBetween(north.host, south.host);
    network.cutBetween(north.host, network.hosts[2]!);
    try {
      await outlast();
      // Which of them has slots is chance: those of a are fewer than workers.
      await Promise.any(loads.map((load) => load.progress(10)));
      neverTooMany();
    } finally {
      network.healAll();
    }
    await allInUse();
  },
);

tests(
  "after the last fault all is in use, and nothing is left when the clients have gone",
  async () => {
    await allInUse();
    await Promise.all(loads.map((load) => load.stop()));
    neverTooMany();
    await until("the groups to be empty", async () => {
      const { numbers: [running, queued] } = await shown(south);
      return running === 0 && queued === 0;
    }, 30_000);
  },
);

tests.run();
