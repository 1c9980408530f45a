// psycopg in transaction mode, one worker and four: 20 clients on two servers.
// limit: 400 s

import { suite } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { PSYCOPG_STEPS, pythonSteps } from "./python_steps.ts";
import { startSides } from "./support.ts";

needs("python3-psycopg");

const sides = await startSides();
const tests = suite("psycopg");

for (const side of sides.all) pythonSteps(tests, "psycopg", side, PSYCOPG_STEPS);

sides.check(tests);
tests.run();
