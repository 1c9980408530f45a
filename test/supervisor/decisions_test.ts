// The decisions of the supervisor that need no process: restarts, ids, seats, and the ready text.

import { assert, seededRandom, suite } from "../support/harness.ts";
import { addressText, type Banner, readyText } from "../../services/supervisor/banner.ts";
import { FleetTable } from "../../services/supervisor/fleet_table.ts";
import { messageOf } from "../../services/supervisor/last_words.ts";
import { createLogger } from "../../shared/telemetry/mod.ts";
import { PresenceTable } from "../../services/supervisor/presence_table.ts";
import { StopRequests } from "../../services/supervisor/stop_requests.ts";
import { LineSplitter } from "../../services/supervisor/output.ts";
import { RunningClock } from "../../services/supervisor/running_clock.ts";
import { restartLimits, RestartPolicy } from "../../services/supervisor/restart.ts";
import { WorkerIds } from "../../services/supervisor/worker_ids.ts";

const restarts = suite("restart");

/** Deaths as [started, died] in ms, to what each of them leads, with the longest jitter. */
const histories: [string, [number, number][], (number | "give_up")[]][] = [
  ["one death", [[0, 60_000]], [100]],
  ["quick deaths double the delay", [[0, 50], [200, 250], [500, 550]], [100, 200, 400]],
  ["the delay has an end", [
    [0, 3000],
    [3100, 6100],
    [6300, 9300],
    [9700, 12700],
    [13500, 16500],
    [18100, 21100],
    [23100, 26100],
  ], [100, 200, 400, 800, 1600, 2000, 2000]],
  ["a long life starts the row afresh", [[0, 50], [200, 250], [500, 10_500]], [100, 200, 100]],
  ["five in ten seconds are a loop", [
    [0, 50],
    [150, 200],
    [400, 450],
    [850, 900],
    [1700, 1750],
  ], [100, 200, 400, 800, "give_up"]],
  ["four in ten seconds are none, the fifth comes after", [
    [0, 0],
    [1, 1],
    [2, 2],
    [3, 3],
    [4, 10_001],
  ], [100, 200, 400, 800, 1600]],
];

for (const [name, deaths, expected] of histories) {
  restarts(`onDeath(): ${name}`, () => {
    const policy = new RestartPolicy(restartLimits, () => 0.999999);
    const verdicts = deaths.map(([startedAt, now]) => policy.onDeath(startedAt, now));
    assert.equal(verdicts.map((v) => v.kind === "restart" ? v.delayMs : v.kind), expected);
  });
}

restarts("onDeath() spreads delays over the upper half", () => {
  const random = seededRandom(7);
  const delays = Array.from({ length: 200 }, () => {
    const verdict = new RestartPolicy(restartLimits, random).onDeath(0, 1);
    return verdict.kind === "restart" ? verdict.delayMs : -1;
  });
  assert.ok(Math.min(...delays) >= 50 && Math.max(...delays) <= 100, String(delays));
  assert.ok(new Set(delays).size > 20);
});

restarts.run();

const ids = suite("worker_ids");

ids("take() counts up from a random start and wraps round without 0", () => {
  const some = new WorkerIds(() => 0.99999);
  assert.equal([some.take(), some.take(), some.take()], [0x7fff, 1, 2]);
  assert.is(new WorkerIds(() => 0).take(), 1);
});

ids("take() gives no id again soon after its release", () => {
  const some = new WorkerIds(() => 0.5);
  const first = some.take();
  some.release(first);
  const next = Array.from({ length: 1000 }, () => {
    const id = some.take();
    some.release(id);
    return id;
  });
  assert.not.ok(next.includes(first));
  assert.is(new Set(next).size, 1000);
});

ids("take() passes over held ids and those seen elsewhere", () => {
  const some = new WorkerIds(() => 0);
  assert.is(some.take((id) => id < 5), 5);
  assert.is(some.take((id) => id === 6), 7);
  const held = new Set(Array.from({ length: 0x7fff - 2 }, () => some.take()));
  assert.not.ok(held.has(5) || held.has(7) || held.has(0));
  assert.throws(() => some.take(), /all 32767 are held/);
  some.release(5);
  assert.is(some.take(), 5);
});

ids("release() refuses an id that nobody holds", () => {
  assert.throws(() => new WorkerIds(() => 0).release(9), /worker id 9: it is not held/);
});

ids.run();

const table = suite("fleet_table");

