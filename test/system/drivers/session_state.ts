// What a session has beside its data: it lasts as long as the client, and the next client of the same server
// connection sees nothing of it. Not a test.

import { assert } from "../../support/harness.ts";
import type { Ask } from "./conflicts.ts";
import { below, type Side } from "./support.ts";

const LOCKS = 1000;

const leftovers = `SELECT current_setting('search_path') AS path,
  current_setting('work_mem') AS memory,
  current_user AS name,
  to_regclass('pg_temp.own_things')::text AS own,
  (SELECT count(*) FROM pg_prepared_statements WHERE from_sql)::int AS prepared,
  (SELECT count(*) FROM pg_cursors WHERE is_holdable)::int AS cursors,
  (SELECT count(*) FROM pg_listening_channels())::int AS channels,
  (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid())::int AS locks`;

const nothing = {
  path: '"$user", public',
  memory: "4MB",
  name: "postgres",
  own: null,
  prepared: 0,
  cursors: 0,
  channels: 0,
  locks: 0,
};

/** Leaves state of every kind and finds it again and again; all clients use the same names. */
export async function keepState(ask: Ask, tag: string, index: number): Promise<void> {
  assert.equal({ ...(await ask(leftovers))[0] }, nothing);
  const [pid] = await ask("SELECT pg_backend_pid() AS pid");
  for (
    const sql of [
      `SET search_path = schema_${index}, pg_temp`,
      `SET work_mem = '${index + 100}kB'`,
      `CREATE TEMP TABLE own_things AS SELECT '${tag}'::text AS tag`,
      `PREPARE same_for_all (int) AS SELECT '${tag}' AS tag, $1 + ${index} AS n`,
      `DECLARE held CURSOR WITH HOLD FOR SELECT '${tag}' AS tag, n FROM public.numbers`,
      `SELECT pg_advisory_lock(${LOCKS + index})`,
      `LISTEN channel_${index}`,
    ]
  ) await ask(sql);
  for (const n of below(10)) {
    const [row] = await ask(leftovers);
    assert.equal({ ...row }, {
      path: `schema_${index}, pg_temp`,
      memory: `${index + 100}kB`,
      name: "postgres",
      own: "own_things",
      prepared: 1,
      cursors: 1,
      channels: 1,
      locks: 1,
    });
    assert.equal(await ask("SELECT tag FROM own_things"), [{ tag }]);
    assert.equal(await ask(`EXECUTE same_for_all(${n})`), [{ tag, n: n + index }]);
    const fetched = await ask("FETCH 3 FROM held");
    assert.equal(fetched, below(3).map((at) => ({ tag, n: 3 * n + at + 1 })));
    assert.equal(await ask("SELECT pg_backend_pid() AS pid"), [pid]);
  }
}

/** Whether PostgreSQL holds nothing more of the sessions that have ended. */
export async function noLocks(side: Side): Promise<boolean> {
  const locks = await side.postgres.query(
    "SELECT objid FROM pg_locks WHERE locktype = 'advisory' AND objid >= $1",
    [LOCKS],
  );
  return locks.length === 0;
}
