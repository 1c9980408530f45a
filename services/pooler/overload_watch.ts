// The control thread's ear for overload monitors: those of its own host's workers and those of databases. It tells the
// data plane what is news; how long that holds is the plane's affair, so that a bus that is lost sheds nothing for long.

import { type Bus, type OverloadDecision, validMs } from "../../shared/bus/mod.ts";
import type { ToPlane } from "./messages.ts";
import { Newest } from "./newest.ts";

/** What else is said comes each few seconds. */
const rememberMs = 60_000;

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
      bus.subscribe(
        subjects.overloadHost(this.#supervisor),
        (decision) => this.#onDecision("", decision),
      );
    }
    bus.subscribe(subjects.allOverloadDatabases, (decision) => {
      this.#onDecision(`${decision.database}\0${decision.host}`, decision);
    });
    bus.subscribe(subjects.groupMemory(workerId), (said) => {
      if (!this.#memory.take(said.monitor, said, performance.now(), rememberMs)) return;
      this.#tell({ type: "groupMemory", said });
    });
    bus.subscribe(subjects.allOverloadWarnings, (warnings) => {
      if (!this.#warnings.take(warnings.monitor, warnings, performance.now(), rememberMs)) return;
      this.#tell({ type: "warnings", warnings });
    });
  }

  #onDecision(about: string, decision: OverloadDecision): void {
    if (!this.#decisions.take(about, decision, performance.now(), validMs(decision))) return;
    this.#tell({ type: "overload", decision });
  }
}
