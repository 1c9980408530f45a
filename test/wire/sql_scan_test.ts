// scanSql(): a table of texts per flag, then glued fragments with a seed. Looked for: a flag
// that is missed, one that is set by what only looks like it, a byte read outside the text, a byte read again
// and again. Replay a failure with PGWEIR_FUZZ_SEED=<the printed seed>.

import process from "node:process";
import { assert, seededRandom, suite } from "../support/harness.ts";
import { channelSteps, scanSql, SqlFlag } from "../../shared/wire/mod.ts";

const test = suite("wire/sql_scan");

const encoder = new TextEncoder();

function namesOf(flags: number): string {
  const known = Object.entries(SqlFlag);
  const names = known.filter(([, bit]) => (flags & bit) !== 0).map(([name]) => name);
  const rest = known.reduce((left, [, bit]) => left & ~bit, flags);
  return [...names, ...(rest === 0 ? [] : [`unknown bits ${rest}`])].join(" ");
}

/** What may stand around a text in a buffer, and would change what is found if it were read. */
const around: [before: string, after: string][] = [
  ["", ""],
  ["E", "'; SET x = 1; --"],
  ["U&", '"; LISTEN x'],
  ["a", "fig('a', 'b', false)"],
  ["INSERT ", " TEMP x"],
  ["-", "*/; RESET x"],
  ["/", "\n'b\\'; DISCARD ALL"],
  ["$", "$$; SET x = 1"],
  ["SELECT 1; CREATE ", ".x(a int)"],
  ["'\\", "k(1)"],
  ["UPDATE pg_", "_lock(1)"],
];

/** These have tables of their own: they come beside the others. */
const apart = SqlFlag.changesMeaning | SqlFlag.begins | SqlFlag.ends;

/** The flags as a text of names, found alike whatever stands around the text. */
function flagsOf(text: string | Uint8Array, wanted = ~apart): string {
  const body = typeof text === "string" ? encoder.encode(text) : text;
  const found = around.map(([before, after]) => {
    const bytes = new Uint8Array([...encoder.encode(before), ...body, ...encoder.encode(after)]);
    return namesOf(wanted & scanSql(bytes, before.length, before.length + body.length));
  });
  found.forEach((names, i) => assert.is(names, found[0], `within ${JSON.stringify(around[i])}`));
  return found[0]!;
}