table("a seat goes from empty to starting to ready and back", () => {
  const fleet = new FleetTable(2);
  assert.equal([fleet.stateOf(0), fleet.missing, fleet.allReady], ["empty", [0, 1], false]);
  fleet.started(0, 70);
  fleet.started(1, 71);
  assert.is(fleet.announced(71), 1);
  assert.equal([fleet.stateOf(0), fleet.stateOf(1)], ["starting", "ready"]);
  assert.equal(fleet.missing, [0]);
  assert.is(fleet.announced(70), 0);
  assert.ok(fleet.allReady);
  assert.is(fleet.died(1), 71);
  assert.not.ok(fleet.allReady);
  assert.equal(fleet.missing, [1]);
});

table("announced() ignores strangers, the dead and what it knows already", () => {
  const fleet = new FleetTable(1);
  fleet.started(0, 70);
  assert.is(fleet.announced(99), null);
  assert.is(fleet.announced(70), 0);
  assert.is(fleet.announced(70), null);
  fleet.died(0);
  assert.is(fleet.announced(70), null, "its last words came late");
  fleet.started(0, 72);
  assert.is(fleet.announced(70), null);
  assert.is(fleet.stateOf(0), "starting");
});

table("a step that does not fit its seat is refused", () => {
  const fleet = new FleetTable(2);
  assert.throws(() => fleet.died(0), /seat 0: it is empty, wanted starting or ready/);
  fleet.started(0, 70);
  assert.throws(() => fleet.started(0, 71), /seat 0: it is starting, wanted empty/);
  assert.throws(() => fleet.started(1, 70), /it sits in another one/);
  assert.throws(() => fleet.started(2, 72), /seat 2: it is undefined/);
});

table.run();

const banner = suite("banner");

const demo: Banner = {
  workers: 2,
  addresses: [{ host: "127.0.0.1", port: 6432 }],
  runtime: "bun 1.4.5",
  database: "demo",
  user: "demo",
  consoleUser: "demo",
  password: "demo",
};

banner("readyText() of the demo", () => {
  assert.is(
    readyText(demo),
    `pgweir is ready: 2 workers on 127.0.0.1:6432 (bun 1.4.5)
  connect   psql postgres://demo:demo@127.0.0.1:6432/demo
  console   psql postgres://demo:demo@127.0.0.1:6432/pgbouncer -c "SHOW POOLS"
  read on   README.md, services/README.md
  stop      Ctrl-C
`,
  );
});

const uris: [string, Partial<Banner>, string][] = [
  ["no password", { password: null }, "postgres://demo@127.0.0.1:6432/demo"],
  ["no user", { user: null, password: null }, "postgres://127.0.0.1:6432/demo"],
  [
    "odd names",
    { user: "a b@c", database: "x/y" },
    "postgres://a%20b%40c:demo@127.0.0.1:6432/x%2Fy",
  ],
  ["all of IPv4", { addresses: [{ host: "*", port: 1 }] }, "postgres://demo:demo@127.0.0.1:1/demo"],
  ["all of IPv6", { addresses: [{ host: "::", port: 1 }] }, "postgres://demo:demo@[::1]:1/demo"],
  ["IPv6", { addresses: [{ host: "fe80::1", port: 1 }] }, "postgres://demo:demo@[fe80::1]:1/demo"],
  [
    "a unix socket",
    { addresses: [{ host: "/run/x", port: 6432 }] },
    "postgres://demo:demo@%2Frun%2Fx:6432/demo",
  ],
];

for (const [name, changes, expected] of uris) {
  banner(`readyText() with ${name}`, () => {
    const lines = readyText({ ...demo, ...changes }).split("\n");
    assert.is(lines[1], `  connect   psql ${expected}`);
  });
}

banner("readyText() counts one worker and names every address", () => {
  const addresses = [{ host: "127.0.0.1", port: 1 }, { host: "::1", port: 2 }, {
    host: "/run",
    port: 3,
  }];
  assert.equal(addresses.map(addressText), ["127.0.0.1:1", "[::1]:2", "/run/.s.PGSQL.3"]);
  assert.match(
    readyText({ ...demo, workers: 1, addresses }),
    /^pgweir is ready: 1 worker on 127\.0\.0\.1:1, \[::1\]:2, \/run\/\.s\.PGSQL\.3 \(bun 1\.4\.5\)\n/,
  );
});

banner.run();

const splitter = suite("LineSplitter");

splitter("push() gives whole lines, however the stream is cut", () => {
  const text = "one\ntwö\n\n  three  \nrest";
  const bytes = new TextEncoder().encode(text);
  for (let cut = 0; cut <= bytes.length; cut++) {
    const lines: string[] = [];
    const lineSplitter = new LineSplitter((line) => lines.push(line));
    lineSplitter.push(bytes.subarray(0, cut));
    lineSplitter.push(bytes.subarray(cut));
    assert.equal(lines, ["one", "twö", "", "  three  "]);
    assert.is(lineSplitter.last, "three");
    lineSplitter.end();
    assert.is(lines.at(-1), "rest");
    assert.is(lineSplitter.last, "rest");
  }
});

