// Rows of SHOW from a fake plane: states, addresses, times, limits, and what must not be in them.

import {
  clientsDbLeaf,
  clientsLeaf,
  clientsUserLeaf,
  directLeaf,
  groupLeaf,
  poolLeaf,
  UNLIMITED,
} from "../../../shared/ledger/mod.ts";
import { showTable } from "../../../services/pooler/plane/console/commands.ts";
import type { PlaneView } from "../../../services/pooler/plane/console/view.ts";
import { assert, suite } from "../../support/harness.ts";
import {
  addPool,
  fakeClient,
  type FakePlane,
  fakePlane,
  fakePool,
  fakeServer,
  momentOf,
  now,
  wallNow,
} from "./fake_plane.ts";

const tests = suite("console rows");

type Named = Record<string, unknown>;

/** The rows of a SHOW as objects. */
function rowsOf(plane: PlaneView, name: string, changes: object = {}): Named[] {
  const result = showTable.get(name)?.result;
  if (result === undefined || result === null || result === "help") throw new Error(name);
  const moment = { ...momentOf(plane), ...changes };
  return [...result.rows(moment)].map((row) =>
    Object.fromEntries(result.columns.map((column, at) => [column.name, row[at]]))
  );
}

function pick(rows: readonly Named[], ...names: string[]): unknown[][] {
  return rows.map((row) => names.map((name) => row[name]));
}

tests("SHOW CLIENTS names each client's state", () => {
  const plane = fakePlane();
  const requester = fakeClient({ id: 6, pool: null, user: "", database: "" });
  plane.clients = new Set([
    fakeClient({ id: 1 }),
    fakeClient({ id: 2, server: { id: 9 } }),
    fakeClient({ id: 3, queued: true, waitingSince: now - 2_345.6789 }),
    // Logged in but for the greeting, which waits for the first server.
    fakeClient({ id: 4, login: {}, queued: true, waitingSince: now }),
    fakeClient({ id: 5, login: {}, pool: null }),
    requester,
    fakeClient({ id: 7, pool: null, console: {}, database: "pgbouncer" }),
  ]);
  plane.cancels.requesters.add(requester);
  assert.equal(pick(rowsOf(plane, "clients"), "id", "state", "wait", "wait_us", "database"), [
    [1, "idle", 0, 0, "shop"],
    [2, "active", 0, 0, "shop"],
    [3, "waiting", 2, 345_678, "shop"],
    [4, "waiting", 0, 0, "shop"],
    [6, "active_cancel_req", 0, 0, "(nodb)"],
    [7, "idle", 0, 0, "pgbouncer"],
  ]);
  assert.equal(pick(rowsOf(plane, "sockets"), "id", "state"), [
    [1, "cl_active"],
    [2, "cl_active"],
    [3, "cl_waiting"],
    [4, "cl_waiting"],
    [5, "cl_login"],
    [6, "cl_active"],
    [7, "cl_active"],
  ]);
});

tests("SHOW CLIENTS shows a whole row", () => {
  const plane = fakePlane();
  plane.clients.add(fakeClient({
    id: 255,
    server: { id: 16 },
    requestAt: now - 1_000,
    names: { size: 3 },
    parameters: { values: ["my app"] },
  }));
  assert.equal(rowsOf(plane, "clients"), [{
    type: "C",
    user: "u",
    database: "shop",
    replication: "none",
    state: "active",
    addr: "10.0.0.9",
    port: 40_000,
    local_addr: "10.0.0.1",
    local_port: 6432,
    connect_time: "2026-01-02 03:04:00 UTC",
    request_time: "2026-01-02 03:04:04 UTC",
    wait: 0,
    wait_us: 0,
    close_needed: 0,
    ptr: "0x0000000000ff",
    link: "0x000000000010",
    remote_pid: 0,
    tls: "",
    application_name: "my app",
    prepared_statements: 3,
    id: 255,
  }]);
});

