// What follows a reset in the same write: drivers put DISCARD ALL in front of the first command after taking a
// connection from their pool. By then the login's own values hold again, as on a direct connection.

import { assert, suite } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import type { Pgweir } from "../../support/pgweir.ts";
import type { Postgres } from "../../support/postgres.ts";
import { ask, closeAll, login, open, startPair, startPooler } from "../protocol/support.ts";

needs("postgresql");

const test = suite("resets in a pipe");
let postgres: Postgres;
let poolers: Record<string, Pgweir>;

test.before(async () => {
  const pair = await startPair();
  postgres = pair.postgres;
  const session = await startPooler(postgres, {
    settings: { pool_mode: "session", default_pool_size: 1 },
  });
  poolers = { transaction: pair.pooler, session };
});

test.after.each(closeAll);

test.after(async () => {
  for (const pooler of Object.values(poolers)) await pooler.stop();
  await postgres.stop("immediate");
});

const parameters = { application_name: "app1", TimeZone: "Asia/Tokyo" };
const show = [f.Q("SHOW TimeZone"), f.P("", "SHOW application_name"), f.B(), f.E(), f.S()];

for (const mode of ["transaction", "session"]) {
  for (const sql of ["RESET ALL", "DISCARD ALL", "SET TimeZone TO DEFAULT"]) {
    test(`${mode} pooling: the login's values hold right behind ${sql}`, async () => {
      const rows = async (target: Pgweir | Postgres) => {
        const client = await open(target, { ...login, parameters });
        await client.query("SET TimeZone = 'America/Lima'");
        const replies = await ask(client, [f.Q(sql), ...show], 3);
        await client.end();
        return [...replies.matchAll(/D\("(.*?)"\)/g)].map((match) => match[1]);
      };
      assert.equal(await rows(poolers[mode]!), await rows(postgres));
    });
  }
}

test.run();