const rows: Record<string, [text: string, flags: string][]> = {
  "discards": [
    ["DEALLOCATE x", "discards"],
    ["deallocate all", "discards"],
    ["DEALLOCATE PREPARE x", "discards"],
    ["DISCARD ALL", "discards"],
    ["dIsCaRd\nplans", "discards"],
    ["SELECT 1;DISCARD TEMP", "discards"],
    ["discards all", ""],
    ["discard_all()", ""],
    ["SELECT 'DISCARD ALL'", ""],
    ["SELECT discard FROM deallocate", ""],
    ["EXPLAIN DEALLOCATE x", ""],
    ['"discard" all', ""],
  ],
  "sets": [
    ["SET x = 1", "sets"],
    ["set x to 1", "sets"],
    ["SET SESSION x = 1", "sets"],
    ["SET ROLE r", "sets"],
    ["SET SESSION AUTHORIZATION DEFAULT", "sets setsDefault"],
    ["SET TIME ZONE 'UTC'", "setsReported"],
    ["SET TIME ZONE LOCAL", "setsReported setsDefault"],
    ["SET SESSION TIME ZONE default", "setsReported setsDefault"],
    ["SET timezone TO 'UTC'", "setsReported"],
    ["SET NAMES 'UTF8'", "setsReported"],
    ["SET client_encoding = DEFAULT", "setsReported setsDefault"],
    ['SET "Standard_Conforming_Strings" = on', "setsReported"],
    ["SET session DateStyle = 'ISO, DMY'", "setsReported"],
    ["SET application_name = 'default'", "setsReported"],
    ["SET application_name TO/**/DEFAULT", "setsReported setsDefault"],
    ["SET application_names = 1", "sets"],
    ["SET time.x = DEFAULT", "sets setsDefault"],
    ["SET timezone.x = 1", "sets"],
    ["SET names . y TO 1", "sets"],
    ["SET x.default = 1", "sets"],
    ["SET work_mem = DEFAULT", "sets setsDefault"],
    ["SET search_path = pg_temp", "sets makesTemp"],
    ["SET LOCAL search_path TO a, pg_temp", "makesTemp setsLocal"],
    ["SET search_path = 'pg_temp'", "sets makesTemp"],
    ["SELECT set_config('search_path', 'pg_temp', true)", "makesTemp"],
    ["SET IntervalStyle = 'postgres'", "setsReported"],
    ["SET ROLE DEFAULT", "sets setsDefault"],
    ["SET DateStyle = ISO; SET x = 1", "sets setsReported"],
    ["SET LOCAL TimeZone = DEFAULT", "setsLocal"],
    ["SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", "sets"],
    ["SET\tsearch_path=a,b", "sets"],
    ['SET"x"=1', "sets"],
    ["SET/**/x = 1", "sets"],
    ["SET", "sets"],
    ["SET locale = 1", "sets"],
    ["SET local.x = 1", "sets"],
    ["SET transaction /* of ours */ . x = 1", "sets"],
    ["BEGIN; SET x = 1; COMMIT", "sets"],
    ["SET LOCAL x = 1; SET x = 2", "sets setsLocal"],
    ["SET LOCAL x = 1", "setsLocal"],
    ["set local role r", "setsLocal"],
    ["SET LOCAL", "setsLocal"],
    ["SET /* a */ -- b\n LOCAL x = 1", "setsLocal"],
    ["SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", "setsLocal"],
    ["SET CONSTRAINTS ALL DEFERRED", "setsLocal"],
    ["UPDATE t SET x = 1", ""],
    ["ALTER ROLE x SET y = 1", ""],
    ["ALTER DATABASE x SET y = 1", ""],
    ["CREATE FUNCTION f() RETURNS int LANGUAGE sql SET x = 1 AS 'SELECT 1'", ""],
    ["CREATE FUNCTION f() RETURNS int LANGUAGE sql SET search_path = a, pg_temp AS $$$$", ""],
    ["INSERT INTO t VALUES (1) ON CONFLICT DO UPDATE SET x = 1", ""],
    ["MERGE INTO t USING s ON true WHEN MATCHED THEN UPDATE SET x = 1", ""],
    ["setx = 1", ""],
    ["set_x()", ""],
    ["set$x", ""],
    ["set\u00e4", ""],
    ["SET1", ""],
    ["\u00a0SET x = 1", ""],
    ["(SET x = 1)", ""],
  ],
  "resets": [
    ["RESET x", "resets"],
    ["reset all", "resets"],
    ["RESET allx", "resets"],
    ["RESET SESSION AUTHORIZATION", "resets"],
    [";RESET ROLE", "resets"],
    ["resetting", ""],
    ["ALTER ROLE x RESET y", ""],
    ["ALTER TABLE t RESET (fillfactor)", ""],
  ],
  "setsConfig": [
    ["SELECT set_config('a.b', 'c', false)", "setsConfig"],
    ["SELECT pg_catalog.set_config('search_path', '', false)", "setsConfig"],
    ["select SET_CONFIG('a', 'b', 'f')", "setsConfig"],
    ["SELECT \"set_config\"('a', 'b', false)", "setsConfig"],
    ["SELECT \"pg_catalog\".\"set_config\"('a', 'b', false)", "setsConfig"],
    ["SELECT set_config /* a */ -- b\n ('a', 'b', false)", "setsConfig"],
    ["SELECT set_config($1, $2, $3)", "setsConfig setsUnnamed"],
    ["SELECT set_config(name, 'b', false)", "setsConfig setsUnnamed"],
    ["SELECT set_config('a' || x, 'b', false)", "setsConfig setsUnnamed"],
    ["SELECT set_config(E'a', 'b', false)", "setsConfig setsUnnamed"],
    ["SELECT set_config('a'::text, 'b', false)", "setsConfig"],
    ["SELECT set_config('a', 'b', false), set_config($1, 'b', false)", "setsConfig setsUnnamed"],
    ["SELECT set_config($1, 'b', true), set_config('a', 'b', false)", "setsConfig"],
    ["SELECT set_config('a', 'b', NULL)", "setsConfig"],
    ["SELECT set_config('a', 'b', NOT true)", "setsConfig"],
    ["SELECT set_config('a', 'b', true AND false)", "setsConfig"],
    ["SELECT set_config('a', 'b', (true))", "setsConfig"],
    ["SELECT set_config('a', 'b', true::boolean)", "setsConfig"],
    ["SELECT set_config('a', 'b', E'true')", "setsConfig"],
    ["SELECT set_config('a', 'b', \"true\")", "setsConfig"],
    ["SELECT set_config('a', 'b', 'fals' 'true')", "setsConfig"],
    ["SELECT set_config('a', 'b', 'truth')", "setsConfig"],
    ["SELECT set_config('a', 'b', is_local => true)", "setsConfig"],
    ["SELECT set_config('a', f(true), f(1, true))", "setsConfig"],
    ["SELECT set_config('a', 'b', (ARRAY[false, true])[1])", "setsConfig"],
    ["SELECT set_config('a', ', true)', false)", "setsConfig"],
    ["SELECT set_config('a', $$, true)$$, false)", "setsConfig"],
    ["SELECT set_config('a', 'b', true -- )\n AND false)", "setsConfig"],
    ["SELECT set_config('a', 'b', true", "setsConfig"],
    ["SELECT set_config('a', 'b', true; SELECT 1)", "setsConfig"],
    ["SELECT set_config(", "setsConfig setsUnnamed"],
    ["SELECT set_config('a', 'b', true), set_config('c', 'd', false)", "setsConfig"],
    ["SELECT set_config('a', set_config('b', 'c', false), true)", "setsConfig"],
    ["COPY (SELECT set_config('a', 'b', false)) TO STDOUT", "setsConfig"],
    ["UPDATE t SET x = set_config('a', 'b', false)", "setsConfig"],
    ["SELECT 'set_config'::regproc", "setsConfig mentionsConfig"],
    ["SELECT 'SELECT set_config(''a'', ''b'', true)'", "setsConfig mentionsConfig"],
    ["SELECT E'\\nset_config(...)'", "setsConfig mentionsConfig"],
    ["SELECT E'\\'set_config'", "setsConfig mentionsConfig"],
    ["SELECT U&'set_config'", "setsConfig mentionsConfig"],
    [
      "CREATE FUNCTION f() RETURNS void AS $f$ SELECT set_config('a', 'b', true) $f$",
      "setsConfig mentionsConfig",
    ],
    ["DO $$BEGIN PERFORM set_config('a', 'b', false); END$$", "setsConfig runsCode mentionsConfig"],
    ["SELECT $$pg_catalog.set_config$$", "setsConfig mentionsConfig"],
    ["SELECT $set_config$ -- set_config", ""],
    ["SELECT set_config('a', 'b', true)", ""],
    ["SELECT set_config('a', 'b', TRUE)", ""],
    ["SELECT set_config('a', 'b', 't')", ""],
    ["SELECT set_config('a', 'b', ' True ')", ""],
    ["SELECT set_config ( 'a' , 'b' , /* local */ true /* yes */ )", ""],
    ["SELECT set_config('a', f(1, false), true)", ""],
    ["SELECT set_config('a', ARRAY['x', 'y'][1], true)", ""],
    ["SELECT set_config('a', 'it''s; (', true)", ""],
    ["SELECT set_config('a', 'b', true), set_config('c', 'd', 'T')", ""],
    ["SELECT 1 AS set_config", ""],
    ["SELECT set_config FROM t ORDER BY set_config", ""],
    ["SELECT set_config", ""],
    ["SELECT my_set_config('a', 'b', false)", ""],
    ["SELECT set_config2('a', 'b', false)", ""],
    ["SELECT set_config$('a', 'b', false)", ""],
    ["SELECT a$set_config('a', 'b', false)", ""],
    ["SELECT reset_config('a', 'b', false)", ""],
    ["SELECT 'dataset_config', 'set_configs'", ""],
    ["SELECT 1 -- set_config('a', 'b', false)", ""],
    ["SELECT 1 /* set_config('a', 'b', false) */", ""],
    ["SELECT \"my set_config\"('a')", ""],
  ],
  "setsConfig by way of the view pg_settings": [
    ["UPDATE pg_settings SET setting = '1' WHERE name = 'x'", "setsConfig setsUnnamed"],
    ["UPDATE ONLY pg_catalog.pg_settings SET setting = '1'", "setsConfig setsUnnamed"],
    ['UPDATE "pg_settings" SET setting = 1', "setsConfig setsUnnamed"],
    ["WITH q AS (SELECT 1) UPDATE pg_settings SET setting = '1' FROM q", "setsConfig setsUnnamed"],
    ["EXPLAIN ANALYZE UPDATE pg_settings SET setting = '1'", "setsConfig setsUnnamed"],
    ["SELECT setting FROM pg_settings WHERE name = 'x'", ""],
    ["UPDATE t SET x = 1; SELECT * FROM pg_settings", ""],
    ["UPDATE my_pg_settings SET setting = '1'", ""],
  ],
  "listens": [
    ["LISTEN x", "listens"],
    ['listen"X"', "listens"],
    ["BEGIN;LISTEN a;COMMIT", "listens"],
    ["LISTEN a; LISTEN b", "listens"],
    ["listen_addr", ""],
    ["SHOW listen_addresses", ""],
    ["NOTIFY listen", "notifies"],
  ],
  "unlistens": [
    ["UNLISTEN x", "unlistens"],
    ["unlisten *", "unlistens"],
    ["UNLISTEN*", "unlistens"],
    ["LISTEN a; UNLISTEN b", "listens unlistens"],
    ["unlistened", ""],
    ["SELECT unlisten", ""],
  ],
  "notifies": [
    ["NOTIFY x", "notifies"],
    ["notify\"X\", 'payload'", "notifies"],
    ["SELECT 1; /* c */ NOTIFY x", "notifies"],
    ["NOTIFIES", ""],
    ["SELECT notify", ""],
    ["SELECT '; NOTIFY x'", ""],
  ],
  "namesNotify": [
    ["SELECT pg_notify('x', 'y')", "namesNotify"],
    ["select PG_NOTIFY($1, $2)", "namesNotify"],
    ["SELECT pg_catalog.pg_notify('x', '')", "namesNotify"],
    ['SELECT "pg_notify"(a, b) FROM t', "namesNotify"],
    ["DO $$BEGIN PERFORM pg_notify('x', ''); END$$", "runsCode namesNotify"],
    ["SELECT pg_notify_all('x')", ""],
    ["SELECT my_pg_notify('x')", ""],
    ["SELECT pg_notification_queue_usage()", ""],
  ],
  "savepoints": [
    ["SAVEPOINT a", "savepoints"],
    ['savepoint"A"', "savepoints"],
    ["RELEASE a", "savepoints"],
    ["release savepoint a", "savepoints"],
    ["ROLLBACK TO a", "savepoints"],
    ["SELECT 1; /* x */ ROLLBACK WORK TO SAVEPOINT a", "savepoints"],
    ["rollback transaction/**/to a", "savepoints"],
    ["ROLLBACK", ""],
    ["ROLLBACK AND CHAIN", ""],
    ["ROLLBACK PREPARED 'TO'", ""],
    ["savepoints", ""],
    ["SELECT savepoint, release", ""],
    ["released", ""],
  ],
  "makesTemp": [
    ["CREATE TEMP TABLE t (a int)", "makesTemp"],
    ["create temporary table t as select 1", "makesTemp"],
    ["CREATE LOCAL TEMP TABLE t (a int)", "makesTemp"],
    ["CREATE GLOBAL TEMPORARY TABLE t (a int)", "makesTemp"],
    ["CREATE TEMP VIEW v AS SELECT 1", "makesTemp"],
    ["CREATE OR REPLACE TEMP VIEW v AS SELECT 1", "makesTemp"],
    ["CREATE /*a*/ OR --b\r REPLACE /*c*/ LOCAL /*d*/ TEMP VIEW v AS SELECT 1", "makesTemp"],
    ["CREATE TEMP SEQUENCE s", "makesTemp"],
    ["CREATE TEMP", "makesTemp"],
    ["CREATE TEMP TABLE t (a int) ON COMMIT PRESERVE ROWS", "makesTemp"],
    ["CREATE TEMP TABLE t (a int) ON COMMIT DELETE ROWS", "makesTemp"],
    ["CREATE TEMP TABLE t AS SELECT 'ON COMMIT DROP'", "makesTemp"],
    ["CREATE TEMP TABLE t AS SELECT $$ ON COMMIT DROP $$", "makesTemp"],
    ["CREATE TEMP TABLE t (a int) -- ON COMMIT DROP", "makesTemp"],
    ["CREATE TEMP TABLE t (a int); CREATE TEMP TABLE u (a int) ON COMMIT DROP", "makesTemp"],
    ["CREATE TEMP TABLE t (a int) ON COMMIT DROPS", "makesTemp"],
    ['CREATE TEMP TABLE t (a int) ON COMMIT "DROP"', "makesTemp"],
    ["CREATE TABLE pg_temp.t (a int)", "makesTemp"],
    ['CREATE TABLE "pg_temp".t (a int)', "makesTemp"],
    ["CREATE TABLE pg_temp_3 . t (a int)", "makesTemp"],
    ["CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql AS 'SELECT 1'", "makesTemp"],
    ["CREATE VIEW v AS SELECT * FROM pg_temp.t", "makesTemp"],
    ["SELECT 1 INTO TEMP t", "makesTemp"],
    ["select a, b into temporary table t from u", "makesTemp"],
    ["SELECT 1 INTO LOCAL TEMP t", "makesTemp"],
    ["SELECT 1 INTO TABLE pg_temp.t", "makesTemp"],
    ['select 1 as x into table "pg_temp".t', "makesTemp"],
    ["SELECT 1 INTO\n\tGLOBAL\n\tTEMPORARY t", "makesTemp"],
    ["SELECT 1INTO TEMP t", "makesTemp"],
    ["SELECT $$a$$INTO TEMP t", "makesTemp"],
    ["SELECT 1 -- a\nINTO/*b*/-- c\n/*d*/ TEMP t", "makesTemp"],
    ["SELECT 1 INTO /*a*/ LOCAL /*b*/ TEMP t", "makesTemp"],
    ["SELECT 1 INTO pg_temp.t", "makesTemp"],
    ['SELECT 1 INTO "pg_temp".t', "makesTemp"],
    ["SELECT a$insert INTO TEMP t FROM u", "makesTemp"],
    ["WITH q AS (SELECT 1) SELECT * INTO TEMP t FROM q", "makesTemp"],
    ["EXPLAIN ANALYZE CREATE TEMP TABLE t AS SELECT 1", "makesTemp"],
    ["EXPLAIN (ANALYZE, FORMAT json) CREATE TEMP TABLE t AS SELECT 1", "makesTemp"],
    ["EXPLAIN ANALYSE VERBOSE SELECT 1 INTO TEMP t", "makesTemp"],
    ["CREATE TEMP TABLE t (a int) ON COMMIT DROP", ""],
    ["create temp table t on commit drop as select 1", ""],
    ["CREATE LOCAL TEMP TABLE t (a int) ON COMMIT DROP", ""],
    ["CREATE TEMP TABLE t (a int) ON/**/COMMIT -- x\n DROP;", ""],
    ["CREATE TEMP TABLE pg_temp.t (a int) ON COMMIT DROP", ""],
    ["CREATE TABLE t (a int)", ""],
    ["CREATE TABLE temp (temp int, temporary int)", ""],
    ["CREATE TABLE tempo AS SELECT 1", ""],
    ["CREATE TABLE t AS SELECT pg_temp FROM u", ""],
    ["CREATE TABLE pg_template.t (a int)", ""],
    ["SELECT 1 INTO t", ""],
    ["SELECT temp FROM t", ""],
    ["SELECT a, /* degrees */ temp FROM t", ""],
    ["SELECT a -- into\n, -- into\ntemp FROM t", ""],
    ["INSERT INTO temp VALUES (1)", ""],
    ["INSERT\n INTO temp VALUES (1)", ""],
    ["INSERT INTO /* a table */ temp VALUES (1)", ""],
    ["WITH q AS (INSERT INTO temp VALUES (1) RETURNING a) SELECT * FROM q", ""],
    ["MERGE INTO temp USING s ON true WHEN MATCHED THEN DELETE", ""],
    ["INSERT INTO pg_temp.t VALUES (1)", ""],
    ["SELECT * FROM pg_temp.t", ""],
    ["DROP TABLE pg_temp.t", ""],
    ["SELECT 1 INTO template", ""],
    ["SELECT 1 INTO item_temp", ""],
    ["SELECT 'INTO TEMP t'", ""],
    ["EXPLAIN (COSTS) SELECT 1", ""],
    ["EXPLAIN (", ""],
  ],
  "holds": [
    ["DECLARE c CURSOR WITH HOLD FOR SELECT 1", "holds"],
    ["declare c no scroll cursor with/**/hold for select 1", "holds"],
    ["DECLARE hold CURSOR WITH HOLD", "holds"],
    ["DECLARE c CURSOR FOR SELECT 1", ""],
    ["DECLARE c CURSOR WITHOUT HOLD FOR SELECT 1", ""],
    ["DECLARE c CURSOR FOR WITH hold AS (SELECT 1) SELECT * FROM hold", ""],
    ['DECLARE "WITH HOLD" CURSOR FOR SELECT 1', ""],
    ["DECLARE c CURSOR; WITH HOLD", ""],
    ["SELECT 1 WITH HOLD", ""],
  ],
  "locks": [
    ["SELECT pg_advisory_lock(1)", "locks"],
    ["SELECT PG_ADVISORY_LOCK_SHARED(1, 2)", "locks"],
    ["SELECT pg_catalog.pg_try_advisory_lock(1)", "locks"],
    ['SELECT "pg_try_advisory_lock_shared"(1)', "locks"],
    ["SELECT x FROM t WHERE pg_try_advisory_lock(id)", "locks"],
    ["SELECT 'pg_advisory_lock'::regproc", "locks"],
    ["DO $$BEGIN PERFORM pg_advisory_lock(1); END$$", "locks runsCode"],
    ["SELECT pg_advisory_xact_lock(1), pg_try_advisory_xact_lock_shared(1)", ""],
    ["SELECT my_pg_advisory_lock(1)", ""],
    ["SELECT pg_advisory_locks(1)", ""],
    ["SELECT pg_advisory_lock$(1)", ""],
    ["SELECT 1 /* pg_advisory_lock(1) */ -- pg_advisory_lock(1)", ""],
    ["SELECT 'pg_advisory_xact_lock', $$pg_advisory_lock_$$", ""],
  ],
  "unlocks": [
    ["SELECT pg_advisory_unlock(1)", "unlocks"],
    ["SELECT pg_advisory_unlock_shared(1)", "unlocks"],
    ["SELECT Pg_Advisory_Unlock_All()", "unlocks"],
    ["SELECT 'pg_advisory_unlock_all'", "unlocks"],
    ["SELECT pg_advisory_lock(1), pg_advisory_unlock(2)", "locks unlocks"],
    ["SELECT pg_advisory_unlocked(1)", ""],
    ["SELECT pg_advisory_unlock_al()", ""],
  ],
  "prepares": [
    ["PREPARE x AS SELECT 1", "prepares"],
    ["prepare x(int) as select $1", "prepares"],
    ["PREPARE transaction AS SELECT 1", "prepares"],
    ["PREPARE transaction (int) AS SELECT $1", "prepares"],
    ["PREPARE transactions AS SELECT 1", "prepares"],
    ['PREPARE "transaction" AS SELECT 1', "prepares"],
    ["PREPARE", "prepares"],
    ["PREPARE TRANSACTION 'x'", ""],
    ["PREPARE/**/TRANSACTION/**/'x'", ""],
    ["PREPARE TRANSACTION E'x'", ""],
    ["PREPARE TRANSACTION $$x$$", ""],
    ["prepared", ""],
    ["EXECUTE prepare", ""],
  ],
  "runsCode": [
    ["DO 'BEGIN END'", "runsCode"],
    ["do $$begin end$$ language plpgsql", "runsCode"],
    ["CALL p()", ""],
    ["DO$$begin end$$", ""],
    ["SELECT call FROM t", ""],
    ["INSERT INTO t VALUES (1) ON CONFLICT DO NOTHING", ""],
    ["does", ""],
    ["callback()", ""],
  ],
  "what is before the first word": [
    ["  \t\r\n\f\vSET x = 1", "sets"],
    ["/* a */SET x = 1", "sets"],
    ["/* group=reports */ -- b\n /* c */ SET x = 1", "sets"],
    ["-- a\rSET x = 1", "sets"],
    ["/* /* nested */ */ SET x = 1", "sets"],
    ["/* '; */ SET x = 1", "sets"],
    ["/* /* nested */ SET x = 1 */", ""],
    ["/*/ SET x = 1", ""],
    ["/**/SET x = 1", "sets"],
    ["/***/SET x = 1", "sets"],
    ["-- it's\nSET x = 1", "sets"],
    ["-- SET x = 1", ""],
    ["- SET x = 1", ""],
    [";;; ;SET x = 1", "sets"],
    ["; /* a */ ; -- b\n SET x = 1", "sets"],
  ],
  "strings and quoted identifiers": [
    ["SELECT '; SET x = 1'", ""],
    ["SELECT 'it''s; SET x = 1'", ""],
    ["SELECT 'a\\'; SET x = 1", "sets"],
    ["SELECT 'a\\\\'; SET x = 1", "sets"],
    ["SELECT '\\'';SET x'", ""],
    ["SELECT E'\\'; SET x = 1'", ""],
    ["SELECT e'a\\\\'; SET x = 1", "sets"],
    ["SELECT E'it''s; SET x = 1'", ""],
    ["SELECT E'\\\\\\'; SET x = 1'", ""],
    ["SELECT date'a\\'; SET x = 1", "sets"],
    ["SELECT 1e'a\\'; SET x = 1", "sets"],
    ["SELECT _E'a\\'; SET x = 1", "sets"],
    ["SELECT \u00e9E'a\\'; SET x = 1", "sets"],
    ["SELECT a.E'\\'; SET x = 1'", ""],
    ["E'\\'; SET x = 1'", ""],
    ["SELECT N'a\\'; SET x = 1", "sets"],
    ["SELECT U&'a\\'; SET x = 1", "sets"],
    ["SELECT B'01'; SET x = 1", "sets"],
    ['SELECT "; SET x = 1"', ""],
    ['SELECT """; SET x = 1"', ""],
    ['SELECT "a\\"; SET x = 1', "sets"],
    ["SELECT \"'\"; SET x = 1; --'", "sets"],
    ["SELECT '\"'; SET x = 1; --\"", "sets"],
    ["SELECT 'a'\n'b\\'; SET x = 1", "sets"],
    ["SELECT E'a'\n'b\\'; SET x = 1'", ""],
    ["SELECT E'a' -- c\n\n -- d\r\t'b\\'; SET x = 1'", ""],
    ["SELECT E'a' 'b\\'; SET x = 1", "sets"],
    ["SELECT E'a' /*\n*/ 'b\\'; SET x = 1", "sets"],
    ["SELECT E'a'\n/**/ 'b\\'; SET x = 1", "sets"],
  ],
  "dollar quotes and parameters": [
    ["SELECT $$; SET x = 1$$", ""],
    ["SELECT $a$; SET x = 1 $$; SET x $b$; SET x $a; SET x $A$; SET x $a$", ""],
    ["SELECT $$a$$; SET x = 1", "sets"],
    ["SELECT $a$ $a$; SET x = 1", "sets"],
    ["SELECT $a$ $b$a$; SET x = 1", "sets"],
    ["SELECT $a_1$'$a_1$; SET x = 1", "sets"],
    ["SELECT $\u00e9$'$\u00e9$; SET x = 1", "sets"],
    ["SELECT $$'$$; SET x = 1; --'", "sets"],
    ["SELECT $a '; SET x = 1'", ""],
    ["SELECT a$$; SET x = 1; SELECT b$$", "sets"],
    ["SELECT a1$$; SET x = 1; SELECT b1$$", "sets"],
    ["SELECT a$b$; SET x = 1; SELECT a$b$", "sets"],
    ["SELECT \u00e9$$; SET x = 1; SELECT \u00e9$$", "sets"],
    ["SELECT $1; SET x = $2", "sets"],
    ["SELECT $1, $$; SET x = 1$$", ""],
    ["SELECT ($1)::text||$$; SET x$$", ""],
    ["SELECT x=$a$;SET x$a$", ""],
  ],
  "comments in a statement": [
    ["SELECT 1 -- ; SET x = 1", ""],
    ["SELECT 1 -- '\n; SET x = 1 -- '", "sets"],
    ["SELECT 1 -- \r; SET x = 1", "sets"],
    ["SELECT 1 /* ; SET x = 1 */", ""],
    ["SELECT 1 /* /* */ ; SET x = 1 */", ""],
    ["SELECT 1 /* ' */; SET x = 1 /* ' */", "sets"],
    ["SELECT 1 +/* ' */ 1; SET x = 1", "sets"],
    ["SELECT 1 - -1 / 2 * 3; SET x = 1", "sets"],
    ["SELECT 1 */* ' */ 1; SET x = 1", "sets"],
    ["SELECT 1--1; SET x = 1", ""],
    ["SELECT 1-/**/-1; SET x = 1", "sets"],
  ],
  "names written as U&": [
    [
      "SELECT U&\"set\\005fconfig\"('a', 'b', false)",
      "setsConfig locks unlocks setsUnnamed namesNotify",
    ],
    [
      "SELECT u&\"set!005fconfig\" UESCAPE '!' ('a', 'b', false)",
      "setsConfig locks unlocks setsUnnamed namesNotify",
    ],
    ['CREATE TABLE U&"pg\\005ftemp".t (a int)', "makesTemp"],
    ['UPDATE U&"pg\\005fsettings" SET setting = 1', "setsConfig setsUnnamed"],
    ['SELECT U&"d\\0061t" FROM t', ""],
    ['SELECT a.U&"d\\0061t" FROM t', ""],
    ['SELECT au&"x" (1)', ""],
    ['SELECT U&"a"', ""],
  ],
  "what is not closed": [
    ["SELECT '; SET x = 1", ""],
    ["SELECT E'; SET x = 1", ""],
    ["SELECT E'\\", ""],
    ['SELECT "; SET x = 1', ""],
    ['SELECT "', ""],
    ["SELECT $$; SET x = 1", ""],
    ["SELECT $a$; SET x = 1 $a", ""],
    ["SELECT $", ""],
    ["SELECT /*; SET x = 1", ""],
    ["SELECT /* /* */; SET x = 1", ""],
    ["SELECT /*; SET x = 1 *", ""],
    ["SELECT -", ""],
    ["SELECT /", ""],
    ["SELECT E", ""],
    ["SELECT U&", ""],
    ["SELECT 'set_config", "setsConfig mentionsConfig"],
    ["SELECT $$set_config", ""],
    ["SELECT set_", ""],
    ["SELECT set_conf", ""],
    ["SELECT pg_", ""],
    ["SELECT 1 INTO TEM", ""],
    ["CREATE", ""],
    ["CREATE OR", ""],
    ["CREATE OR TEMP", ""],
    ["CREATE LOCAL", ""],
    ["CREATE TABLE pg_temp", ""],
    ["DECLARE", ""],
    ["EXPLAIN", ""],
    ["EXPLAIN ANALYZE", ""],
  ],
  "next to nothing": [
    ["", ""],
    [" ", ""],
    [";", ""],
    [";;;", ""],
    ["_", ""],
    ["p", ""],
    ["temp", ""],
    ["$", ""],
    ["\0", ""],
    ["\0SET x = 1", ""],
    ["SELECT '\0'; SET x = 1", "sets"],
    ["SELECT '\u{1f40b}'; SET x = 1", "sets"],
    ["SELECT 1", ""],
    ["BEGIN", ""],
    ["SHOW pg_temp", ""],
  ],
  "several statements": [
    [
      "SET x = 1; RESET y; LISTEN a; UNLISTEN b; PREPARE c AS SELECT 1; DEALLOCATE c; DO ''",
      "discards sets resets listens unlistens prepares runsCode",
    ],
    ["CREATE TABLE t (a int); INSERT INTO pg_temp.t VALUES (1)", ""],
    ["BEGIN;SET LOCAL a=1;SELECT set_config('b','c',true);COMMIT", "setsLocal"],
    [
      "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; SELECT pg_advisory_lock(1); END; RESET x",
      "resets locks",
    ],
  ],
};

