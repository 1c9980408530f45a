// What a monitor of databases may be started for, and go on with by a file that was read again.

import type { PostmasterHints } from "../../services/overload/postmaster.ts";
import { entryPortOf, isWatched, scopeProblem } from "../../services/overload/scope.ts";
import { assert, suite } from "../support/harness.ts";
import { configWith } from "./fixtures.ts";

const tests = suite("what a monitor watches");

const none: PostmasterHints = { pid: null, dataDirectory: null, port: null };
const entries = "shop = host=a port=5433\nstock = host=a port=5433\nother = host=a";

const problemOf = (databases: string, names: readonly string[], hints = none) =>
  scopeProblem(configWith("", databases), { kind: "databases", names, hints });

tests("databases that the file has, all of one PostgreSQL", () => {
  assert.is(problemOf(entries, ["shop", "stock"]), null);
  assert.is(problemOf("* = host=a", ["*", "any"]), null);
  assert.is(scopeProblem(configWith(), { kind: "workers", supervisor: "s" }), null);
});

tests("a database that the file lacks is named", () => {
  assert.is(
    problemOf(entries, ["shop", "gone"]),
    'database "gone" is not in [databases] of "main.ini"',
  );
  assert.match(problemOf(entries, ["*"]) ?? "", /^database "\*" is not in/);
});

tests("databases at several ports are named, unless a hint says which PostgreSQL is meant", () => {
  const names = ["shop", "stock", "other"];
  assert.match(
    problemOf(entries, names) ?? "",
    /^the databases are at different ports \("shop" 5433, "stock" 5433, "other" 5432\)/,
  );
  for (const hint of [{ pid: 7 }, { port: 5432 }, { dataDirectory: "/data" }]) {
    assert.is(problemOf(entries, names, { ...none, ...hint }), null);
  }
  assert.match(problemOf(entries, ["shop", "gone"], { ...none, pid: 7 }) ?? "", /"gone" is not in/);
});

tests("the port is that of the entry, or of the `*` entry, or PostgreSQL's own", () => {
  const config = configWith("", `${entries}\n* = host=a port=5434`);
  const rows: [string, number][] = [["shop", 5433], ["other", 5432], ["any", 5434], ["*", 5434]];
  for (const [name, port] of rows) assert.is(entryPortOf(config, [name, "shop"]), port, name);
  assert.is(entryPortOf(configWith(), ["gone"]), 5432);
});

tests("with `*` all databases are watched that have no entry of their own", () => {
  const config = configWith("", "shop = host=a\nstock = host=a\n* = host=a");
  const of = (...names: string[]) =>
    ["shop", "stock", "some"].map((database) => isWatched(config, names, database));
  assert.equal(of("shop"), [true, false, false]);
  assert.equal(of("*"), [false, false, true]);
  assert.equal(of("*", "stock"), [false, true, true]);
  assert.equal(of("some"), [false, false, true]);
});

tests.run();
