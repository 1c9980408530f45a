// What is undone when a server skips messages, while messages of later cycles are noted already: random pipelines
// against a server that does, or skips, what it reads.

import { Journal } from "../../services/pooler/plane/journal.ts";
import { Request, Requests } from "../../services/pooler/plane/requests.ts";
import { StatementMemory } from "../../services/pooler/plane/statement_memory.ts";
import {
  PreparedOnServer,
  type Statement,
  StatementNames,
  StatementTable,
} from "../../services/pooler/plane/statements.ts";
import { assert, seededRandom, suite } from "../support/harness.ts";

const test = suite("journal of prepared statements");
const encoder = new TextEncoder();

interface Sent {
  readonly code: number;
  readonly does: (server: Set<Statement>) => void;
}

/** One server of at most `most` statements, and a client with a name for each of `count` texts. */
class World {
  readonly table = new StatementTable(new StatementMemory());
  readonly prepared = new PreparedOnServer(this.table);
  readonly journal = new Journal(this.prepared, this.table);
  readonly requests = new Requests();
  readonly names = new StatementNames(this.table);
  readonly statements: Statement[] = [];
  /** What the server really has. */
  readonly real = new Set<Statement>();
  readonly most: number;
  #sent: Sent[] = [];

  constructor(count: number, most: number) {
    this.most = most;
    for (let i = 0; i < count; i++) {
      const bytes = encoder.encode(`SELECT ${i}\0`);
      const statement = this.table.intern(bytes, 0, bytes.length);
      const name = encoder.encode(`s${i}`);
      this.names.add(name, 0, name.length, statement);
      this.statements.push(statement);
    }
  }

  #send(code: number, does: Sent["does"] = () => {}): void {
    this.requests.push(code);
    this.#sent.push({ code, does });
  }

  /** As a Bind of the statement: the server gets it if it lacks it. False if that has to wait. */
  use(statement: Statement): boolean {
    const name = encoder.encode(`s${this.statements.indexOf(statement)}`);
    if (this.journal.hasOpenGroups && this.#dropping) return false;
    if (this.journal.hasOpenGroups && this.journal.isOpen([statement], name, 0, name.length)) {
      return false;
    }
    if (!this.prepared.use(statement)) {
      while (this.prepared.isFull(statement.size, this.most)) {
        const victim = this.prepared.leastRecentlyUsed() as Statement;
        this.#send(Request.ownClose, (real) => real.delete(victim));
        this.journal.record(null, victim, null, null);
        this.prepared.remove(victim);
      }
      this.#send(Request.ownParse, (real) => real.add(statement));
      this.prepared.add(statement);
      this.journal.record(statement, null, null, null);
    }
    this.#send(Request.bind);
    return true;
  }

  /** As an Execute of DISCARD ALL; false if that has to wait. */
  drop(): boolean {
    if (this.journal.hasOpenGroups) return false;
    this.#send(Request.executeDrop, (real) => real.clear());
    this.journal.recordDrop(null);
    return true;
  }

  get #dropping(): boolean {
    return this.#sent.some(({ code }) => code === Request.executeDrop);
  }

  sync(): void {
    this.#send(Request.sync);
    this.journal.group++;
  }

  /** The server answers the next cycle; at `failing` of its messages it fails. */
  answer(failing: number): void {
    for (let at = 0;; at++) {
      const next = this.#sent.shift();
      if (next === undefined) return;
      if (next.code === Request.sync) {
        this.requests.pop();
        return;
      }
      if (at !== failing) {
        if (this.requests.pop() !== Request.bind) this.journal.done();
        next.does(this.real);
        continue;
      }
      this.journal.skip(this.requests, this.names);
      while (this.#sent.length > 0 && this.#sent[0]!.code !== Request.sync) this.#sent.shift();
    }
  }
}

test("what is noted is what the server has, when cycles fail while others are on their way", () => {
  for (let seed = 1; seed <= 300; seed++) {
    const random = seededRandom(seed);
    const below = (n: number) => Math.floor(random() * n);
    const world = new World(4 + below(5), 2 + below(3));
    let cycles = 0;
    const answer = () => {
      if (cycles === 0) return;
      cycles--;
      world.answer(random() < 0.5 ? below(8) : -1);
    };
    for (let step = 0; step < 200; step++) {
      const dice = random();
      if (dice < 0.6) {
        const statement = world.statements[below(world.statements.length)] as Statement;
        // It waits until all is answered.
        if (!world.use(statement)) { while (cycles > 0) answer(); }
      } else if (dice < 0.65) {
        if (!world.drop()) { while (cycles > 0) answer(); }
      } else if (dice < 0.8) {
        world.sync();
        cycles++;
      } else {
        answer();
      }
    }
    world.sync();
    cycles++;
    while (cycles > 0) answer();
    for (const [index, statement] of world.statements.entries()) {
      assert.is(world.prepared.has(statement), world.real.has(statement), `seed ${seed}, ${index}`);
      assert.ok(statement.references > 0);
    }
    assert.ok(world.real.size <= world.most + 8);
  }
});

test("a group that drops everything finds nothing behind it, and all again when it fails", () => {
  for (const fails of [false, true]) {
    const { table, prepared, journal, requests, names, statements } = new World(3, 9);
    const [first, second] = statements as [Statement, Statement];
    prepared.add(first);
    const s1 = encoder.encode("s1");
    const before = names.get(s1, 0, 2);
    requests.push(Request.executeDrop);
    journal.recordDrop(names);
    assert.equal([names.size, names.bytes, prepared.size], [0, 0, 0]);
    requests.push(Request.parseNamed);
    const added = names.add(s1, 0, 2, second);
    prepared.add(second);
    journal.record(second, null, added, null);
    requests.push(Request.sync);
    journal.group++;
    if (fails) journal.skip(requests, names);
    else {
      for (const _ of [1, 2]) {
        requests.pop();
        journal.done();
      }
    }
    assert.is(requests.front(), Request.sync);
    assert.is(names.get(s1, 0, 2), fails ? before : added);
    assert.equal([names.size, prepared.has(first), prepared.has(second)], [
      fails ? 3 : 1,
      fails,
      !fails,
    ]);
    names.clear();
    prepared.clear();
    assert.equal([table.memory.kept, table.memory.named], [0, 0]);
  }
});

test("what was noted and not done is taken back, and what was noted behind it stays", () => {
  const { table, prepared, journal, requests, names, statements } = new World(3, 9);
  const second = statements[1] as Statement;
  const s1 = encoder.encode("s1");
  const before = names.get(s1, 0, 2)!;
  requests.push(Request.executeDrop);
  journal.recordDeallocate(names, before);
  assert.is(names.get(s1, 0, 2), null);
  requests.push(Request.parseNamed);
  prepared.add(second);
  journal.record(second, null, null, null);
  requests.pop();
  journal.revert(names);
  assert.is(names.get(s1, 0, 2), before);
  assert.equal([names.size, prepared.has(second)], [3, true]);
  assert.is(journal.skip(requests, names), null);
  assert.equal([names.size, prepared.has(second)], [3, false]);
  names.clear();
  assert.equal([table.memory.kept, table.memory.named], [0, 0]);
});

test.run();
