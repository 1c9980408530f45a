// The cgroups of resource groups, in a model of both versions of the kernel's: that of version 2 is all that is tested
// of it here. System tests have the kernel's own of version 1.

import { weightText } from "../../services/overload/cpu_plan.ts";
import { CpuTree, type Placement } from "../../services/overload/cpu_tree.ts";
import type { GroupConfig } from "../../shared/config/mod.ts";
import { assert, suite } from "../support/harness.ts";
import { configWithGroups } from "./fixtures.ts";
import { FakeCgroups } from "./fake_cgroups.ts";

const tests = suite("CPU tree");
const home = "cg/system.slice/postgresql.service";
const base = `${home}/pgweir-7-70`;
/** PostgreSQL, its own processes, and what is not its. */
const pids = [100, 101, 102, 103, 900];

const groups = configWithGroups(
  "analytics = cpu_shares=512",
  "reports = parent=analytics cpu_shares=2048",
  "checkout = cpu_shares=3072",
).groups;

function setUp(version: 1 | 2) {
  const files = new FakeCgroups(version, home, pids);
  const starts = new Map<number, number>([[7, 70], ...pids.map((pid) => [pid, pid * 10] as const)]);
  const tree = (pid = 7, startedMs = 70) =>
    new CpuTree({
      files,
      home: { folder: home, version },
      pid,
      startedMs,
      startOf: (pid) => starts.get(pid) ?? null,
    });
  const place = (pid: number, group: string | null, startedMs = pid * 10): Placement => {
    return { pid, startedMs, group };
  };
  const all = (reports: string | null = "reports", checkout: string | null = "checkout") => [
    place(100, null),
    place(101, null),
    place(102, reports),
    place(103, checkout),
  ];
  return { files, starts, tree, place, all };
}

const noTrace = ["cg", "cg/system.slice", home];
const weightFile = { 1: "cpu.shares", 2: "cpu.weight" } as const;

tests("weightText() keeps the default a default, and to the bounds of each version", () => {
  const rows: [number, string, string][] = [
    [1024, "1024", "100"],
    [512, "512", "50"],
    [3072, "3072", "300"],
    [2, "2", "1"],
    [262_144, "262144", "10000"],
    [5_000_000, "262144", "10000"],
  ];
  for (const [shares, first, second] of rows) {
    assert.is(weightText(shares, 1), first);
    assert.is(weightText(shares, 2), second);
  }
});

