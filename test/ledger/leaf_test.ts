// The keys of leaves: one key per leaf, one leaf per key, whatever characters names have.

import {
  clientsDbLeaf,
  clientsLeaf,
  clientsUserLeaf,
  directLeaf,
  groupLeaf,
  LEAF_LENGTH_MAX,
  parseLeaf,
  parseServerLeaf,
  poolLeaf,
  queueLeaf,
  reserveLeaf,
} from "../../shared/ledger/mod.ts";
import { assert, suite } from "../support/harness.ts";

const test = suite("ledger/leaf");

for (const name of ["shop", "a/b", "a:b", "100%", "ü~'()*", "日本", "\t\n", "clients", "*"]) {
  test(`parseLeaf() reads back what was made of ${JSON.stringify(name)}`, () => {
    assert.equal(parseLeaf(poolLeaf(name, "u")), { kind: "pool", database: name, user: "u" });
    assert.equal(parseLeaf(poolLeaf("d", name)), { kind: "pool", database: "d", user: name });
    assert.equal(parseLeaf(reserveLeaf(name, "u")), { kind: "reserve", database: name, user: "u" });
    assert.equal(parseLeaf(directLeaf(name, "u")), { kind: "direct", database: name, user: "u" });
    assert.equal(parseLeaf(directLeaf("d", name)), { kind: "direct", database: "d", user: name });
    assert.equal(parseLeaf(clientsDbLeaf(name)), { kind: "clients/db", database: name });
    assert.equal(parseLeaf(clientsUserLeaf(name)), { kind: "clients/user", user: name });
    assert.equal(parseLeaf(groupLeaf(name)), { kind: "group", group: name });
    assert.equal(parseLeaf(queueLeaf(name)), { kind: "queue", group: name });
  });
}

test("parseLeaf() reads the leaf of all clients", () => {
  assert.equal(parseLeaf(clientsLeaf), { kind: "clients" });
});

test("parseServerLeaf() reads leaves of server connections, and no others", () => {
  for (const leaf of [poolLeaf("a", "u"), reserveLeaf("a", "u"), directLeaf("a", "u")]) {
    assert.equal(parseServerLeaf(leaf), parseLeaf(leaf));
  }
  for (const leaf of [clientsLeaf, clientsDbLeaf("a"), clientsUserLeaf("u"), "pool:a", "a"]) {
    assert.is(parseServerLeaf(leaf), null);
  }
});

test("poolLeaf() takes a name that is no well-formed text", () => {
  assert.is(poolLeaf("a\ud800", "u"), poolLeaf("a\ufffd", "u"));
});

test("poolLeaf() tells names apart that would look alike unencoded", () => {
  assert.is.not(poolLeaf("a/b", "c"), poolLeaf("a", "b/c"));
});

for (
  const key of [
    "",
    "pool:",
    "pool:a",
    "pool:a/",
    "pool:/u",
    "pool:a/b/c",
    "reserve:",
    "reserve:a",
    "reserve:a/b/c",
    "direct:",
    "direct:a",
    "direct:a/b/c",
    "direct/db:a",
    "clients/db:",
    "clients/db:a/b",
    "clients/db",
    "clients:",
    "group:",
    "group:a/b",
    "group/db:a",
    "queue:",
    "queue:a/b",
    "pool:%/u",
    "pool:%C3/u",
    "pool:%61/u",
    "pool:ü/u",
    "pool:a/u\n",
    ` ${clientsLeaf}`,
    poolLeaf("a".repeat(LEAF_LENGTH_MAX), "u"),
  ]
) {
  test(`parseLeaf() refuses ${JSON.stringify(key.slice(0, 40))}`, () => {
    assert.is(parseLeaf(key), null);
  });
}

test.run();
