// What all worker incarnations of one ledger have in common: the accounts, and who is to be told or saved.

import type { Components } from "./components.ts";
import type { WorkerCharges } from "./worker_charges.ts";

export interface Books {
  readonly epoch: number;
  components: Components;
  /** with something to be told */
  readonly due: Set<WorkerCharges>;
  /** charged other than was handed out for saving last */
  readonly unsaved: Set<WorkerCharges>;
  /** of the last grant; one count for all, so that it rises even if an incarnation was forgotten */
  seq: number;
  liveWorkers: number;
}
