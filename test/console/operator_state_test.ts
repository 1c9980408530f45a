// What commands make of the state of a pooler, and PgBouncer's words for those that can't be carried out.

import { advance, type Command, type OperatorState, untouched } from "../../shared/console/mod.ts";
import { assert, suite } from "../support/harness.ts";

const tests = suite("operator state");

const databases = ["shop", "more"];

/** `pause shop`, `resume`: a command of one word, and a database. */
function commandOf(text: string): Command {
  const [kind, database] = text.split(" ");
  return { kind: kind as "pause", database: database ?? null };
}

/** The state after commands, in short, or the error of the last of them. */
function after(texts: readonly string[], stopping = false): string {
  let state: OperatorState = untouched;
  for (const [at, text] of texts.entries()) {
    const next = advance(state, commandOf(text), {
      stopping,
      hasDatabase: (name) => databases.includes(name),
    });
    if ("code" in next) {
      assert.is(next.code, "08P01");
      assert.is(at, texts.length - 1, `${text}: ${next.message}`);
      return next.message;
    }
    const changed = JSON.stringify({ ...next, revision: 0 }) !==
      JSON.stringify({ ...state, revision: 0 });
    if (changed) assert.ok(next.revision > state.revision, text);
    state = next;
  }
  const { paused, suspended, pausedDatabases, disabledDatabases } = state;
  return [
    paused ? "paused" : "",
    suspended ? "suspended" : "",
    pausedDatabases.length > 0 ? `paused:${pausedDatabases}` : "",
    disabledDatabases.length > 0 ? `disabled:${disabledDatabases}` : "",
  ].filter(Boolean).join(" ");
}

const rows: [string[], string][] = [
  [["pause"], "paused"],
  [["pause", "pause"], "already suspended/paused"],
  [["pause", "resume"], ""],
  [["resume"], "pooler is not paused/suspended"],
  [["suspend"], "suspended"],
  [["suspend", "suspend"], "already suspended/paused"],
  [["suspend", "pause"], "already suspended/paused"],
  [["suspend", "pause shop"], "already suspended/paused"],
  [["suspend", "kill"], "already suspended/paused"],
  [["suspend", "kill shop"], "already suspended/paused"],
  [["suspend", "disable shop"], "suspended disabled:shop"],
  [["suspend", "resume shop"], "database shop is not paused"],
  [["suspend", "resume"], ""],
  [["pause", "suspend"], "already suspended/paused"],
  [["pause shop", "suspend"], "cannot suspend with paused databases"],
  [["pause shop"], "paused:shop"],
  [["pause shop", "pause shop"], "paused:shop"],
  [["pause shop", "pause more", "resume shop"], "paused:more"],
  [["pause shop", "pause"], "paused paused:shop"],
  [["pause shop", "pause", "resume"], "paused:shop"],
  [["resume shop"], "database shop is not paused"],
  [["pause", "resume shop"], "database shop is not paused"],
  [["pause nope"], "no such database: nope"],
  [["resume nope"], "no such database: nope"],
  [["pause pgbouncer"], "cannot pause admin db: pgbouncer"],
  [["kill shop"], "paused:shop"],
  [["kill shop", "resume shop"], ""],
  [["kill"], "paused"],
  [["kill", "kill", "resume"], ""],
  [["kill pgbouncer"], "cannot kill admin db: pgbouncer"],
  [["disable shop"], "disabled:shop"],
  [["disable shop", "enable shop"], ""],
  [["enable shop"], ""],
  [["disable"], "a database is required"],
  [["enable"], "a database is required"],
  [["disable pgbouncer"], "cannot disable admin db: pgbouncer"],
  [["enable pgbouncer"], "cannot enable admin db: pgbouncer"],
  [["enable nope"], "no such database: nope"],
  [["reconnect"], ""],
  [["reconnect shop"], ""],
  [["reconnect nope"], "no such database: nope"],
  [["reconnect pgbouncer"], "cannot reconnect admin db: pgbouncer"],
  [["wait_close"], ""],
  [["wait_close pgbouncer"], "cannot wait in admin db: pgbouncer"],
];

for (const [commands, wanted] of rows) {
  tests(`${commands.join(", ")}: ${wanted || "as before"}`, () => {
    assert.is(after(commands), wanted);
  });
}

tests("nothing is paused while it shuts down", () => {
  assert.is(after(["pause"], true), "pooler is shutting down");
  assert.is(after(["suspend"], true), "pooler is shutting down");
  assert.is(after(["pause shop"], true), "pooler is shutting down");
  assert.is(after(["disable shop"], true), "disabled:shop");
});

tests.run();
