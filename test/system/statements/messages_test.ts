// Conversations message by message, in both modes and on both versions of PostgreSQL: function calls, portals, COPY,
// large and wide rows, other encodings, and what the server refuses. Every byte is what the server itself says.
// limit: 240 s

import { assert, suite } from "../../support/harness.ts";
import { postgresFolders } from "../../support/needs.ts";
import type { PostgresVersion } from "../../support/postgres.ts";
import { type Difference, report } from "./compare.ts";
import { lastWords, messageScripts } from "./messages.ts";
import { DATABASE, Twins } from "./twins.ts";

const test = suite("messages");

for (const version of ["15", "18"] as const satisfies readonly PostgresVersion[]) {
  if (!postgresFolders().has(version)) continue;
  for (const mode of ["session", "transaction"] as const) {
    test(`every reply is the server's own: ${mode} mode, PostgreSQL ${version}`, async () => {
      const twins = await Twins.start({ version, mode });
      try {
        await twins.freshDatabase();
        const found: Difference[] = [];
        for (const { name, exchanges, parameters } of messageScripts) {
          const as = { user: "postgres", database: DATABASE, ...(parameters && { parameters }) };
          for (const pipelined of [false, true]) {
            found.push(...await twins.compare(name, exchanges, { pipelined, as }));
          }
        }
        for (const { name, exchanges } of lastWords) {
          found.push(...await twins.compare(name, exchanges));
        }
        assert.is(report(found), "");
        await twins.nothingHangs();
      } finally {
        await twins.stop();
      }
    });
  }
}

test.run();