tests(
  "SHOW CLIENTS shows unix clients with their process, by the port in the socket's name",
  () => {
    const plane = fakePlane({ settings: "listen_port = 7001" });
    plane.clients.add(fakeClient({ address: { host: "unix", port: 0 } }));
    const changes = { localAddress: () => ({ host: "unix", port: 0 }) };
    assert.equal(
      pick(
        rowsOf(plane, "clients", changes),
        "addr",
        "port",
        "local_addr",
        "local_port",
        "remote_pid",
      ),
      [["unix", 7001, "unix", 7001, 77]],
    );
  },
);

// The peer of a client may have reset its connection a moment before: the kernel has no address then.
tests("SHOW CLIENTS goes on when a client's address is gone", () => {
  const plane = fakePlane();
  const gone = () => {
    throw new Error("ENOTCONN");
  };
  plane.clients.add(fakeClient({ address: { host: "unknown", port: 0 } }));
  plane.clients.add(fakeClient({ id: 2, address: { host: "unix", port: 0 } }));
  const rows = rowsOf(plane, "clients", { localAddress: gone, peerPid: gone });
  assert.equal(pick(rows, "addr", "port", "local_addr", "local_port", "remote_pid"), [
    ["unknown", 0, "", 0, 0],
    ["unix", 6432, "", 0, 0],
  ]);
});

tests("SHOW CLIENTS ends, although clients come and go while it runs", () => {
  const plane = fakePlane();
  for (let id = 1; id <= 10; id++) plane.clients.add(fakeClient({ id }));
  const result = showTable.get("clients")!.result as { rows(moment: unknown): Iterable<unknown[]> };
  const seen: unknown[] = [];
  const [first] = plane.clients;
  for (const row of result.rows(momentOf(plane))) {
    seen.push(row[20]);
    plane.clients.add(fakeClient({ id: 100 + seen.length }));
    if (seen.length === 1) plane.clients.delete([...plane.clients][4]!);
    plane.clients.delete(first!);
  }
  assert.is(seen.length, 10);
  assert.not.ok(seen.includes(5));
});

function planeWithServers(): FakePlane {
  const plane = fakePlane({ databases: "shop = host=10.0.0.5\nlocal = host=/run/pg user=forced" });
  const shop = fakePool(plane.config, "shop", "u");
  shop.servers.add(fakeServer({ id: 1, state: "idle" }));
  shop.servers.add(fakeServer({ id: 2, state: "active", client: { id: 3 }, closeNeeded: true }));
  shop.servers.add(fakeServer({ id: 4, state: "login", stream: undefined, processId: 0 }));
  shop.servers.add(fakeServer({ id: 5, state: "being_canceled", prepared: { size: 2 } }));
  const local = fakePool(plane.config, "local", "u");
  local.servers.add(fakeServer({ id: 6, address: "/run/pg" }));
  addPool(plane, shop);
  addPool(plane, local);
  return plane;
}

tests("SHOW SERVERS names each server's state, user and address", () => {
  const plane = planeWithServers();
  const names = ["id", "state", "user", "database", "addr", "port", "link", "remote_pid"];
  assert.equal(pick(rowsOf(plane, "servers"), ...names), [
    [1, "idle", "u", "shop", "10.0.0.5", 5432, "", 4711],
    [2, "active", "u", "shop", "10.0.0.5", 5432, "0x000000000003", 4711],
    [4, "new", "u", "shop", "10.0.0.5", 5432, "", 0],
    [5, "being_canceled", "u", "shop", "10.0.0.5", 5432, "", 4711],
    [6, "idle", "forced", "local", "unix", 5432, "", 4711],
  ]);
  assert.equal(
    pick(rowsOf(plane, "servers"), "close_needed", "prepared_statements", "local_addr", "type"),
    [
      [0, 0, "10.0.0.1", "S"],
      [1, 0, "10.0.0.1", "S"],
      [0, 0, "", "S"],
      [0, 2, "10.0.0.1", "S"],
      [0, 0, "10.0.0.1", "S"],
    ],
  );
  assert.equal(pick(rowsOf(plane, "sockets"), "state").flat(), [
    "sv_idle",
    "sv_active",
    "sv_login",
    "sv_being_canceled",
    "sv_idle",
  ]);
});

