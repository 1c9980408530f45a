// One limit for several workers over a real nats-server; the faults are in exactness.ts.
// limit: 400 s
// load: waits

import { startNats } from "../../support/nats.ts";
import { needs } from "../../support/needs.ts";
import { runExactness } from "./exactness.ts";

needs("postgresql", "nats-server");

await runExactness("nats-server", await startNats({ jetstream: true }));
