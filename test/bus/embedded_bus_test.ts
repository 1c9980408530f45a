// The bus conformance tests against the embedded bus.
// limit: 240 s
// load: waits

import { startEmbedded } from "./brokers.ts";
import { busConformance } from "./bus_conformance.ts";

busConformance("embedded bus: bus", startEmbedded);