tests("SHOW ACTIVE_SOCKETS shows those that hold bytes", () => {
  const plane = planeWithServers();
  plane.clients.add(fakeClient({ id: 20 }));
  plane.clients.add(fakeClient({ id: 21, stream: { fd: 1, pending: 9, tls: null } }));
  plane.clients.add(fakeClient({ id: 22, buffered: 5 }));
  const [shop] = plane.pools.values();
  (shop!.servers as Set<unknown>).add(fakeServer({ id: 23, buffered: 1 }));
  assert.equal(pick(rowsOf(plane, "active_sockets"), "id", "recv_pos", "pkt_avail", "send_avail"), [
    [21, 0, 0, 9],
    [22, 5, 5, 0],
    [23, 1, 1, 0],
  ]);
});

tests("SHOW POOLS counts clients and servers by state", () => {
  const plane = planeWithServers();
  const [shop, local] = plane.pools.values() as Iterable<ReturnType<typeof fakePool>>;
  shop!.clients = 7;
  shop!.waiting = 3;
  shop!.firstWaiter = { waitingSince: now - 61_000.5 };
  const [first] = shop!.servers;
  (first as { pool: object }).pool = shop!;
  plane.cancels.underWay.push({ server: first!, requests: 2 });
  plane.cancels.waiting.push(first!);
  plane.clients.add(fakeClient({ pool: null, console: {} }));
  assert.is(local!.clients, 0);
  const tail = { load_balance_hosts: null };
  const zero = {
    cl_active: 0,
    cl_waiting: 0,
    cl_active_cancel_req: 0,
    cl_waiting_cancel_req: 0,
    sv_active: 0,
    sv_active_cancel: 0,
    sv_being_canceled: 0,
    sv_idle: 0,
    sv_used: 0,
    sv_tested: 0,
    sv_login: 0,
    maxwait: 0,
    maxwait_us: 0,
  };
  assert.equal(rowsOf(plane, "pools"), [
    {
      database: "shop",
      user: "u",
      ...zero,
      cl_active: 4,
      cl_waiting: 3,
      cl_active_cancel_req: 2,
      cl_waiting_cancel_req: 1,
      sv_active: 1,
      sv_active_cancel: 1,
      sv_being_canceled: 1,
      sv_idle: 1,
      sv_login: 1,
      maxwait: 61,
      maxwait_us: 500,
      pool_mode: "transaction",
      ...tail,
    },
    { database: "local", user: "forced", ...zero, sv_idle: 1, pool_mode: "transaction", ...tail },
    {
      database: "pgbouncer",
      user: "pgbouncer",
      ...zero,
      cl_active: 1,
      pool_mode: "statement",
      ...tail,
    },
  ]);
});

tests(
  "SHOW DATABASES shows this worker's part of each limit, and databases of the fallback",
  () => {
    const plane = fakePlane({
      databases:
        "shop = host=a,b port=6000 dbname=real user=forced pool_size=8 server_lifetime=90\n" +
        "* = host=10.0.0.7",
      settings: "default_pool_size = 20",
      count: 4,
    });
    const auto = fakePool(plane.config, "auto", "u", { clients: 3 });
    auto.servers.add(fakeServer());
    addPool(plane, auto);
    addPool(plane, fakePool(plane.config, "auto", "v", { clients: 1 }));
    const outside = { database: "auto", user: "u", servers: new Set([fakeServer()]) };
    plane.direct = new Map([["auto u", outside]]);
    const names = [
      "name",
      "host",
      "port",
      "database",
      "force_user",
      "pool_size",
      "server_lifetime",
    ];
    const rows = rowsOf(plane, "databases");
    assert.equal(pick(rows, ...names), [
      ["shop", "a,b", 6000, "real", "forced", 2, 90],
      ["auto", "10.0.0.7", 5432, "auto", null, 5, 3600],
      ["pgbouncer", null, 6432, "pgbouncer", "pgbouncer", 2, 3600],
    ]);
    assert.equal(
      pick(rows, "load_balance_hosts", "current_connections", "current_client_connections"),
      [["round-robin", 0, 0], [null, 2, 4], [null, 0, 0]],
    );
  },
);

