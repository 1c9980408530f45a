// How many log in to one PostgreSQL at once, and who is next.

import { LoginGate, LoginGates } from "../../services/pooler/plane/login_gates.ts";
import { assert, suite } from "../support/harness.ts";

const test = suite("login gates");

/** A pool that wants so many logins. */
class Wanting {
  readonly name: string;
  readonly gate: LoginGate;
  readonly log: string[];
  left: number;

  constructor(name: string, gate: LoginGate, left: number, log: string[]) {
    this.name = name;
    this.gate = gate;
    this.left = left;
    this.log = log;
  }

  grow(): void {
    while (this.left > 0 && this.gate.mayEnter(this)) {
      this.gate.enter();
      this.left--;
      this.log.push(this.name);
    }
  }
}

/** Ends all logins that are under way, one after the other. */
function endAll(gate: LoginGate, log: string[]): string {
  const from = log.length;
  while (gate.underWay > 0) {
    gate.leave();
    gate.admit();
  }
  return log.slice(from).join("");
}

test("no more than the limit are under way, and all come to their turn", () => {
  const gate = new LoginGate(() => 3);
  const log: string[] = [];
  const pool = new Wanting("a", gate, 10, log);
  pool.grow();
  assert.is(gate.underWay, 3);
  gate.admit();
  assert.is(gate.underWay, 3);
  endAll(gate, log);
  assert.is(log.length, 10);
  assert.is(gate.waiting, 0);
});

test("pools take turns, in the order they came", () => {
  const gate = new LoginGate(() => 2);
  const log: string[] = [];
  const [a, b, c] = [4, 3, 1].map((left, i) => new Wanting("abc"[i]!, gate, left, log));
  for (const pool of [a!, b!, c!]) pool.grow();
  assert.is(log.join(""), "aa");
  assert.is(endAll(gate, log), "abcabb");
});

test("nobody jumps the queue when a place is free", () => {
  const gate = new LoginGate(() => 1);
  const log: string[] = [];
  const [a, b, c] = [2, 1, 1].map((left, i) => new Wanting("abc"[i]!, gate, left, log));
  for (const pool of [a!, b!]) pool.grow();
  gate.leave();
  c!.grow();
  assert.is(log.join(""), "a");
  gate.admit();
  assert.is(endAll(gate, log), "bc");
});

test("who has no more use for its turn passes it on", () => {
  const gate = new LoginGate(() => 1);
  const log: string[] = [];
  const [a, b, c] = [1, 1, 1].map((left, i) => new Wanting("abc"[i]!, gate, left, log));
  for (const pool of [a!, b!, c!]) pool.grow();
  b!.left = 0;
  gate.leave();
  gate.admit();
  assert.is(log.join(""), "ac");
});

test("a limit of 0 is none, and a limit may change", () => {
  let limit = 0;
  const gate = new LoginGate(() => limit);
  const log: string[] = [];
  new Wanting("a", gate, 50, log).grow();
  assert.is(gate.underWay, 50);
  limit = 5;
  new Wanting("b", gate, 1, log).grow();
  assert.is(gate.underWay, 50);
  limit = 60;
  gate.admit();
  assert.is(log.at(-1), "b");
});

test("those that do not ask count all the same", () => {
  const gate = new LoginGate(() => 1);
  const log: string[] = [];
  gate.enter();
  new Wanting("a", gate, 1, log).grow();
  assert.is(log.length, 0);
  gate.leave();
  gate.admit();
  assert.is(log.length, 1);
});

test("each PostgreSQL has a gate of its own, for as long as it is used", () => {
  const gates = new LoginGates(() => 1);
  const first = gates.of(["10.0.0.1"], 5432);
  assert.is(gates.of(["10.0.0.1"], 5432), first);
  assert.is.not(gates.of(["10.0.0.1"], 5433), first);
  first.enter();
  gates.sweep();
  assert.is(gates.of(["10.0.0.1"], 5432), first);
  first.leave();
  gates.sweep();
  assert.is.not(gates.of(["10.0.0.1"], 5432), first);
});

test.run();
