// What is read of /proc and of control groups: from folders made as kernels make them, and from this machine.

import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import process from "node:process";
import { Proc } from "../../services/overload/proc.ts";
import { assert, suite, until } from "../support/harness.ts";
import { tempDir } from "../support/temp.ts";

const tests = suite("proc");

function procOf(files: Record<string, string>): Proc {
  const root = tempDir("proc");
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  }
  return new Proc(root);
}

const meminfo = "MemTotal:  1000 kB\nMemFree: 100 kB\nMemAvailable:  400 kB\n";
const gigabyte = 2 ** 30;
const near = (actual: number | null | undefined, wanted: number) =>
  assert.ok(Math.abs((actual ?? NaN) - wanted) < 1e-9, `${actual} is not ${wanted}`);

tests("memoryUse() is that of the host without a limit", () => {
  near(procOf({ "proc/meminfo": meminfo }).memoryUse(7), 0.6);
  assert.is(procOf({}).memoryUse(7), null);
  const unlimited = procOf({
    "proc/meminfo": meminfo,
    "proc/7/cgroup": "0::/app\n",
    "sys/fs/cgroup/app/memory.max": "max\n",
    "sys/fs/cgroup/app/memory.current": `${gigabyte}\n`,
  });
  near(unlimited.memoryUse(7), 0.6);
});

tests("memoryUse() takes the group that is nearest to its limit, version 2", () => {
  const proc = procOf({
    "proc/meminfo": meminfo,
    "proc/7/cgroup": "0::/slice/app\n",
    "sys/fs/cgroup/slice/app/memory.max": `${4 * gigabyte}\n`,
    "sys/fs/cgroup/slice/app/memory.current": `${gigabyte}\n`,
    "sys/fs/cgroup/slice/memory.max": `${2 * gigabyte}\n`,
    "sys/fs/cgroup/slice/memory.current": `${2 * gigabyte}\n`,
    // Half a gigabyte of files that nobody used lately.
    "sys/fs/cgroup/slice/memory.stat": `anon 1\ninactive_file ${gigabyte / 2}\n`,
  });
  near(proc.memoryUse(7), 0.75);
});

tests("memoryUse() reads version 1, also where the path is another namespace's", () => {
  const proc = procOf({
    "proc/meminfo": meminfo,
    "proc/7/cgroup": "9:name=systemd:/x\n4:memory:/docker/abc\n1:cpu,cpuacct:/docker/abc\n0::/\n",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": `${gigabyte}\n`,
    "sys/fs/cgroup/memory/memory.usage_in_bytes": `${0.9 * gigabyte}\n`,
    "sys/fs/cgroup/memory/memory.stat": "total_inactive_file 0\n",
  });
  near(proc.memoryUse(7), 0.9);
  const unlimited = procOf({
    "proc/meminfo": meminfo,
    "proc/7/cgroup": "4:memory:/\n",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
    "sys/fs/cgroup/memory/memory.usage_in_bytes": "1\n",
  });
  near(unlimited.memoryUse(7), 0.6);
});

tests("groupCpu() tells quotas of both versions and nothing else", () => {
  const two = procOf({
    "proc/7/cgroup": "0::/app\n",
    "sys/fs/cgroup/app/cpu.max": "150000 100000\n",
    "sys/fs/cgroup/app/cpu.stat": "usage_usec 5000\nuser_usec 1\n",
    "sys/fs/cgroup/cpu.max": "max 100000\n",
    "sys/fs/cgroup/cpu.stat": "usage_usec 9000\n",
  });
  assert.equal(two.groupCpu(7), [{ usedUs: 5000, cpus: 1.5 }]);
  const one = procOf({
    "proc/7/cgroup": "1:cpu,cpuacct:/app\n",
    "sys/fs/cgroup/cpu/app/cpu.cfs_quota_us": "50000\n",
    "sys/fs/cgroup/cpu/app/cpu.cfs_period_us": "100000\n",
    "sys/fs/cgroup/cpuacct/app/cpuacct.usage": "7000000\n",
    "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
    "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
    "sys/fs/cgroup/cpuacct/cpuacct.usage": "9000000\n",
  });
  assert.equal(one.groupCpu(7), [{ usedUs: 7000, cpus: 0.5 }]);
});

tests("host counters: CPU without idle and iowait, pressure, children", () => {
  const proc = procOf({
    "proc/stat": "cpu  10 1 9 70 5 1 2 2 100 100\ncpu0 1 1 1 1\n",
    "proc/pressure/cpu": "some avg10=1.0 avg60=1.0 avg300=1.0 total=777\nfull avg10=0 total=1\n",
    "proc/5/task/5/children": "6 7 ",
    "proc/5/stat": stat(5, "postgres", "S", 1),
    "proc/6/stat": stat(6, "a) R 9 (b", "S", 5),
    "proc/8/stat": stat(8, "gone", "Z", 5),
  });
  assert.equal(proc.cpuTotals(), { used: 25, total: 100 });
  assert.is(proc.cpuPressureUs(), 777);
  assert.equal(proc.childrenOf(5), [6, 7]);
  assert.equal(proc.entry(6), { pid: 6, parent: 5, name: "a) R 9 (b", startedMs: 42_000 });
  assert.is(proc.entry(8), null);
  const bare = procOf({
    "proc/5/stat": stat(5, "postgres", "S", 1),
    "proc/6/stat": stat(6, "postgres", "S", 5),
    "proc/8/stat": stat(8, "gone", "Z", 5),
  });
  assert.equal(bare.childrenOf(5), [6]);
  assert.equal([bare.cpuTotals(), bare.cpuPressureUs(), bare.countsWait], [null, null, false]);
});

/** A line of /proc/<pid>/stat of a process that was started 42 s after the boot. */
function stat(pid: number, name: string, state: string, parent: number): string {
  return `${pid} (${name}) ${state} ${parent} ${"0 ".repeat(17)}4200 0 0\n`;
}

tests("this process is seen with its threads, its age and its work", async () => {
  const proc = new Proc();
  const { pid } = process;
  const before = proc.counters([pid, 2 ** 30]);
  assert.equal([...before.keys()], [pid]);
  const busyNs = (counters: typeof before) =>
    [...counters.get(pid)?.values() ?? []].reduce((sum, thread) => sum + thread.busyNs, 0);
  const works = () => {
    const end = performance.now() + 10;
    while (performance.now() < end);
    return busyNs(proc.counters([pid])) > busyNs(before);
  };
  await until("its work", works);
  const ageMs = proc.ageMs(pid);
  assert.ok(ageMs > 0 && ageMs < 600_000, `${ageMs}`);
  assert.ok(proc.ageMs(1) >= ageMs);
  assert.is(proc.ageMs(2 ** 30), Infinity);
  const memory = proc.memoryUse(pid);
  assert.ok(memory !== null && memory > 0 && memory <= 1);
  assert.ok(proc.cpuTotals() !== null && proc.countsWait);
});

tests.run();
