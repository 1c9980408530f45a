// postgres.js in transaction mode, one worker and four: 20 connections on two servers.
// limit: 400 s

import { suite } from "../../support/harness.ts";
import { postgresJsSteps } from "./postgres_js_steps.ts";
import { startSides } from "./support.ts";

const sides = await startSides();
const tests = suite("postgres");

for (const side of sides.all) postgresJsSteps(tests, side);

sides.check(tests);
tests.run();