for (const [what, cases] of Object.entries(rows)) {
  test(`scanSql() finds what a text does: ${what}`, () => {
    for (const [text, flags] of cases) assert.is(flagsOf(text), flags, JSON.stringify(text));
  });
}

const meaning: [text: string, changes: boolean][] = [
  ["SELECT 1", false],
  ["SHOW TimeZone", false],
  ["SET TimeZone = 'UTC'", true],
  ["SET TIME ZONE 'UTC'", true],
  ["SET SESSION datestyle TO 'SQL'", true],
  ["SET transform_null_equals = on", true],
  ['SET "Search_Path" = a', true],
  ["SET ROLE other", true],
  ["SET SESSION AUTHORIZATION other", true],
  ["SET NAMES 'latin1'", true],
  ["SET LOCAL search_path = a", true],
  ['set local"search_path"to a', true],
  ["BEGIN; SET LOCAL DateStyle = 'SQL, DMY'", true],
  ["SET LOCAL TIME ZONE 'UTC'", true],
  ['SET LOCAL u&"x" = 1', true],
  ["SET application_name = 'a'", false],
  ["SET statement_timeout = 1", false],
  ["SET LOCAL lock_timeout = 1", false],
  ['SET LOCAL "statement_timeout" = 1', false],
  ["SET LOCAL _timeout = 1", true],
  ["SET app.tenant = 1", false],
  ["SET LOCAL app.tenant = 1", false],
  ["SET LOCAL app . tenant = 1", false],
  ['SET LOCAL "my-app".tenant = 1', false],
  ["SET local.tenant = 1", false],
  ["SET LOCAL work_mem = '1MB'", false],
  ["SET TRANSACTION READ ONLY", false],
  ["SET CONSTRAINTS ALL DEFERRED", false],
  ["SELECT set_config('app.tenant', '1', true)", false],
  ["SELECT set_config('app.tenant', '1', false)", false],
  ["SELECT set_config('app.tenant'::text, '1', true)", false],
  ["SELECT set_config('statement_timeout', '1', true)", false],
  ["SELECT set_config('search_path', 'a', true)", true],
  ["SELECT pg_catalog . set_config ( 'DateStyle' , 'SQL', true)", true],
  ["SELECT set_config('app.' || 'tenant', '1', true)", true],
  ["SELECT set_config($1, $2, true)", true],
  ["SELECT set_config(E'search\\x5fpath', 'a.b', true)", true],
  ["SELECT set_config('app.tenant', '1', true), set_config('role', 'a', true)", true],
  ["SELECT set_config('app.tenant', set_config('role', 'a', true), true)", true],
  ["SELECT set_config", false],
  ["DISCARD ALL", true],
  ["DEALLOCATE ALL", false],
];

