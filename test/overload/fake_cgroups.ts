// The file systems of cgroups as far as CPU goes, with the rules of their kernels: of version 2 that a cgroup which gives
// a controller to those below it has no processes, that a controller comes from above and cannot be taken away while it is in
// use below; of both that only an empty cgroup can be removed.

import type { CgroupFiles } from "../../services/overload/cpu_tree.ts";

interface Cgroup {
  readonly files: Map<string, string>;
  readonly pids: Set<number>;
}

function failure(code: string): Error {
  return Object.assign(new Error(code), { code });
}

export class FakeCgroups implements CgroupFiles {
  readonly #version: 1 | 2;
  readonly #all = new Map<string, Cgroup>();
  /** Processes that are gone. */
  readonly gone = new Set<number>();
  /** Called before each move, as when a process is started at this moment. */
  onMove: (pid: number) => void = () => {};
  /** Fails each change with this code; "": none. */
  refusal = "";

  /** `home`: the cgroup of a service, with these processes. */
  constructor(version: 1 | 2, home: string, pids: readonly number[]) {
    this.#version = version;
    const parts = home.split("/");
    for (let end = 1; end <= parts.length; end++) {
      this.#all.set(parts.slice(0, end).join("/"), this.#fresh());
      if (version === 2 && end < parts.length) {
        this.#get(parts.slice(0, end).join("/")).files.set("cgroup.subtree_control", "cpu");
      }
    }
    // The root of all has no type.
    this.#get(parts[0] as string).files.delete("cgroup.type");
    for (const pid of pids) this.#get(home).pids.add(pid);
  }

  #fresh(): Cgroup {
    const files = this.#version === 1 ? [["cpu.shares", "1024"]] : [
      ["cgroup.type", "domain"],
      ["cgroup.subtree_control", ""],
      ["cpu.weight", "100"],
    ];
    return { files: new Map(files as [string, string][]), pids: new Set() };
  }

  #get(path: string): Cgroup {
    const cgroup = this.#all.get(path);
    if (cgroup === undefined) throw failure("ENOENT");
    return cgroup;
  }

  #hasCpu(path: string): boolean {
    const above = this.#all.get(path.slice(0, path.lastIndexOf("/")));
    return above === undefined || above.files.get("cgroup.subtree_control") === "cpu";
  }

  get paths(): string[] {
    return [...this.#all.keys()].sort();
  }

  pidsIn(path: string): number[] {
    return [...this.#get(path).pids].sort((a, b) => a - b);
  }

  spawn(path: string, pid: number): void {
    this.#get(path).pids.add(pid);
  }

  make(folder: string): void {
    this.#refuse();
    this.#get(folder.slice(0, folder.lastIndexOf("/")));
    if (this.#all.has(folder)) throw failure("EEXIST");
    this.#all.set(folder, this.#fresh());
  }

  remove(folder: string): void {
    this.#refuse();
    const { pids } = this.#get(folder);
    if (pids.size > 0 || this.folders(folder).length > 0) throw failure("EBUSY");
    this.#all.delete(folder);
  }

  read(file: string): string | null {
    const at = file.lastIndexOf("/");
    const cgroup = this.#all.get(file.slice(0, at));
    const name = file.slice(at + 1);
    if (name === "cgroup.procs") return [...cgroup?.pids ?? []].map((pid) => `${pid}\n`).join("");
    if (name === "cpu.weight" && !this.#hasCpu(file.slice(0, at))) return null;
    return cgroup?.files.get(name) ?? null;
  }

  write(file: string, text: string): void {
    this.#refuse();
    const at = file.lastIndexOf("/");
    const folder = file.slice(0, at);
    const name = file.slice(at + 1);
    const cgroup = this.#get(folder);
    const isRoot = !cgroup.files.has("cgroup.type");
    const controls = cgroup.files.get("cgroup.subtree_control") === "cpu";
    if (name === "cgroup.procs") {
      const pid = Number(text);
      this.onMove(pid);
      if (this.gone.has(pid)) throw failure("ESRCH");
      if (this.#version === 2 && controls && !isRoot) throw failure("EBUSY");
      for (const { pids } of this.#all.values()) pids.delete(pid);
      cgroup.pids.add(pid);
    } else if (name === "cgroup.subtree_control") {
      if (this.#version === 1) throw failure("ENOENT");
      if (text === "+cpu") {
        if (!this.#hasCpu(folder)) throw failure("ENOENT");
        if (cgroup.pids.size > 0 && !isRoot) throw failure("EBUSY");
      } else if (
        this.folders(folder).some((name) =>
          this.#get(`${folder}/${name}`).files.get("cgroup.subtree_control") === "cpu"
        )
      ) throw failure("EBUSY");
      cgroup.files.set(name, text === "+cpu" ? "cpu" : "");
    } else {
      if (!cgroup.files.has(name)) throw failure("EACCES");
      if (name === "cpu.weight" && !this.#hasCpu(folder)) throw failure("EACCES");
      cgroup.files.set(name, text);
    }
  }

  folders(folder: string): string[] {
    return this.paths.filter((path) =>
      path.startsWith(`${folder}/`) && !path.slice(folder.length + 1).includes("/")
    ).map((path) => path.slice(folder.length + 1));
  }

  #refuse(): void {
    if (this.refusal !== "") throw failure(this.refusal);
  }
}
