// asyncpg in transaction mode with 20 clients on two servers, and what its pools and listeners do in session mode; one
// worker and four.
// limit: 400 s

import { suite } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { ASYNCPG_STEPS, pythonSteps } from "./python_steps.ts";
import { IN_SESSION, startSides } from "./support.ts";

needs("python3-asyncpg");

const sides = await startSides();
const tests = suite("asyncpg");

for (const side of sides.all) {
  pythonSteps(tests, "asyncpg", side, ASYNCPG_STEPS);
  const inSession = { ...side, database: IN_SESSION, name: `${side.name} in session mode` };
  pythonSteps(tests, "asyncpg", inSession, ["transactions", "cancels", "pools", "listens"]);
}

sides.check(tests);
tests.run();