test("scanSql() finds what may change the meaning of later texts", () => {
  for (const [text, changes] of meaning) {
    const found = flagsOf(text, SqlFlag.changesMeaning);
    assert.is(found, changes ? "changesMeaning" : "", JSON.stringify(text));
  }
});

test("scanSql() finds what may begin a transaction block", () => {
  const begins = ["BEGIN", "begin work", "START TRANSACTION", "SELECT 1; BEGIN", "/* x */ Begin;"];
  for (const text of begins) assert.is(flagsOf(text, SqlFlag.begins), "begins", text);
  const others = ["BEGINS", "COMMIT", "SELECT 'BEGIN'", "SELECT begin", "STARTS", "end", ""];
  for (const text of others) assert.is(flagsOf(text, SqlFlag.begins), "", text);
});

test("scanSql() finds what may end a transaction block", () => {
  const ends =
    ("COMMIT|commit work and chain|END|END TRANSACTION|ABORT|ROLLBACK|ROLLBACK WORK|rollback and chain|" +
      "PREPARE TRANSACTION 'a'|SELECT 1; COMMIT|/* x */ Commit;|ROLLBACK TO a; COMMIT|COMMIT PREPARED 'a'")
      .split("|");
  for (const text of ends) assert.is(flagsOf(text, SqlFlag.ends), "ends", text);
  const others =
    ("COMMITS|BEGIN|SELECT 'COMMIT'|SELECT '; COMMIT'|SELECT 1 AS end|ENDS|ABORTED|PREPARE a AS SELECT 1|" +
      "ROLLBACK TO a|ROLLBACK WORK TO SAVEPOINT a|rollback transaction/**/to a|SELECT CASE WHEN a THEN b END|" +
      "RELEASE a|CREATE TEMP TABLE t (a int) ON COMMIT DROP|-- COMMIT|").split("|");
  for (const text of others) assert.is(flagsOf(text, SqlFlag.ends), "", text);
});

