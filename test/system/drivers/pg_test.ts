// node-postgres in transaction mode, one worker and four: 20 clients on two servers.
// limit: 400 s

import { suite } from "../../support/harness.ts";
import { pgSteps } from "./pg_steps.ts";
import { startSides } from "./support.ts";

const sides = await startSides();
const tests = suite("pg");

for (const side of sides.all) pgSteps(tests, side, 25);

sides.check(tests);
tests.run();
