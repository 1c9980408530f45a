// Coordinators on the embedded bus, whose store is served by this process as a supervisor does.
// limit: 600 s
// load: waits

import { coordinatorConformance } from "./coordinator_conformance.ts";

coordinatorConformance("embedded");
