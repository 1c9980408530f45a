// The tests of our own scripts in session mode, for one version of PostgreSQL. Not a test file: one runs it per version.

import { assert, suite } from "../../support/harness.ts";
import type { PostgresVersion } from "../../support/postgres.ts";
import {
  type Conversation,
  extendedBinary,
  extendedCycles,
  extendedPipelined,
  extendedText,
  simple,
  simplePipelined,
} from "./conversation.ts";
import { ownScripts } from "./scripts.ts";
import { Twins } from "./twins.ts";

const CONVERSATIONS: readonly Conversation[] = [
  simple,
  extendedText,
  extendedBinary,
  simplePipelined,
  extendedPipelined,
  extendedCycles,
];

export function runSessionModeTests(version: PostgresVersion): void {
  const test = suite(`statements in session mode, PostgreSQL ${version}`);
  let twins: Twins;

  test.before(async () => {
    twins = await Twins.start({ version, mode: "session" });
  });

  test.after(async () => {
    await twins.stop();
  });

  test("there are several hundred statements", () => {
    const statements = ownScripts().flatMap((script) => script.statements);
    assert.ok(statements.length > 1000, `${statements.length}`);
  });

  for (const conversation of CONVERSATIONS) {
    test(`every reply is the server's own: ${conversation.name}`, async () => {
      await twins.freshDatabase();
      await twins.same(conversation, ownScripts());
      await twins.nothingHangs();
    });
  }

  test.run();
}
