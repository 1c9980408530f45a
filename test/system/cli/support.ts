// The command line as an operator uses it: pgweir with a file in a folder of its own, in the foreground.

import { writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { ManagedProcess, type ProcessEnd } from "../../support/managed_process.ts";
import { tempDir } from "../../support/temp.ts";
import { runtimeCommand } from "../../../shared/sys/mod.ts";

const cli = resolve(import.meta.dirname!, "../../../services/cli.ts");

export interface Run extends ProcessEnd {
  readonly stdout: string;
  readonly stderr: string;
}

export class Folder {
  readonly path = tempDir("cli");

  write(name: string, text: string): string {
    const path = join(this.path, name);
    writeFileSync(path, text);
    return path;
  }

  launch(...words: string[]): Promise<ManagedProcess> {
    return ManagedProcess.launch({ command: [...runtimeCommand(), cli, ...words], cwd: this.path });
  }

  /** Waits for the end. */
  async run(...words: string[]): Promise<Run> {
    const process = await this.launch(...words);
    const end = await process.ended(30_000);
    return { ...end, stdout: process.stdout(), stderr: process.stderr() };
  }
}
