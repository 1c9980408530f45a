// node-postgres in session mode, one worker and four: all that works in transaction mode, with a server connection
// for each client, and what only a session has.
// limit: 400 s

import { suite, until } from "../../support/harness.ts";
import { pgSteps, withClients } from "./pg_steps.ts";
import { keepState, noLocks } from "./session_state.ts";
import { startSides } from "./support.ts";

const sides = await startSides({ mode: "session" });
const tests = suite("pg in session mode");

for (const side of sides.all) {
  pgSteps(tests, side, 10);

  tests(`state lasts as long as its session, ${side.name}`, async () => {
    for (const round of ["first", "second"]) {
      await withClients(side, `${round} session/${side.workers}`, async (client, tag, index) => {
        await keepState(async (sql) => (await client.query(sql)).rows, tag, index);
      });
      await until("the locks of the sessions to be gone", () => noLocks(side));
    }
  });
}

sides.check(tests);
tests.run();
