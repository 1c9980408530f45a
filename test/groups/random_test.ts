// The tree against the naive model, over seeded random histories: clients that ask, end, leave and wait too long,
// leases that move, reloads that change, move, drop and bring back groups. PGWEIR_SEED replays a failure.

import type { GroupConfig } from "../../shared/config/mod.ts";
import { assert, seededRandom, suite } from "../support/harness.ts";
import { group, World } from "./fixtures.ts";
import { ReferenceModel } from "./reference_model.ts";

const test = suite("admission tree at random");

const seed = Number(process.env["PGWEIR_SEED"] ?? Date.now() % 2 ** 32);
const HISTORIES = 200;
const STEPS = 120;
const NAMES = ["a", "b", "c", "d", "e", "f", "g"];
const CLIENTS = NAMES.flatMap((name) => [1, 2, 3, 4, 5].map((n) => `${name}${n}`));

type Random = () => number;

function pick<T>(random: Random, list: readonly T[]): T {
  return list[Math.floor(random() * list.length)]!;
}

/** A forest of some of the groups, each below one before it or at the top. */
function forest(random: Random): GroupConfig[] {
  const names = NAMES.filter(() => random() < 0.8).sort(() => random() - 0.5);
  return names.map((name, index) =>
    group(name, {
      parent: index === 0 || random() < 0.3 ? null : names[Math.floor(random() * index)]!,
      maxConcurrentQueries: pick(random, [0, 1, 2, 3, 4]),
      maxQueued: pick(random, [0, 0, 3, 6]),
      queueing: random() < 0.9,
      queueTimeoutMs: pick(random, [0, 50, 200]),
      softMaxMemory: pick(random, [0, 0, 0, 10]),
      minQueryMemory: pick(random, [0, 2, 5]),
      cpuShares: pick(random, [100, 200, 300, 1024]),
      priority: pick(random, [0, 0, 0, 1, -1]),
    })
  );
}

class History {
  readonly #random: Random;
  readonly #model = new ReferenceModel();
  readonly #world: World;
  #agingMs: number;
  readonly states = new Map(CLIENTS.map((client) => [client, "idle"]));
  /** hand-offs, waits that timed out, displaced clients: a history without them shows little */
  readonly seen = { run: 0, timed_out: 0, displaced: 0, refused: 0 };

  constructor(random: Random) {
    this.#random = random;
    this.#agingMs = pick(random, [0, 40]);
    const groups = forest(random);
    this.#world = new World(groups, this.#agingMs);
    this.#model.configure(groups, this.#agingMs, 0);
  }

  step(): string {
    const random = this.#random;
    const world = this.#world;
    world.now += pick(random, [0, 1, 7, 30]);
    const client = pick(random, CLIENTS);
    const state = this.states.get(client);
    const roll = random();
    if (roll < 0.03) {
      const groups = random() < 0.5 ? forest(random) : this.#changed();
      const expected = this.#model.configure(groups, this.#agingMs, world.now);
      return this.#compare("reload", expected, world.configure(groups, this.#agingMs));
    }
    if (roll < 0.08) {
      return this.#compare("expire", this.#model.expire(world.now), world.expire());
    }
    if (roll < 0.14 && world.tree.groups.length > 0) {
      const { name } = pick(random, world.tree.groups);
      const slots = pick(random, [0, 1, 2, 3, 9]);
      const expected = this.#model.limit(name, slots, world.now);
      return this.#compare(`limit ${name} ${slots}`, expected, world.limit(name, slots));
    }
    if (state === "running") {
      const expected = this.#model.end(client, world.now);
      this.states.set(client, "idle");
      return this.#compare(`end ${client}`, expected, world.end(client));
    }
    if (state === "waiting") {
      const expected = this.#model.leave(client, world.now);
      this.states.set(client, "idle");
      return this.#compare(`leave ${client}`, expected, world.cancel(client));
    }
    if (world.tree.group(client[0]!) === undefined) return "nothing";
    const expected = this.#model.request(client, client[0]!, world.now);
    const verdict = world.ask(client);
    if (verdict === "run") this.states.set(client, "running");
    else if (verdict === "queued") this.states.set(client, "waiting");
    else this.seen.refused++;
    return this.#compare(`ask ${client}: ${verdict}`, [expected], verdict);
  }

  /** The groups as they are, with other limits. */
  #changed(): GroupConfig[] {
    return this.#model.groups.map((each) => ({
      ...each,
      maxConcurrentQueries: pick(this.#random, [0, 1, 2, 3]),
    }));
  }

  #compare(what: string, expected: readonly string[], actual: string): string {
    const text = expected.join(" ");
    // In which order groups that vanish give up their clients, says nobody.
    const sorted = (events: string) =>
      events.replace(/([a-z]\d displaced ?)+/, (all) => all.trim().split(/(?<=ed) /).sort().join());
    assert.is(sorted(actual), sorted(text), what);
    assert.is(this.#world.counts(), this.#model.counts(), what);
    assert.equal(this.#model.unserved(), [], what);
    for (const [, client, outcome] of actual.matchAll(/\b([a-z]\d)( timed_out| displaced)?/g)) {
      this.seen[(outcome?.trim() ?? "run") as "run"]++;
      this.states.set(client!, outcome === undefined ? "running" : "idle");
    }
    return what;
  }
}

test("the tree does what the naive model does", () => {
  const total = { run: 0, timed_out: 0, displaced: 0, refused: 0 };
  for (let n = 0; n < HISTORIES; n++) {
    const history = new History(seededRandom(seed + n));
    const done: string[] = [];
    try {
      for (let step = 0; step < STEPS; step++) done.push(history.step());
    } catch (error) {
      const what = error instanceof Error ? error.stack : String(error);
      throw new Error(`PGWEIR_SEED=${seed + n}, after ${done.join("; ")}: ${what}`);
    }
    for (const key of Object.keys(total) as (keyof typeof total)[]) total[key] += history.seen[key];
  }
  // Hundreds of each; a driver that stopped to bring them about would show nothing.
  for (const [what, count] of Object.entries(total)) assert.ok(count > 50, `${what}: ${count}`);
});

test.run();
