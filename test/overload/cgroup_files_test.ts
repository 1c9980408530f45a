// Where the cgroup of a PostgreSQL is found, from folders made as kernels make them; and the memory that is a process's own.

import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { cpuHomeOf, monitorOf } from "../../services/overload/cgroup_files.ts";
import type { CpuHome } from "../../services/overload/cpu_tree.ts";
import { Proc } from "../../services/overload/proc.ts";
import { assert, suite } from "../support/harness.ts";
import { tempDir } from "../support/temp.ts";

const tests = suite("cgroup files");

function rootOf(files: Record<string, string>): string {
  const root = tempDir("cgroups");
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  }
  return root;
}

const service = "system.slice/postgresql.service";

tests("cpuHomeOf() finds the cgroup of either version, that of a tree of ours left out", () => {
  const first = {
    "sys/fs/cgroup/cpu,cpuacct/cpu.shares": "1024\n",
    [`sys/fs/cgroup/cpu,cpuacct/${service}/cgroup.procs`]: "",
  };
  const second = {
    "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
    [`sys/fs/cgroup/${service}/cgroup.procs`]: "",
    [`sys/fs/cgroup/${service}/cgroup.controllers`]: "cpuset cpu memory\n",
  };
  const lone = { "sys/fs/cgroup/cpu/cpu.shares": "1024\n", "sys/fs/cgroup/cpu/cgroup.procs": "" };
  const rows: [Record<string, string>, string, CpuHome | RegExp][] = [
    [first, `4:cpu,cpuacct:/${service}\n0::/\n`, {
      folder: `sys/fs/cgroup/cpu,cpuacct/${service}`,
      version: 1,
    }],
    [first, `4:cpu,cpuacct:/${service}/pgweir-7-70/group.a/own\n`, {
      folder: `sys/fs/cgroup/cpu,cpuacct/${service}`,
      version: 1,
    }],
    [lone, "1:cpu:/\n0::/\n", { folder: "sys/fs/cgroup/cpu", version: 1 }],
    // Of another namespace.
    [lone, "1:cpu:/docker/abc\n", { folder: "sys/fs/cgroup/cpu", version: 1 }],
    [second, `0::/${service}/pgweir-7-70/rest\n`, {
      folder: `sys/fs/cgroup/${service}`,
      version: 2,
    }],
    [
      { ...second, [`sys/fs/cgroup/${service}/cgroup.controllers`]: "memory pids\n" },
      `0::/${service}\n`,
      /has no cpu controller, wanted Delegate=cpu in the unit of PostgreSQL/,
    ],
    [{}, "1:cpu:/\n", /no "cpu.shares" below/],
    [{}, "0::/\n", /no cgroups at "\/sys\/fs\/cgroup", wanted those of version 1 or 2/],
    [{}, "", /no cgroups/],
  ];
  for (const [files, text, wanted] of rows) {
    const root = rootOf({ ...files, "proc/7/cgroup": text });
    const found = cpuHomeOf(new Proc(root), 7, root);
    if (wanted instanceof RegExp) assert.match(found as string, wanted);
    else assert.equal(found, wanted);
  }
});

tests("monitorOf() is the monitor that has moved a process", () => {
  const rows: [string, number | null][] = [
    [`4:cpu,cpuacct:/${service}\n0::/\n`, null],
    [`4:cpu,cpuacct:/${service}/pgweir-70-7/group.a/own\n0::/\n`, 70],
    [`0::/${service}/pgweir-70-7/rest\n`, 70],
    ["0::/pgweir-70-7.service\n", null],
    ["", null],
  ];
  for (const [text, wanted] of rows) {
    assert.is(monitorOf(new Proc(rootOf({ "proc/7/cgroup": text })), 7), wanted);
  }
});

tests("privateKB() is what is a process's own, or why it is not known", () => {
  const rollup = "55d0-7ffd ---p 0 00:00 0 [rollup]\nRss:  900 kB\nShared_Clean:  500 kB\n" +
    "Private_Clean:     100 kB\nPrivate_Dirty:     250 kB\n";
  const proc = new Proc(rootOf({ "proc/7/smaps_rollup": rollup, "proc/8/smaps_rollup": "" }));
  assert.is(proc.privateKB(7), 350);
  assert.is(proc.privateKB(8), "EIO");
  assert.is(proc.privateKB(9), "ENOENT");
});

tests.run();
