// The tests of a part of PostgreSQL's regression tests. Not a test file: each of those runs a part. Nobody asks here
// whether a reply is the one that the regression tests expect: PostgreSQL itself says what is right.

import { assert, suite } from "../../support/harness.ts";
import type { PostgresVersion } from "../../support/postgres.ts";
import type { Conversation } from "./conversation.ts";
import {
  changesRole,
  REGRESS_SETTINGS,
  regressNames,
  regressScripts,
  type Script,
  withoutSessionState,
  withOwnTexts,
} from "./scripts.ts";
import { Twins } from "./twins.ts";

export interface Part {
  readonly version: PostgresVersion;
  readonly mode: "session" | "transaction";
  /** The first of its tests in the schedule, and the one that is not of it any more. */
  readonly from: string;
  readonly before: string | null;
  readonly conversations: readonly Conversation[];
}

// What most of the tests build on.
const FIRST = ["test_setup", "create_misc", "create_index"];

function scriptsOf(part: Part): Script[] {
  const own = regressNames(part.from, part.before);
  const first = regressScripts(FIRST.filter((name) => !own.includes(name)));
  const rest = regressScripts(own);
  if (part.mode === "session") return first.concat(rest);
  const calm = rest.filter((script) => FIRST.includes(script.name) || !changesRole(script));
  return withOwnTexts(first.concat(calm).map(withoutSessionState));
}

export function runRegressTests(part: Part): void {
  const test = suite(
    `regression tests of PostgreSQL ${part.version} in ${part.mode} mode, from ${part.from}`,
  );
  let twins: Twins;

  test.before(async () => {
    twins = await Twins.start({ version: part.version, mode: part.mode });
  });

  test.after(async () => {
    await twins.stop();
  });

  for (const conversation of part.conversations) {
    test(`every reply is the server's own: ${conversation.name}`, async () => {
      const scripts = scriptsOf(part);
      assert.ok(scripts.flatMap((script) => script.statements).length > 1000);
      await twins.freshDatabase(REGRESS_SETTINGS);
      await twins.same(conversation, scripts);
      await twins.nothingHangs();
    });
  }

  test.run();
}