for (const version of [1, 2] as const) {
  const weights = (files: FakeCgroups) =>
    Object.fromEntries(
      files.paths.filter((path) => path.startsWith(base)).map((path) => {
        return [path.slice(base.length), files.read(`${path}/${weightFile[version]}`)];
      }),
    );
  const unit = (shares: number) => weightText(shares, version);

  tests(`the cgroups are a tree like that of the groups, version ${version}`, () => {
    const { files, tree, all } = setUp(version);
    const own = tree();
    own.open();
    own.arrange(groups, all());
    assert.equal(weights(files), {
      "": unit(4 * 1024),
      "/rest": unit(1024),
      "/group.analytics": unit(512),
      "/group.analytics/own": unit(1024),
      "/group.analytics/group.reports": unit(2048),
      "/group.analytics/group.reports/own": unit(1024),
      "/group.checkout": unit(3072),
      "/group.checkout/own": unit(1024),
    });
    assert.equal(files.pidsIn(`${base}/group.analytics/group.reports/own`), [102]);
    assert.equal(files.pidsIn(`${base}/group.checkout/own`), [103]);
    // Version 2 wants all out of the way.
    assert.equal(files.pidsIn(`${base}/rest`), version === 1 ? [100, 101] : [100, 101, 900]);
    assert.equal(files.pidsIn(home), version === 1 ? [900] : []);
    own.arrange(groups, all("checkout", null));
    assert.equal(files.pidsIn(`${base}/group.checkout/own`), [102]);
    assert.ok(files.pidsIn(`${base}/rest`).includes(103));
    own.close();
    assert.equal(files.paths, noTrace);
    assert.equal(files.pidsIn(home), pids);
    own.close();
  });

  tests(`a reload makes, moves and removes cgroups, version ${version}`, () => {
    const { files, tree, all } = setUp(version);
    const own = tree();
    own.open();
    own.arrange(groups, all());
    const changed = configWithGroups(
      "reports = cpu_shares=100",
      "nightly = parent=reports cpu_shares=200",
    ).groups;
    own.arrange(changed, all());
    assert.equal(weights(files), {
      "": unit(4 * 1024),
      "/rest": unit(1024),
      "/group.reports": unit(100),
      "/group.reports/own": unit(1024),
      "/group.reports/group.nightly": unit(200),
      "/group.reports/group.nightly/own": unit(1024),
    });
    assert.equal(files.pidsIn(`${base}/group.reports/own`), [102]);
    assert.ok(files.pidsIn(`${base}/rest`).includes(103), "its group is gone");
    own.close();
    assert.equal(files.paths, noTrace);
  });

  tests(`what a killed predecessor has left is removed, version ${version}`, () => {
    const { files, starts, tree, all } = setUp(version);
    starts.set(6, 60);
    const killed = tree(6, 60);
    killed.open();
    killed.arrange(groups, all());
    // Its id may be another process's by now.
    starts.set(6, 99);
    const own = tree();
    own.open();
    own.arrange(groups, all());
    assert.is(files.paths.some((path) => path.includes("pgweir-6-60")), false);
    assert.equal(files.pidsIn(`${base}/group.checkout/own`), [103]);
    own.close();
    assert.equal(files.paths, noTrace);
    assert.equal(files.pidsIn(home), pids);
  });

  tests(
    `one that divides nothing removes it too, not what a living one has, version ${version}`,
    () => {
      const { files, starts, tree, all } = setUp(version);
      starts.set(6, 60);
      const first = tree(6, 60);
      first.open();
      first.arrange(groups, all());
      const own = tree();
      own.clearAway();
      assert.equal(files.pidsIn(`${home}/pgweir-6-60/group.checkout/own`), [103]);
      starts.delete(6);
      own.clearAway();
      assert.equal(files.paths, noTrace);
      assert.equal(files.pidsIn(home), pids);
    },
  );

  tests(`processes that are started or end meanwhile do no harm, version ${version}`, () => {
    const { files, starts, tree, all, place } = setUp(version);
    let next = 200;
    files.onMove = (pid) => {
      if (pid !== 100 || next > 203) return;
      files.spawn(files.pidsIn(home).includes(100) ? home : `${base}/rest`, next);
      starts.set(next, next++ * 10);
    };
    const own = tree();
    own.open();
    own.arrange(groups, all());
    files.gone.add(103);
    own.arrange(groups, [...all("checkout", "reports"), place(200, "reports")]);
    assert.equal(files.pidsIn(`${base}/group.checkout/own`), [102, 103]);
    files.gone.clear();
    own.close();
    assert.equal(files.paths, noTrace);
  });

  tests(`an id that has come to another process is left where it was, version ${version}`, () => {
    const { files, starts, tree, all } = setUp(version);
    const own = tree();
    own.open();
    const isMoved = () => files.pidsIn(`${base}/group.analytics/group.reports/own`).includes(102);
    starts.set(102, 5555);
    own.arrange(groups, all());
    assert.is(isMoved(), false);
    // At the very moment.
    starts.set(102, 1020);
    files.onMove = (pid) => pid === 102 && starts.set(102, 5555);
    own.arrange(groups, all());
    assert.is(isMoved(), false);
    files.onMove = () => {};
    starts.set(102, 1020);
    own.arrange(groups, all());
    assert.ok(isMoved());
    own.close();
  });

  tests(`without the right it is said what failed, version ${version}`, () => {
    const { files, tree } = setUp(version);
    files.refusal = "EACCES";
    assert.throws(
      () => tree().open(),
      (error: Error) => error.message === `make "/${base}": EACCES`,
    );
    files.refusal = "";
    assert.equal(files.paths, noTrace);
  });
}

tests(
  "two monitors divide one PostgreSQL's CPU side by side in version 1, in version 2 only one",
  () => {
    for (const version of [1, 2] as const) {
      const { files, starts, tree } = setUp(version);
      starts.set(6, 60);
      const first = tree(6, 60);
      first.open();
      const second = tree();
      if (version === 1) second.open();
      else assert.throws(() => second.open(), /process id 6 has them, wanted one monitor/);
      second.close();
      first.close();
      assert.equal(files.paths, noTrace);
    }
  },
);

tests("a group that is nobody's here is no group", () => {
  const { files, tree, place } = setUp(1);
  const own = tree();
  own.open();
  own.arrange(groups as readonly GroupConfig[], [place(102, "nosuch")]);
  assert.equal(files.pidsIn(`${base}/rest`), [102]);
  own.close();
});

tests.run();
