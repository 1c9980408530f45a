// Cancels between workers over a real nats-server; the cases are in worker_cancels.ts.
// limit: 400 s

import { startNatsServer } from "../../bus/brokers.ts";
import { needs } from "../../support/needs.ts";
import { runWorkerCancels } from "./worker_cancels.ts";

needs("postgresql", "nats-server");

await runWorkerCancels("nats-server", startNatsServer);