splitter("push() passes on a line without an end in bounded pieces", () => {
  const lines: string[] = [];
  const lineSplitter = new LineSplitter((line) => lines.push(line), 10);
  for (let i = 0; i < 5; i++) lineSplitter.push(new TextEncoder().encode("1234567"));
  assert.equal(lines, ["1234567123", "4567123456", "7123456712"]);
  lineSplitter.end();
  assert.is(lines.join(""), "1234567".repeat(5));
});

splitter.run();

const lastWords = suite("last_words");

lastWords("messageOf() finds the message in every form a worker prints it", () => {
  for (const format of ["text", "json"] as const) {
    const lines: string[] = [];
    const write = (line: string) => lines.push(line);
    createLogger({ component: "pooler", level: "info", format, write }).error("listen on x: taken");
    assert.is(messageOf(lines[0]!.trim()), "listen on x: taken");
  }
  assert.is(messageOf("pgweir: a.ini: no port"), "a.ini: no port");
  assert.is(messageOf("Segmentation fault"), "Segmentation fault");
  assert.is(messageOf("{ not json"), "{ not json");
  assert.is(messageOf(""), "");
});

lastWords.run();

const requests = suite("stop_requests");

type Wish = ["SIGINT" | "SIGTERM" | "SIGQUIT", number];

const wishes: [string, Wish[], string[]][] = [
  ["one Ctrl-C", [["SIGINT", 0]], ["servers"]],
  ["its echo through npm", [["SIGINT", 0], ["SIGINT", 20]], ["servers", "nothing"]],
  ["a second one", [["SIGINT", 0], ["SIGINT", 400]], ["servers", "quit"]],
  ["SIGTERM, twice", [["SIGTERM", 0], ["SIGTERM", 400]], ["clients", "quit"]],
  ["SIGTERM, then one that waits for less", [["SIGTERM", 0], ["SIGINT", 10]], [
    "clients",
    "servers",
  ]],
  ["SIGINT, then one that would wait for more", [["SIGINT", 0], ["SIGTERM", 10]], [
    "servers",
    "quit",
  ]],
  ["all three", [["SIGTERM", 0], ["SIGINT", 10], ["SIGINT", 400]], ["clients", "servers", "quit"]],
  ["echoes do not add up", [["SIGINT", 0], ["SIGINT", 200], ["SIGINT", 400]], [
    "servers",
    "nothing",
    "quit",
  ]],
  ["SIGQUIT never waits", [["SIGINT", 0], ["SIGQUIT", 1]], ["servers", "quit"]],
  ["SIGQUIT alone", [["SIGQUIT", 0], ["SIGTERM", 900]], ["quit", "nothing"]],
  ["quit is the last step", [["SIGINT", 0], ["SIGINT", 400], ["SIGINT", 800]], [
    "servers",
    "quit",
    "nothing",
  ]],
];

for (const [name, signals, expected] of wishes) {
  requests(`on(): ${name}`, () => {
    const stop = new StopRequests();
    assert.equal(signals.map(([signal, now]) => stop.on(signal, now)), expected);
  });
}

requests.run();

const presence = suite("presence_table");

presence("inUse() holds until a goodbye or ten seconds of silence", () => {
  const table = new PresenceTable();
  assert.not.ok(table.inUse(5, 0));
  table.saw({ id: 5, state: "starting" }, 1000);
  table.saw({ id: 6, state: "ready" }, 1000);
  assert.ok(table.inUse(5, 10_999));
  assert.not.ok(table.inUse(5, 11_000));
  table.saw({ id: 5, state: "ready" }, 12_000);
  assert.ok(table.inUse(5, 12_001));
  table.saw({ id: 6, state: "gone" }, 2000);
  assert.not.ok(table.inUse(6, 2001));
});

presence.run();

const clock = suite("running_clock");

clock("ranMs counts regular ticks, little of a stall and nothing of a pause", () => {
  const running = new RunningClock(100);
  for (const now of [5000, 5100, 5210]) running.tick(now);
  assert.is(running.ranMs, 210);
  running.tick(45_210);
  assert.is(running.ranMs, 410);
  running.pause();
  running.tick(50_000);
  assert.is(running.ranMs, 410);
  running.tick(50_100);
  assert.is(running.ranMs, 510);
});

clock.run();
