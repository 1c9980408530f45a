// Cancels between workers over the embedded bus; the cases are in worker_cancels.ts.
// limit: 400 s

import { startEmbedded } from "../../bus/brokers.ts";
import { needs } from "../../support/needs.ts";
import { runWorkerCancels } from "./worker_cancels.ts";

needs("postgresql");

await runWorkerCancels("embedded bus", startEmbedded);
