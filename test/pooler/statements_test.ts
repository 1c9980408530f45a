// The tables of prepared statements: one copy of each text, found by its bytes, and what it costs is known.

import { StatementMemory } from "../../services/pooler/plane/statement_memory.ts";
import {
  foreign,
  PreparedOnServer,
  type Statement,
  type StatementName,
  StatementNames,
  StatementTable,
} from "../../services/pooler/plane/statements.ts";
import { concatBytes } from "../../shared/wire/mod.ts";
import { assert, seededRandom, suite } from "../support/harness.ts";

const test = suite("prepared statements: tables");
const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** A Parse body behind the name: the text, and types as one byte each. */
function body(text: string, ...types: number[]): Uint8Array {
  return concatBytes(encoder.encode(`${text}\0`), Uint8Array.from(types));
}

function intern(table: StatementTable, text: string, dialect = ""): Statement {
  const bytes = body(text);
  return table.intern(bytes, 0, bytes.length, dialect);
}

function find(table: StatementTable, text: string, dialect = ""): Statement | null {
  const bytes = body(text);
  return table.find(bytes, 0, bytes.length, dialect);
}

function addName(names: StatementNames, name: string, statement: Statement): StatementName {
  const bytes = encoder.encode(name);
  return names.add(bytes, 0, bytes.length, statement);
}

function getName(names: StatementNames, name: string): StatementName | null {
  const bytes = encoder.encode(name);
  return names.get(bytes, 0, bytes.length);
}

const tables = {
  "": () => new StatementTable(new StatementMemory()),
  ", all with the same hash": () => new StatementTable(new StatementMemory(), () => 7),
};

for (const [how, makeTable] of Object.entries(tables)) {
  test(`intern() has one statement for each text, types and dialect${how}`, () => {
    const table = makeTable();
    const bodies = ["", "SELECT 1", "SELECT 2", "SELECT 11", "x".repeat(5000)]
      .flatMap((text) => [body(text), body(text, 0, 1), body(text, 0, 2)]);
    const all = new Set<Statement>();
    for (let round = 0; round < 2; round++) {
      for (const bytes of bodies) {
        for (const dialect of ["", "1\u0100", "2\u0100"]) {
          const moved = concatBytes(Uint8Array.of(1, 2, 3), bytes, Uint8Array.of(4, 5));
          const to = moved.length - 2;
          if (round === 0) assert.is(table.find(moved, 3, to, dialect), null);
          const statement = table.intern(moved, 3, to, dialect);
          assert.is(table.find(moved, 3, to, dialect), statement);
          assert.is(statement.dialect, dialect);
          assert.equal(statement.parse.subarray(statement.bodyAt), bytes);
          all.add(statement);
        }
      }
    }
    assert.is(all.size, bodies.length * 3);
    assert.is(table.size, all.size);
    assert.is(new Set([...all].map(({ name }) => decoder.decode(name))).size, all.size);
  });

  test(`release() takes a statement that nobody refers to out of the table${how}`, () => {
    for (const order of [[0, 1, 2], [2, 1, 0], [1, 0, 2], [1, 2, 0]]) {
      const table = makeTable();
      const statements = ["a", "b", "c"].map((text) => intern(table, text));
      for (const statement of statements) table.retain(statement);
      table.retain(statements[1]!);
      table.release(statements[1]!);
      for (const [done, index] of order.entries()) {
        assert.is(table.size, 3 - done);
        table.release(statements[index]!);
        for (const [i, text] of ["a", "b", "c"].entries()) {
          const isGone = order.indexOf(i) <= done;
          assert.is(find(table, text), isGone ? null : statements[i]);
        }
      }
    }
  });

  test(`renew() makes new statements of old texts, which the old ones leave alone${how}`, () => {
    const table = makeTable();
    const old = ["a", "b"].map((text) => intern(table, text));
    for (const statement of old) table.retain(statement);
    table.renew();
    assert.is(table.size, 0);
    const renewed = ["a", "b"].map((text) => intern(table, text));
    for (const statement of renewed) table.retain(statement);
    assert.is.not(renewed[0], old[0]);
    for (const statement of old) table.release(statement);
    assert.is(find(table, "a"), renewed[0]);
    assert.is(find(table, "b"), renewed[1]);
    for (const statement of renewed) table.release(statement);
    assert.is(table.size, 0);
    assert.is(table.memory.kept, 0);
  });
}

test("inDialect() is the same text under other settings", () => {
  const table = new StatementTable(new StatementMemory());
  const statement = intern(table, "SELECT 1");
  const other = table.inDialect(statement, "1\u0100", true);
  assert.is.not(other, statement);
  assert.is(other, intern(table, "SELECT 1", "1\u0100"));
  assert.is(table.inDialect(other, "", true), statement);
});

test("a name and a server each keep a statement, and a text counts once for all names", () => {
  const memory = new StatementMemory();
  const table = new StatementTable(memory);
  const statement = intern(table, "SELECT 1");
  const [one, other] = [new StatementNames(table), new StatementNames(table)];
  const server = new PreparedOnServer(table);
  const first = addName(one, "s1", statement);
  server.add(statement);
  const { size } = statement;
  assert.is(memory.named, size + first.size);
  assert.is(memory.kept, memory.named);
  addName(one, "s2", statement);
  addName(other, "s1", statement);
  assert.is(memory.named, size + 3 * first.size);
  assert.is(one.bytes, 2 * (size + first.size));
  assert.is(other.bytes, size + first.size);
  one.clear();
  other.remove(getName(other, "s1")!);
  assert.is(one.bytes + other.bytes + memory.named, 0);
  assert.is(memory.kept, size);
  assert.is(find(table, "SELECT 1"), statement);
  server.remove(statement);
  assert.is(memory.kept, 0);
  assert.is(find(table, "SELECT 1"), null);
});

