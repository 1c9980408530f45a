// Coordinators on a real nats-server with JetStream.
// limit: 600 s
// load: waits

import { needs } from "../support/needs.ts";
import { coordinatorConformance } from "./coordinator_conformance.ts";

needs("nats-server");

coordinatorConformance("nats");
