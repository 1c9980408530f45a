// The regression tests of the built-in types in transaction mode, four clients on two servers, as pg_regress runs them
// side by side: no client gets a byte that is not its own.
// limit: 400 s

import { assert, suite } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { type Difference, report } from "./compare.ts";
import { extendedText, simple, simplePipelined } from "./conversation.ts";
import {
  changesRole,
  REGRESS_SETTINGS,
  regressGroups,
  regressScripts,
  withoutSessionState,
  withOwnTexts,
} from "./scripts.ts";
import { sideBySide } from "./side_by_side.ts";
import { Twins } from "./twins.ts";

needs("postgresql", "postgresql-regress");

const test = suite("regression tests of PostgreSQL side by side");
let twins: Twins;

test.before(async () => {
  twins = await Twins.start({ version: "15", mode: "transaction" });
});

test.after(async () => {
  await twins.stop();
});

for (const conversations of [[simple], [extendedText, simplePipelined]]) {
  const ways = conversations.map(({ name }) => name).join(" and ");
  test(`four clients on two servers get the server's own replies, each its own: ${ways}`, async () => {
    await twins.freshDatabase(REGRESS_SETTINGS);
    const found: Difference[] = [];
    for (const names of regressGroups("test_setup", "create_function_c")) {
      const calm = regressScripts(names).filter((script) => !changesRole(script));
      const scripts = withOwnTexts(calm.map(withoutSessionState));
      found.push(...await sideBySide(twins, scripts, conversations));
    }
    assert.is(report(found), "");
    await twins.nothingHangs();
  });
}

test.run();