test("scanSql() takes bytes that are no UTF-8", () => {
  const latin1 = Uint8Array.from("SELECT '\xe9\xff'; SET \xe9 = 1", (char) => char.charCodeAt(0));
  assert.is(flagsOf(latin1), "sets");
  for (let byte = 0; byte < 256; byte++) {
    // Bytes from 0x80 on are letters to PostgreSQL.
    const word = byte >= 0x80 || /[\w$]/.test(String.fromCharCode(byte));
    assert.is(flagsOf(Uint8Array.of(...encoder.encode("SET"), byte)), word ? "" : "sets");
    const before = Uint8Array.of(byte, ...encoder.encode("set_config(1)"));
    // " begins an identifier that does not end, ' a string.
    const called = byte === 0x27 ? "setsConfig mentionsConfig" : "setsConfig setsUnnamed";
    const found = word || byte === 0x22 ? "" : called;
    assert.is(flagsOf(before), found, `byte ${byte}`);
  }
});

/** A view of bytes that counts reads, and throws at a read outside [from, to). */
function watched(bytes: Uint8Array, from: number, to: number) {
  const seen = { reads: 0 };
  const view = new Proxy(bytes, {
    get(target, key) {
      const at = Number(key);
      if (!(at >= from && at < to)) {
        throw new Error(`read of a text: index ${String(key)}, wanted ${from} to ${to}`);
      }
      seen.reads++;
      return target[at];
    },
  });
  return { view, seen };
}

