// Service files of PAM in a folder of their own. What they ask is a script: pam_exec hands it the password.

import { chmodSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pamProblem } from "../../shared/sys/mod.ts";
import { tempDir } from "./temp.ts";

/** Ends the test file as skipped where PAM is missing, or too old to be given a folder. */
export function needsPam(): void {
  const problem = pamProblem(true);
  if (problem === null) return;
  console.log(`SKIP ${problem}`);
  process.exit(0);
}

export class PamServices {
  readonly folder: string = tempDir("pam");

  constructor() {
    // The service is also looked for under this name, and nowhere else then.
    this.add("other", "auth required pam_deny.so\naccount required pam_deny.so");
    // The folder may be looked at by a worker that is another user.
    chmodSync(this.folder, 0o755);
  }

  add(name: string, lines: string): void {
    writeFileSync(join(this.folder, name), `${lines}\n`);
  }

  /** A service that runs a shell script; `$given` is the password, `$folder` this folder. */
  addScript(name: string, script: string): void {
    const path = join(this.folder, `${name}.sh`);
    writeFileSync(path, `#!/bin/sh\nfolder=${this.folder}\nread -r given\n${script}\n`);
    chmodSync(path, 0o755);
    this.add(
      name,
      `auth required pam_exec.so expose_authtok quiet ${path}\naccount required pam_permit.so`,
    );
  }
}
