// The file systems of cgroups as this host has them: where the cgroup of a process is whose CPU is to be divided, and
// reads and writes there. It decides nothing.

import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import type { CgroupFiles, CpuHome } from "./cpu_tree.ts";
import { treeName } from "./cpu_tree.ts";
import type { Proc } from "./proc.ts";

const mountRoot = "sys/fs/cgroup";

/** `root` is where /sys is; the paths of others are below it. */
export function cgroupFiles(root = "/"): CgroupFiles {
  const at = (path: string) => join(root, path);
  return {
    make: (folder) => mkdirSync(at(folder)),
    remove: (folder) => rmdirSync(at(folder)),
    read(file) {
      try {
        return readFileSync(at(file), "latin1");
      } catch {
        return null;
      }
    },
    write: (file, text) => writeFileSync(at(file), text),
    folders(folder) {
      try {
        return readdirSync(at(folder), { withFileTypes: true })
          .filter((entry) => entry.isDirectory()).map(({ name }) => name);
      } catch {
        return [];
      }
    },
  };
}

/** The cgroup that a process is in, that of a tree of ours left out; a text says why its CPU can't be divided. */
export function cpuHomeOf(proc: Proc, pid: number, root = "/"): CpuHome | string {
  const lines = (proc.text("proc", `${pid}`, "cgroup") ?? "").split("\n").map((line) => {
    const [, controllers = "", path = ""] = /^\d+:([^:]*):(.*)$/.exec(line) ?? [];
    return { controllers, path, isUnified: line.startsWith("0::") };
  });
  const has = (...path: string[]) => existsSync(join(root, ...path));
  /** Of a path that is not of our view of the tree, the root is what we see. */
  const folderOf = (mount: string, path: string) => {
    const steps = path.split("/").filter((step) => step !== "");
    const own = steps.findIndex((step) => treeName.test(step));
    const folder = join(mount, ...(own < 0 ? steps : steps.slice(0, own)));
    return has(folder, "cgroup.procs") ? folder : mount;
  };
  const first = lines.find(({ controllers }) => controllers.split(",").includes("cpu"));
  if (first !== undefined) {
    const mount = [first.controllers, "cpu"].map((name) => join(mountRoot, name))
      .find((mount) => has(mount, "cpu.shares"));
    return mount === undefined
      ? `no "cpu.shares" below "/${mountRoot}/${first.controllers}", wanted cgroups of version 1 there`
      : { folder: folderOf(mount, first.path), version: 1 };
  }
  const unified = lines.find(({ isUnified }) => isUnified);
  if (unified === undefined || !has(mountRoot, "cgroup.controllers")) {
    return `no cgroups at "/${mountRoot}", wanted those of version 1 or 2 with the cpu controller`;
  }
  const folder = folderOf(mountRoot, unified.path);
  const controllers = proc.text(folder, "cgroup.controllers") ?? "";
  return controllers.trim().split(" ").includes("cpu")
    ? { folder, version: 2 }
    : `cgroup "/${folder}" has no cpu controller, wanted Delegate=cpu in the unit of PostgreSQL`;
}

/** The process id of the monitor whose tree of cgroups a process is in; null: it is in none. */
export function monitorOf(proc: Proc, pid: number): number | null {
  const steps = (proc.text("proc", `${pid}`, "cgroup") ?? "").split(/[/\n]/);
  const own = steps.map((step) => treeName.exec(step)?.[1]).find((id) => id !== undefined);
  return own === undefined ? null : Number(own);
}
