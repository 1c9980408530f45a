// The runtime's name and command, this process's name, and what processes use.

import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { assert, suite, until } from "../support/harness.ts";
import {
  bootId,
  processUsage,
  runtimeCommand,
  type RuntimeName,
  runtimeName,
  runtimeVersion,
  setProcessName,
} from "../../shared/sys/mod.ts";

const test = suite("sys: processes");

const selfReport = `
const { Bun, Deno } = globalThis as { Bun?: { version: string }; Deno?: { version: { deno: string } } };
const name: string = Bun ? "bun" : Deno ? "deno" : "node";
console.log(name, Bun?.version ?? Deno?.version.deno, process.argv[2]);
`;

test("runtimeCommand() runs a .ts file with arguments on this and on the other runtime", () => {
  const folder = mkdtempSync(join(tmpdir(), "pgweir-process-"));
  try {
    const script = join(folder, "report.ts");
    writeFileSync(script, selfReport);
    const run = (name?: RuntimeName) => {
      const [program, ...prefix] = runtimeCommand(name);
      return execFileSync(program!, [...prefix, script, "argument"], { encoding: "utf8" }).trim();
    };
    assert.is(run(), `${runtimeName} ${runtimeVersion()} argument`);
    for (const name of ["bun", "deno"] as const) {
      assert.match(run(name), new RegExp(`^${name} [0-9]+\\.[0-9]+\\.[0-9]+.* argument$`));
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("runtimeCommand() looks in PATH for what the package has not, and says when there is none", () => {
  const folder = mkdtempSync(join(tmpdir(), "pgweir-path-"));
  const path = process.env["PATH"];
  try {
    process.env["PATH"] = folder;
    assert.throws(() => runtimeCommand("node"), /^find the runtime "node": neither in ".*" nor/);
    writeFileSync(join(folder, "node"), "#!/bin/sh\n", { mode: 0o755 });
    assert.equal(runtimeCommand("node"), [join(folder, "node")]);
  } finally {
    process.env["PATH"] = path;
    rmSync(folder, { recursive: true });
  }
});

test("setProcessName() is what ps shows, cut to 15 bytes", () => {
  const original = readFileSync("/proc/self/comm", "latin1").trim();
  try {
    setProcessName("pgweir: worker 17");
    assert.is(readFileSync(`/proc/${process.pid}/comm`, "latin1"), "pgweir: worker \n");
  } finally {
    setProcessName(original);
  }
});

test("processUsage() shows CPU time and memory of this process growing", async () => {
  const before = processUsage(process.pid)!;
  assert.ok(before.residentBytes > 1_000_000);
  const ballast = new Uint8Array(64_000_000).fill(1);
  const after = await until("CPU time", () => {
    for (let i = 0; i < 1_000_000; i++) ballast[i % 1000]! += i;
    const usage = processUsage(process.pid)!;
    return usage.cpuSeconds > before.cpuSeconds ? usage : null;
  });
  assert.ok(after.residentBytes > before.residentBytes + 32_000_000);
  assert.is(ballast.length, 64_000_000);
});

test("processUsage() reads names with blanks and parentheses, and is null for no process", async () => {
  const child = spawn("/bin/sh", ["-c", "printf 'a) (b c' > /proc/$$/comm; read line"], {
    stdio: ["pipe", "ignore", "inherit"],
  });
  const closed = new Promise((resolve) => child.on("close", resolve));
  const pid = child.pid!;
  try {
    await until("the name", () => readFileSync(`/proc/${pid}/comm`, "latin1") === "a) (b c\n");
    const usage = processUsage(pid)!;
    assert.ok(usage.cpuSeconds >= 0 && usage.cpuSeconds < 60);
    assert.ok(usage.residentBytes > 100_000);
  } finally {
    child.stdin.end();
    await closed;
  }
  assert.is(processUsage(pid), null);
});

test("bootId() is a UUID, the same in every process", () => {
  assert.match(bootId(), /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/);
  assert.is(
    execFileSync("cat", ["/proc/sys/kernel/random/boot_id"], { encoding: "utf8" }).trim(),
    bootId(),
  );
});

test.run();
