// Values of every type as parameters and results, in text and in binary, in both modes. And locks that another session
// holds. Every byte is what the server itself says.
// limit: 360 s

import { concatBytes, type Message, parseDataRow } from "../../../shared/wire/mod.ts";
import { assert, suite } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import type { Postgres } from "../../support/postgres.ts";
import { RawClient } from "../../support/raw_client.ts";
import { report } from "./compare.ts";
import type { Exchange } from "./conversation.ts";
import { DATABASE, Twins } from "./twins.ts";
import { values, valueTypes } from "./values.ts";

needs("postgresql");

const test = suite("values and locks");
const login = { user: "postgres", database: DATABASE };
const MODES = ["session", "transaction"] as const;
const twins = new Map<string, Twins>();

test.before(async () => {
  for (const mode of MODES) {
    const pair = await Twins.start({ version: "15", mode });
    twins.set(mode, pair);
    await pair.freshDatabase();
  }
});

test.after(async () => {
  for (const pair of twins.values()) await pair.stop();
});

function exchange(sql: string, parts: readonly Uint8Array[], ready = 1): Exchange {
  return { line: 0, sql, bytes: concatBytes(...parts), ready };
}

function firstValue(replies: readonly Message[]): Uint8Array {
  const row = replies.find((reply) => reply.type === "D".charCodeAt(0));
  const value = row && parseDataRow(row.body)?.[0];
  if (!value) throw new Error("read a value: none came");
  return value;
}

/** Each value's binary form, as the server without a pooler gives it. */
async function binaryValues(server: Postgres): Promise<Uint8Array[]> {
  const client = await RawClient.login(server, login);
  const found: Uint8Array[] = [];
  for (const [type, ...texts] of values) {
    for (const text of texts) {
      client.send(f.P("", `SELECT $1::${type}`), f.B("", "", [text], [1]), f.E(), f.S());
      found.push(firstValue(await client.messagesUntil("Z")));
    }
  }
  await client.end();
  return found;
}

for (const mode of MODES) {
  test(`a value of any type goes both ways in text and in binary: ${mode} mode`, async () => {
    const pair = twins.get(mode)!;
    await pair.onBoth(async (server) => void await server.query(valueTypes, [], DATABASE));
    const binary = await binaryValues(pair.direct);
    const exchanges: Exchange[] = [];
    let at = 0;
    for (const [type, ...texts] of values) {
      const sql = `SELECT $1::${type}, ARRAY[$1]::text, $2::text`;
      exchanges.push(exchange(`prepare ${type}`, [f.P(type, sql), f.D("S", type), f.S()]));
      for (const text of texts) {
        const bytes = binary[at++]!;
        for (const value of [text, bytes, null]) {
          for (const formats of [[], [1], [0, 1, 0]] as const) {
            const parts = [f.B("", type, [value, "x"], formats), f.D(), f.E(), f.S()];
            exchanges.push(exchange(`${type} ${text.slice(0, 50)}`, parts));
          }
        }
        const cut = f.B("", type, [bytes.subarray(1), "x"]);
        exchanges.push(exchange(`${type} ${text.slice(0, 50)}, cut`, [cut, f.E(), f.S()]));
      }
    }
    assert.ok(exchanges.length > 1000);
    for (const pipelined of [false, true]) {
      assert.is(report(await pair.compare("values", exchanges, { pipelined })), "");
    }
    await pair.nothingHangs();
  });

  test(`a lock that another session holds is waited for as told: ${mode} mode`, async () => {
    const pair = twins.get(mode)!;
    const holders: RawClient[] = [];
    await pair.onBoth(async (server) => {
      const holder = await RawClient.login(server, login);
      holders.push(holder);
      await holder.query("CREATE TABLE locked AS SELECT 1 AS a");
      await holder.query("BEGIN; LOCK TABLE locked");
    });
    const waits = (sql: string) =>
      exchange(sql, [f.Q("BEGIN; SET LOCAL lock_timeout = '20ms'"), f.Q(sql), f.Q("ROLLBACK")], 3);
    const found = await pair.compare("locks", [
      waits("SELECT * FROM locked"),
      waits("LOCK TABLE locked NOWAIT"),
      waits("DROP TABLE locked"),
      waits("COPY locked TO STDOUT"),
      waits("SAVEPOINT a; SELECT * FROM locked"),
      waits(
        "DO $$ BEGIN PERFORM * FROM locked; EXCEPTION WHEN lock_not_available THEN RAISE NOTICE '%', SQLERRM; END $$",
      ),
    ]);
    assert.is(report(found), "");
    for (const holder of holders) await holder.query("ROLLBACK; BEGIN; UPDATE locked SET a = 2");
    const rows = await pair.compare("row locks", [
      waits("SELECT * FROM locked FOR UPDATE"),
      waits("SELECT * FROM locked FOR UPDATE NOWAIT"),
      waits("SELECT * FROM locked FOR UPDATE SKIP LOCKED"),
      waits("SELECT * FROM locked"),
      waits("DELETE FROM locked"),
    ]);
    assert.is(report(rows), "");
    for (const holder of holders) await holder.end();
  });
}

test.run();
