// Rows of SHOW OVERLOAD: what holds now for which database and group, and what was refused for what holds no longer;
// and the bounds in SHOW GROUPS.

import type { OverloadBounds } from "../../../shared/config/mod.ts";
import { AdmissionTree } from "../../../shared/groups/mod.ts";
import { OwnBounds } from "../../../shared/overload/mod.ts";
import { groupColumns, groupRows } from "../../../services/pooler/plane/console/group_rows.ts";
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
  times: { waitUs: 3_999_999, busyUs: 1_000_000 },
  transactions: { min: 2, max: 6, probability: 0.5 },
  connections: { min: 3, max: 5.5, probability: 0.4 },
  until: now + 1499.6,
};
const database: Source = { ...host, scope: "database", name: "db1", database: "shop", until: now };

type Shed = [scope: string, name: string, of: string, group: string, number, number];

function rowsOf(
  sources: readonly Source[],
  shed: readonly Shed[] = [],
  pools: readonly string[] = [],
  groups = "",
) {
  const plane = fakePlane({
    databases: "shop = host=a\nown = host=a min_os_cpu_wait_time_ratio_to_throw=0.5 " +
      `max_os_cpu_wait_time_ratio_to_throw=3\nspared = host=a\n[groups]\n${groups}`,
  });
  for (const name of pools) addPool(plane, fakePool(plane.config, name, "u"));
  const own = new OwnBounds(plane.config);
  plane.overload = {
    shedding: { sources },
    shed: new Map(shed.map(([scope, name, of, group, transactions, connections]) => [
      `${scope}\0${name}\0${of}\0${group}`,
      {
        scope: scope as Source["scope"],
        name,
        database: of,
        group,
        transactions,
        connections,
      },
    ])),
    warnings: new Map(),
    isExempt: (name) => name === "spared",
    boundGroups: own.groups,
    boundsOf: (database, group) => own.of(database, group),
  };
  return [...overloadRows(momentOf(plane))];
}

const figures = ["CPU", "4", "2", "6", "0.5", "3", "5.5", "0.4", 1500];

tests(
  "what concerns all has a row for each database that is in use or was refused something",
  () => {
    assert.equal(rowsOf([]), []);
    assert.equal(rowsOf([host]), [["host", "here", null, ...figures, 0, 0, null]]);
    assert.equal(
      rowsOf([host], [["host", "here", "*", "", 7, 8]], ["shop", "own", "spared"]),
      [
        ["host", "here", "shop", ...figures, 0, 0, null],
        ["host", "here", "own", "CPU", "4", "0.5", "3", "1", "3", "5.5", "0.4", 1500, 0, 0, null],
        ["host", "here", "spared", "CPU", "4", "2", "6", "0", "3", "5.5", "0", 1500, 0, 0, null],
        ["host", "here", "*", ...figures, 7, 8, null],
      ],
    );
  },
);

tests("what concerns one database has one row, with its own counts", () => {
  const shed: Shed[] = [
    ["database", "db1", "shop", "", 3, 4],
    ["database", "db2", "shop", "", 5, 6],
  ];
  const nothing = Array(9).fill(null);
  assert.equal(rowsOf([database], shed, ["shop", "own"]), [
    ["database", "db1", "shop", ...figures.slice(0, -1), 0, 3, 4, null],
    ["database", "db2", "shop", ...nothing, 5, 6, null],
  ]);
});

tests("the event loop of the worker has no name, and sheds no connections", () => {
  const worker: Source = { ...host, scope: "worker", name: "", connections: off, times: null };
  assert.equal(rowsOf([worker], [], ["shop"]), [
    ["worker", "", "shop", "CPU", "4", "2", "6", "0.5", "0", "0", "0", 1500, 0, 0, null],
  ]);
});

const groups = `reports = min_os_cpu_wait_time_ratio_to_throw=1
daily = parent=reports os_cpu_busy_time_threshold=1000001 max_event_loop_lag_to_throw=90
vip = shed=never max_os_cpu_wait_time_ratio_to_drop_connection=4
others = priority=1`;

tests("a group with bounds of its own or of one above has rows of its own, with its counts", () => {
  const shed: Shed[] = [
    ["host", "here", "shop", "reports", 3, 4],
    ["host", "here", "shop", "", 1, 2],
    ["host", "there", "shop", "reports", 5, 6],
  ];
  const rest = [1500, 0, 0];
  assert.equal(rowsOf([host], shed, ["shop", "own"], groups), [
    ["host", "here", "shop", ...figures, 1, 2, null],
    [
      ...["host", "here", "shop", "CPU", "4", "1", "6", "0.6", "3", "5.5", "0.4"],
      1500,
      3,
      4,
      "reports",
    ],
    [...["host", "here", "shop", "CPU", "0", "1", "6", "0", "3", "5.5", "0"], ...rest, "daily"],
    [...["host", "here", "shop", "CPU", "4", "2", "6", "0", "3", "4", "0"], ...rest, "vip"],
    [...["host", "here", "own", "CPU", "4", "0.5", "3", "1", "3", "5.5", "0.4"], ...rest, null],
    [...["host", "here", "own", "CPU", "4", "1", "3", "1", "3", "5.5", "0.4"], ...rest, "reports"],
    [...["host", "here", "own", "CPU", "0", "1", "3", "0", "3", "5.5", "0"], ...rest, "daily"],
    [...["host", "here", "own", "CPU", "4", "0.5", "3", "0", "3", "4", "0"], ...rest, "vip"],
    ["host", "there", "shop", ...Array(9).fill(null), 5, 6, "reports"],
  ]);
});

tests("SHOW GROUPS has the bounds of each group, those of groups above included", () => {
  const plane = fakePlane({ databases: `shop = host=a\n[groups]\n${groups}` });
  const own = new OwnBounds(plane.config);
  plane.overload = {
    ...plane.overload,
    boundsOf: (database, group): OverloadBounds | null => own.of(database, group),
  };
  plane.admission = {
    ...plane.admission,
    groups: new AdmissionTree({ groups: plane.config.groups, priorityAgingMs: 0 }).groups,
  };
  const from = groupColumns.findIndex(({ name }) => name === "shed");
  const shown = [...groupRows(momentOf(plane))].map((
    row,
  ) => [row[0], ...row.slice(from, from + 8)]);
  assert.equal(shown, [
    ["reports", "normal", null, "1", null, null, null, null, null],
    ["daily", "normal", 1000001, "1", null, null, null, null, "90"],
    ["vip", "never", null, null, null, null, "4", null, null],
    ["others", "normal", null, null, null, null, null, null, null],
  ]);
});

tests.run();
