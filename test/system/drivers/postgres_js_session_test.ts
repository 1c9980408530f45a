// postgres.js in session mode, one worker and four: all that works in transaction mode, with a server connection for
// each of the driver's, and what only a session has.
// limit: 400 s

import { suite, until } from "../../support/harness.ts";
import { postgresJsSteps, withDrivers } from "./postgres_js_steps.ts";
import { keepState, noLocks } from "./session_state.ts";
import { below, CLIENTS, startSides } from "./support.ts";

const sides = await startSides({ mode: "session" });
const tests = suite("postgres in session mode");

for (const side of sides.all) {
  postgresJsSteps(tests, side);

  tests(`state lasts as long as its session, ${side.name}`, async () => {
    for (const round of ["first", "second"]) {
      await withDrivers(
        side,
        `${round} session`,
        async (sql, tag) => {
          const all = await Promise.all(below(CLIENTS).map(() => sql.reserve()));
          const ask = (index: number) => async (text: string) => [
            ...await all[index]!.unsafe(text),
          ];
          await Promise.all(
            all.map((_, index) => keepState(ask(index), `${tag} ${index}`, index)),
          ).finally(() => all.forEach((one) => one.release()));
        },
        {},
        1,
      );
      await until("the locks of the sessions to be gone", () => noLocks(side));
    }
  });
}

sides.check(tests);
tests.run();