test("scanSql() looks at each byte a bounded number of times, whatever is repeated", () => {
  const parts = Object.values(rows).flat().map(([text]) => text);
  const more = [
    "set_config(",
    "set_config('',",
    "/*",
    "/* */",
    "-- x\n",
    "-- x\ntemp ",
    "$a",
    "$a$b",
    "a$",
    "1$",
    "$1",
    "E'a'\n",
    "E'a' -- x\n",
    "temp ",
    "into temp ",
    "INSERT INTO temp ",
    "local temp ",
    "pg_temp ",
    "CREATE pg_temp ",
    "CREATE TEMP ",
    ";CREATE TEMP ",
    ";CREATE",
    "; ",
    "EXPLAIN (",
    "EXPLAIN ANALYZE ",
    "(",
    "_",
    "t_",
    "pg_",
    'U&"a" ',
    "'set_config",
    "$$set_config",
    " ",
    "a",
  ];
  for (const part of [...parts, ...more].filter((part) => part !== "")) {
    const count = Math.ceil(4000 / part.length);
    for (const text of [part.repeat(count), part + " ".repeat(4000), "x".repeat(4000) + part]) {
      const bytes = encoder.encode(text);
      const { view, seen } = watched(bytes, 0, bytes.length);
      scanSql(view, 0, bytes.length);
      const each = seen.reads / bytes.length;
      assert.ok(each < 16, `${each} reads of each byte of ${JSON.stringify(part)}, repeated`);
    }
  }
  const deep = "set_config(".repeat(400) + ",true)".repeat(400);
  const { view, seen } = watched(encoder.encode(deep), 0, deep.length);
  scanSql(view, 0, deep.length);
  assert.ok(seen.reads < 16 * deep.length, `${seen.reads} reads of ${deep.length} bytes`);
});

