// The protocol conformance tests against a real nats-server.
// limit: 240 s
// load: waits

import { needs } from "../support/needs.ts";
import { startNatsServer } from "./brokers.ts";
import { protocolConformance } from "./protocol_conformance.ts";

needs("nats-server");

protocolConformance("nats-server: protocol", startNatsServer);
