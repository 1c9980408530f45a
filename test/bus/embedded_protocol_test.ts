// The protocol conformance tests against the embedded bus.
// limit: 240 s
// load: waits

import { startEmbedded } from "./brokers.ts";
import { protocolConformance } from "./protocol_conformance.ts";

protocolConformance("embedded bus: protocol", startEmbedded);
