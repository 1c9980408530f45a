// One limit for several workers over the embedded bus; the faults are in exactness.ts.
// limit: 400 s
// load: waits

import { needs } from "../../support/needs.ts";
import { runExactness } from "./exactness.ts";

needs("postgresql");

await runExactness("embedded bus", null);
