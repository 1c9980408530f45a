// The tests of our own scripts in transaction mode, for one version of PostgreSQL. Not a test file: one runs it per
// version. Only scripts that need no session are run. A statement's text is made its own where statements have names:
// equal texts share a prepared statement, which keeps what its first Parse found when definitions change.

import { assert, seededRandom, suite } from "../../support/harness.ts";
import type { PostgresVersion } from "../../support/postgres.ts";
import { report } from "./compare.ts";
import {
  type Conversation,
  extendedBinary,
  extendedCycles,
  extendedPipelined,
  extendedText,
  simple,
  simplePipelined,
} from "./conversation.ts";
import { ownScripts, type Script, withOwnTexts } from "./scripts.ts";
import { sideBySide } from "./side_by_side.ts";
import { Twins } from "./twins.ts";

const ONE_CLIENT: readonly Conversation[] = [
  simple,
  extendedText,
  extendedBinary,
  extendedPipelined,
  extendedCycles,
];
const SIDE_BY_SIDE: readonly (readonly Conversation[])[] = [
  [simple],
  [extendedText],
  [simple, extendedText, simplePipelined, extendedPipelined],
];
const SEED = 20260;

function scripts(): Script[] {
  return withOwnTexts(ownScripts().filter((script) => !script.needsSession));
}

export function runTransactionModeTests(version: PostgresVersion): void {
  const test = suite(`statements in transaction mode, PostgreSQL ${version}`);
  let twins: Twins;

  test.before(async () => {
    twins = await Twins.start({ version, mode: "transaction" });
  });

  test.after(async () => {
    await twins.stop();
  });

  for (const conversation of ONE_CLIENT) {
    test(`one client gets the server's own replies: ${conversation.name}`, async () => {
      await twins.freshDatabase();
      await twins.same(conversation, scripts());
      await twins.nothingHangs();
    });
  }

  test("four clients on two servers get the server's own replies, each its own", async () => {
    const random = seededRandom(SEED);
    for (const conversations of SIDE_BY_SIDE) {
      await twins.freshDatabase();
      const shuffled = scripts().map((script) => ({ script, place: random() }))
        .sort((a, b) => a.place - b.place).map(({ script }) => script);
      assert.is(report(await sideBySide(twins, shuffled, conversations)), "");
    }
    await twins.nothingHangs();
  });

  test.run();
}