const seed = Number(process.env.PGWEIR_FUZZ_SEED ?? (Date.now() % 2 ** 32));
const random = seededRandom(seed);
const below = (n: number) => Math.floor(random() * n);
const pick = <T>(items: readonly T[]): T => items[below(items.length)]!;

/**
 * Nothing that these begin goes on behind them, with a space between. Behind an E'' there is a comma: after a comment
 * and its line end another '' would be the rest of the same string, with the meaning that \ has in it.
 */
const whole =
  ("SET|LOCAL|x = 1|RESET|LISTEN|UNLISTEN|ch|*|,|(|)|[|]|;|SELECT|set_config(|set_config('a','b',true)|" +
    "\"set_config\"|pg_catalog.|'a'|true|'t'|$1|E'a\\'b',|E'\\nset_config',|'it''s'|'\\'|'; SET x'|$$; SET x$$|" +
    "$a$ $b$ $$ ' $a$|$f$ set_config $f$|U&\"x\"|-- it's\n|/* ; /* ' */ */|CREATE|OR REPLACE|TEMP|TEMPORARY|TABLE|" +
    "t|ON COMMIT|DROP|pg_temp.|INTO|INSERT|DECLARE|CURSOR|WITH HOLD|FOR|PREPARE|TRANSACTION|COMMIT|ROLLBACK|SAVEPOINT|RELEASE|WORK|TO|AS|DO|CALL|DEALLOCATE|" +
    "DISCARD ALL|EXPLAIN|ANALYZE|UPDATE|pg_settings|pg_advisory_lock|pg_advisory_xact_lock|pg_advisory_unlock_all|" +
    '\u00e9|a$b|temp_x|setx|+|<|.|::|12|"; SET"|\0').split("|");