tests("SHOW USERS shows users of the files, the pools and the clients", () => {
  const plane = fakePlane({
    settings: "auth_file = users.txt\n[users]\nlimited = pool_size=6",
    files: { "users.txt": '"known" "secret"\n' },
    count: 2,
  });
  const pool = fakePool(plane.config, "shop", "known", { clients: 2 });
  pool.servers.add(fakeServer());
  addPool(plane, pool);
  const outside = { database: "shop", user: "known", servers: new Set([fakeServer()]) };
  plane.direct = new Map([["shop known", outside]]);
  for (const id of [1, 2]) plane.clients.add(fakeClient({ id, user: "stranger", pool }));
  assert.equal(
    pick(
      rowsOf(plane, "users"),
      "name",
      "pool_size",
      "pool_mode",
      "current_connections",
      "current_client_connections",
    ),
    [
      ["known", "", null, 2, 0],
      ["limited", "3", null, 0, 0],
      ["stranger", "", null, 0, 2],
    ],
  );
});

tests("SHOW LISTS and SHOW MEM count what there is", () => {
  const plane = planeWithServers();
  plane.clients.add(fakeClient({ stream: { fd: 1, pending: 5, tls: null } })).add(fakeClient());
  plane.loggingIn.add(fakeClient());
  plane.openServers = 5;
  plane.names.known.set("db.example", { addresses: ["10.0.0.5"], until: now + 1 });
  const [shop] = plane.pools.values() as Iterable<ReturnType<typeof fakePool>>;
  shop!.statements = { size: 4 };
  shop!.servers.add(fakeServer({ requests: { count: 3 } }));
  const lists = new Map(pick(rowsOf(plane, "lists"), "list", "items") as [string, number][]);
  assert.equal(Object.fromEntries([...lists].filter(([, items]) => items !== 0)), {
    databases: 3,
    users: 2,
    pools: 3,
    used_clients: 2,
    login_clients: 1,
    used_servers: 5,
    dns_names: 1,
  });
  assert.is(lists.size, 14);
  const memory = new Map(pick(rowsOf(plane, "mem"), "name", "used") as [string, number][]);
  assert.is(memory.size, 12);
  assert.is(memory.get("outstanding_request_cache"), 3);
  assert.is(memory.get("server_prepared_statement_cache"), 4);
  assert.is(memory.get("iobuf_cache"), 1);
});

tests("SHOW DNS_HOSTS shows addresses and how long they hold", () => {
  const plane = fakePlane();
  plane.names.known.set("a.example", { addresses: ["10.0.0.5", "::1"], until: now + 12_900 });
  plane.names.known.set("b.example", { addresses: ["10.0.0.6"], until: now - 1 });
  assert.equal(pick(rowsOf(plane, "dns_hosts"), "hostname", "ttl", "addrs"), [
    ["a.example", 12, "10.0.0.5,::1"],
    ["b.example", 0, "10.0.0.6"],
  ]);
  assert.equal(rowsOf(plane, "dns_zones"), []);
});

tests("SHOW FEATURES shows what was used, for each pool and for each client that did", () => {
  const plane = fakePlane();
  const features = Uint32Array.of(1, 2, 3, 4, 5, 6, 7);
  addPool(plane, fakePool(plane.config, "shop", "u", { features }));
  plane.clients.add(fakeClient());
  plane.clients.add(fakeClient({ id: 2, features: Uint32Array.of(0, 0, 0, 4, 0, 6, 0) }));
  assert.equal(rowsOf(plane, "features").map((row) => Object.values(row)), [
    ["shop", "u", null, null, 1, 2, 3, 4, 5, 6, 7],
    ["shop", "u", "10.0.0.9", 40_000, 0, 0, 0, 4, 0, 6, 0],
  ]);
});

tests("SHOW LISTENERS shows what listens for clients, each of them counted once", () => {
  const plane = fakePlane();
  const database = fakePool(plane.config, "shop", "u").database;
  const [first, second] = [fakeClient(), fakeClient({ id: 2 })];
  const counts = { received: 10, delivered: 15, dropped: 1 };
  const none = { received: 0, delivered: 0, dropped: 0 };
  const channels = new Map([
    ["a", { clients: new Set([first, second]) }],
    ["b", { clients: new Set([first]) }],
  ]);
  const listening = { user: "u", state: "listening", server: { processId: 4711 }, losses: 3 };
  const closed = { user: null, state: "closed", server: null, losses: 0 };
  plane.notifier = {
    listeners: [
      { database, encoding: "UTF8", ...listening, channels, waiting: 1, counts },
      { database, encoding: "LATIN1", ...closed, channels: new Map(), waiting: 0, counts: none },
    ],
  };
  assert.equal(rowsOf(plane, "listeners").map((row) => Object.values(row)), [
    ["shop", "UTF8", "u", "listening", 4711, 2, 2, 1, 10, 15, 1, 3],
    ["shop", "LATIN1", null, "closed", 0, 0, 0, 0, 0, 0, 0, 0],
  ]);
});

