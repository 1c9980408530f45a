// The bus conformance tests against a real nats-server.
// limit: 240 s
// load: waits

import { needs } from "../support/needs.ts";
import { startNatsServer } from "./brokers.ts";
import { busConformance } from "./bus_conformance.ts";

needs("nats-server");

busConformance("nats-server: bus", startNatsServer);