const cut = "'|\"|$$|$a$|/*|*/|--|E'|U&\"|\\|\n|\r|$|_|set_|pg_|-|/|e|p|\u00ff".split("|");

test("scanSql() of random texts reads nothing outside, and finds in a;b what it finds in a and in b", () => {
  const joined = (count: number) => {
    let text = "";
    for (let i = 0; i < count; i++) text += pick(whole) + " ";
    return text;
  };
  const glued = (count: number) => {
    let text = "";
    for (let i = 0; i < count; i++) {
      text += pick(random() < 0.2 ? cut : whole) + pick(["", "", " "]);
    }
    return text;
  };
  const scan = (text: string) => {
    const bytes = encoder.encode(text);
    return scanSql(bytes, 0, bytes.length);
  };
  for (let round = 0; round < 20_000; round++) {
    const a = joined(below(8));
    const b = glued(below(8));
    const told = `seed ${seed}, round ${round}: ${JSON.stringify([a, b])}`;
    const both = scan(`${a};${b}`);
    assert.is(namesOf(both), namesOf(both | scan(a) | scan(b)), told);
    if (round % 10 > 0) continue;
    const bytes = encoder.encode(glued(12));
    const from = below(bytes.length + 1);
    const to = from + below(bytes.length + 1 - from);
    const { view } = watched(bytes, from, to);
    const flags = scanSql(view, from, to);
    assert.is(namesOf(scanSql(bytes.slice(from, to), 0, to - from)), namesOf(flags), told);
    const found = channelSteps(bytes.slice(from, to), 0, to - from);
    assert.equal(channelSteps(view, from, to), found, told);
  }
});

test.run();