tests("SHOW LEASES shows what this worker holds of each limit", () => {
  const plane = fakePlane();
  const lease = { held: 2, wanted: 5, granted: 3, floor: 1, limit: 3 };
  plane.budget = {
    silentMs: 250.4,
    leases: [
      { leaf: poolLeaf("shop", "a/b"), ...lease },
      { leaf: clientsLeaf, ...lease },
      { leaf: clientsDbLeaf("shop"), ...lease },
      { leaf: clientsUserLeaf("u"), ...lease },
      { leaf: directLeaf("shop", "u"), ...lease },
      { leaf: directLeaf("b", "u"), ...lease, granted: UNLIMITED, floor: 7, limit: UNLIMITED },
      { leaf: groupLeaf("reports"), ...lease },
    ],
  };
  const numbers = Object.values(lease);
  const wanted = [
    ["pool", "shop", "a/b", ...numbers, 250, null],
    ["clients", null, null, ...numbers, 250, null],
    ["clients/db", "shop", null, ...numbers, 250, null],
    ["clients/user", null, "u", ...numbers, 250, null],
    ["direct", "shop", "u", ...numbers, 250, null],
    ["direct", "b", "u", 2, 5, null, 7, null, 250, null],
    ["group", null, null, ...numbers, 250, "reports"],
  ];
  assert.equal(rowsOf(plane, "leases").map((row) => Object.values(row)), wanted);
  plane.budget = { ...plane.budget, silentMs: Infinity };
  assert.equal(pick(rowsOf(plane, "leases"), "contact_ms"), wanted.map(() => [null]));
});

tests("SHOW WORKER, VERSION and STATE tell of the worker", () => {
  const plane = fakePlane({ count: 4 });
  plane.cancels.counts.sent = 2;
  plane.cancels.counts.unanswered = 1;
  assert.equal(rowsOf(plane, "worker"), [{
    worker_id: 17,
    incarnation: 1_700_000_000_000,
    index: 0,
    count: 4,
    pid: 321,
    runtime: "bun 1",
    version: "1.2.3",
    uptime: 90,
    clients: 0,
    servers: 0,
    cancels_sent: 2,
    cancels_unknown: 0,
    cancels_idle: 0,
    cancels_busy: 0,
    cancels_unanswered: 1,
  }]);
  assert.equal(rowsOf(plane, "version"), [{ version: "pgweir 1.2.3" }]);
  assert.equal(pick(rowsOf(plane, "state"), "key", "value"), [
    ["active", "yes"],
    ["paused", "no"],
    ["suspended", "no"],
  ]);
  assert.is(wallNow - plane.startedAt, 90_000);
});

tests("no SHOW has a secret in it", () => {
  const plane = fakePlane({
    databases: "shop = host=10.0.0.5 user=x password=hushhush1",
    settings: "auth_file = users.txt\nconsole_admin = root:hushhush2\n" +
      "bus_url = nats://u:hushhush3@10.0.0.1:4222",
    files: { "users.txt": '"u" "hushhush4"\n' },
  });
  addPool(plane, fakePool(plane.config, "shop", "u"));
  plane.clients.add(fakeClient());
  for (const [name, { result }] of showTable) {
    if (result === null || result === "help") continue;
    const text = JSON.stringify(rowsOf(plane, name));
    assert.not.match(text, "hushhush", name);
  }
  const config = new Map(pick(rowsOf(plane, "config"), "key", "value") as [string, string][]);
  assert.is(config.get("console_admin"), "********");
  assert.is(config.get("pool_mode"), "transaction");
});

tests.run();
