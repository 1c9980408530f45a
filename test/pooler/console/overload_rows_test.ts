// Rows of SHOW OVERLOAD: what holds now for which database, and what was refused for what holds no longer.

import { overloadRows } from "../../../services/pooler/plane/console/overload_rows.ts";
import type { Source } from "../../../services/pooler/plane/shedding.ts";
import { assert, suite } from "../../support/harness.ts";
import { addPool, fakePlane, fakePool, momentOf, now } from "./fake_plane.ts";

const tests = suite("overload rows");

const off = { min: 0, max: 0, probability: 0 };
const host: Source = {
  scope: "host",
  name: "here",
  database: null,
  reason: "CPU",
  value: 3.999_999,
  transactions: { min: 2, max: 6, probability: 0.5 },
  connections: { min: 3, max: 5.5, probability: 0.4 },
  own: new Map([["own", { min: 0.5, max: 4, probability: 1 }]]),
  until: now + 1499.6,
};
const database: Source = { ...host, scope: "database", name: "db1", database: "shop", until: now };

function rowsOf(
  sources: readonly Source[],
  shed: readonly [string, string, string, number, number][] = [],
  pools: readonly string[] = [],
) {
  const plane = fakePlane({ databases: "shop = host=a\nown = host=a\nspared = host=a" });
  for (const name of pools) addPool(plane, fakePool(plane.config, name, "u"));
  plane.overload = {
    shedding: { sources },
    shed: new Map(shed.map(([scope, name, of, transactions, connections]) => [
      `${scope}\0${name}\0${of}`,
      { scope: scope as Source["scope"], name, database: of, transactions, connections },
    ])),
    warnings: new Map(),
    isExempt: (name) => name === "spared",
  };
  return [...overloadRows(momentOf(plane))];
}

const figures = ["CPU", "4", "2", "6", "0.5", "3", "5.5", "0.4", 1500];

tests(
  "what concerns all has a row for each database that is in use or was refused something",
  () => {
    assert.equal(rowsOf([]), []);
    assert.equal(rowsOf([host]), [["host", "here", null, ...figures, 0, 0]]);
    assert.equal(
      rowsOf([host], [["host", "here", "*", 7, 8]], ["shop", "own", "spared"]),
      [
        ["host", "here", "shop", ...figures, 0, 0],
        ["host", "here", "own", "CPU", "4", "0.5", "4", "1", "3", "5.5", "0.4", 1500, 0, 0],
        ["host", "here", "spared", "CPU", "4", "2", "6", "0", "3", "5.5", "0", 1500, 0, 0],
        ["host", "here", "*", ...figures, 7, 8],
      ],
    );
  },
);

tests("what concerns one database has one row, with its own counts", () => {
  const shed = [["database", "db1", "shop", 3, 4], ["database", "db2", "shop", 5, 6]] as const;
  assert.equal(rowsOf([database], shed.map((each) => [...each]), ["shop", "own"]), [
    ["database", "db1", "shop", ...figures.slice(0, -1), 0, 3, 4],
    ["database", "db2", "shop", null, null, null, null, null, null, null, null, null, 5, 6],
  ]);
});

tests("the event loop of the worker has no name, and sheds no connections", () => {
  const worker: Source = { ...host, scope: "worker", name: "", connections: off, own: new Map() };
  assert.equal(rowsOf([worker], [], ["shop"]), [
    ["worker", "", "shop", "CPU", "4", "2", "6", "0.5", "0", "0", "0", 1500, 0, 0],
  ]);
});

tests.run();