test("repoint() moves what a client is charged for to the new statement", () => {
  const memory = new StatementMemory();
  const table = new StatementTable(memory);
  const names = new StatementNames(table);
  const name = addName(names, "s", intern(table, "SELECT 1"));
  const longer = intern(table, "SELECT 1000000");
  names.repoint(name, longer);
  assert.is(names.bytes, longer.size + name.size);
  assert.is(memory.named, names.bytes);
  assert.is(find(table, "SELECT 1"), null);
  names.clear();
  assert.is(memory.kept, 0);
});

test("isFull() bounds what a server has, in number and in bytes, but for the last one", () => {
  const table = new StatementTable(new StatementMemory());
  const server = new PreparedOnServer(table);
  const large = "x".repeat(6 * 1024 * 1024);
  const [first, second] = [intern(table, large), intern(table, `${large}x`)];
  assert.not(server.isFull(100 * 1024 * 1024, 2));
  server.add(first);
  server.add(first);
  assert.not(server.isFull(second.size, 2));
  assert.ok(server.isFull(second.size, 1));
  server.add(second);
  assert.ok(server.isFull(first.size, 3));
  assert.not(server.isFull(1024 * 1024, 3));
  server.use(first);
  assert.is(server.leastRecentlyUsed(), second);
  server.remove(second);
  server.remove(second);
  assert.not(server.isFull(second.size, 3));
  server.clear();
  assert.is(server.size, 0);
  assert.not(server.isFull(16 * 1024 * 1024, 3));
});

test("outdate() is of what the server has by then, until that goes", () => {
  const table = new StatementTable(new StatementMemory());
  const server = new PreparedOnServer(table);
  const [first, second] = [intern(table, "a"), intern(table, "b")];
  server.add(first);
  server.outdate();
  server.add(second);
  assert.equal([server.isOutdated(first), server.isOutdated(second)], [true, false]);
  server.remove(first);
  server.add(first);
  assert.not(server.isOutdated(first));
  server.outdate();
  server.clear();
  server.add(second);
  assert.not(server.isOutdated(second));
});

test("what is foreign is one client's alone, and known to its server as such", () => {
  const table = new StatementTable(new StatementMemory());
  const server = new PreparedOnServer(table);
  const [first, second] = [intern(table, "a", foreign), intern(table, "a", foreign)];
  assert.is.not(first, second);
  assert.is(find(table, "a", foreign), null);
  for (const statement of [first, second, intern(table, "a")]) server.add(statement);
  assert.equal([...server.privates], [first, second]);
  server.remove(first);
  assert.equal([...server.privates], [second]);
  const shared = table.inDialect(second, "", true);
  assert.is(shared, find(table, "a"));
  server.clear();
  assert.is(server.privates.size + table.size + table.memory.kept, 0);
});

test("whatever clients and servers do, sizes are those of what they have", () => {
  const seed = Date.now() >>> 0;
  const random = seededRandom(seed);
  const upTo = (count: number) => Math.floor(random() * count);
  const memory = new StatementMemory();
  const table = new StatementTable(memory, (_dialect, _bytes, _from, to) => to % 3);
  const clients = Array.from({ length: 3 }, () => new StatementNames(table));
  const named = clients.map(() => new Map<string, StatementName>());
  const servers = Array.from({ length: 2 }, () => new PreparedOnServer(table));
  const onServer = servers.map(() => new Set<Statement>());
  const text = () => "x".repeat(upTo(12));
  for (let step = 0; step < 5000; step++) {
    const i = upTo(3);
    const [client, has] = [clients[i]!, named[i]!];
    const name = `s${upTo(8)}`;
    const known = has.get(name) ?? null;
    assert.is(getName(client, name), known, `seed ${seed}`);
    const what = upTo(100);
    if (what < 1) table.renew();
    else if (what < 3) {
      client.clear();
      has.clear();
    } else if (known === null) {
      has.set(name, addName(client, name, intern(table, text(), String(upTo(2)))));
    } else if (what < 50) {
      client.remove(known);
      has.delete(name);
      if (what < 20) {
        client.put(known);
        has.set(name, known);
      }
    } else if (what < 60) client.repoint(known, intern(table, text(), String(upTo(2))));
    else {
      const [server, on] = [servers[i % 2]!, onServer[i % 2]!];
      if (what < 80) {
        server.add(known.statement);
        on.add(known.statement);
      } else if (what < 98) {
        server.remove(known.statement);
        on.delete(known.statement);
      } else {
        server.clear();
        on.clear();
      }
    }
    const sum = (parts: Iterable<{ size: number }>) => [...parts].reduce((s, p) => s + p.size, 0);
    const all = named.flatMap((names) => [...names.values()]);
    const withNames = new Set(all.map(({ statement }) => statement));
    assert.is(memory.named, sum(withNames) + sum(all), `seed ${seed}`);
    assert.is(
      memory.kept,
      sum(new Set([...withNames, ...onServer.flatMap((on) => [...on])])) + sum(all),
      `seed ${seed}`,
    );
    for (const [index, names] of named.entries()) {
      const own = [...names.values()];
      assert.is(clients[index]!.size, own.length, `seed ${seed}`);
      assert.is(
        clients[index]!.bytes,
        sum(own) + sum(own.map(({ statement }) => statement)),
        `seed ${seed}`,
      );
    }
  }
  for (const client of clients) client.clear();
  for (const server of servers) server.clear();
  assert.is(memory.named + memory.kept + table.size, 0);
});

test.run();
