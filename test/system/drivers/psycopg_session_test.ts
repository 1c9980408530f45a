// psycopg in session mode, one worker and four: all that works in transaction mode, with a server connection for each
// client, and what only a session has.
// limit: 400 s

import { suite } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { PSYCOPG_STEPS, pythonSteps } from "./python_steps.ts";
import { startSides } from "./support.ts";

needs("python3-psycopg");

const sides = await startSides({ mode: "session" });
const tests = suite("psycopg in session mode");

// The second session finds the servers of the first.
for (const side of sides.all) {
  pythonSteps(tests, "psycopg", side, [...PSYCOPG_STEPS, "session", "session", "listens"]);
}

sides.check(tests);
tests.run();
