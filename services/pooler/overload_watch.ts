// The control thread's ear for overload monitors: those of its own host's workers and those of databases. It tells the
// data plane what is news; how long that holds is the plane's affair, so that a bus that is lost sheds nothing for long.

import type { Bus } from "../../shared/bus/mod.ts";
import type { ToPlane } from "./messages.ts";
import { Newest } from "./newest.ts";

export class OverloadWatch {
  readonly #supervisor: string;
  readonly #tell: (message: ToPlane) => void;
  readonly #decisions = new Newest();
  readonly #warnings = new Newest();
  readonly #memory = new Newest();

  /** `supervisor`: whose workers' monitor is meant; "" = none. */
  constructor(supervisor: string, tell: (message: ToPlane) => void) {
    this.#supervisor = supervisor;
    this.#tell = tell;
  }

  join(bus: Bus, workerId: number): void {
    const { subjects } = bus;
    if (this.#supervisor !== "") {
      bus.subscribe(subjects.overloadHost(this.#supervisor), (decision) => {
        if (!this.#decisions.take("", decision, performance.now())) return;
        this.#tell({ type: "overload", decision });
      });
    }
    bus.subscribe(subjects.allOverloadDatabases, (decision) => {
      const about = `${decision.database}\0${decision.host}`;
      if (!this.#decisions.take(about, decision, performance.now())) return;
      this.#tell({ type: "overload", decision });
    });
    bus.subscribe(subjects.groupMemory(workerId), (said) => {
      if (!this.#memory.take(said.monitor, said, performance.now())) return;
      this.#tell({ type: "groupMemory", said });
    });
    bus.subscribe(subjects.allOverloadWarnings, (warnings) => {
      if (!this.#warnings.take(warnings.monitor, warnings, performance.now())) return;
      this.#tell({ type: "warnings", warnings });
    });
  }
}
