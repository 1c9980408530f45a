// Conversations that no SQL script can write down: calls of functions, portals run in pieces, binary parameters, COPY
// in pieces and in binary, texts in other encodings, messages that are refused. Each is a list of exchanges, the same
// for both sides of a comparison, and needs nothing but an empty database.

import {
  concatBytes,
  copyDataMessage,
  Frontend,
  message,
  writeInt16,
  writeInt32,
} from "../../../shared/wire/mod.ts";
import { f } from "../../support/notation.ts";
import type { Exchange } from "./conversation.ts";

export interface MessageScript {
  readonly name: string;
  readonly exchanges: readonly Exchange[];
  /** More startup parameters. */
  readonly parameters?: Readonly<Record<string, string>>;
}

const utf8 = new TextEncoder();

/** What is sent and waited for; `count` is that of the ReadyForQuery messages. */
type Step = readonly [what: string, parts: readonly Uint8Array[], count?: number];

function steps(
  name: string,
  list: readonly Step[],
  more: Partial<MessageScript> = {},
): MessageScript {
  const exchanges = list.map(([sql, parts, ready = 1], at) => ({
    line: at + 1,
    sql,
    bytes: concatBytes(...parts),
    ready,
  }));
  return { name, exchanges, ...more };
}

function int16(value: number): Uint8Array {
  const bytes = new Uint8Array(2);
  writeInt16(bytes, 0, value);
  return bytes;
}

function int32(value: number): Uint8Array {
  const bytes = new Uint8Array(4);
  writeInt32(bytes, 0, value);
  return bytes;
}

function sized(value: Uint8Array | null): Uint8Array {
  return value === null ? int32(-1) : concatBytes(int32(value.length), value);
}

/** FunctionCall with one format for all arguments and one for the result. */
function call(
  oid: number,
  values: readonly (Uint8Array | null)[],
  format: 0 | 1 = 1,
  formats = [format] as readonly number[],
): Uint8Array {
  return message(
    Frontend.functionCall,
    int32(oid),
    int16(formats.length),
    ...formats.map(int16),
    int16(values.length),
    ...values.map(sized),
    int16(format),
  );
}

/** Bind as it is: any formats, any values. */
function bind(
  statement: string,
  formats: readonly number[],
  values: readonly (Uint8Array | null)[],
  resultFormats: readonly number[] = [],
): Uint8Array {
  return message(
    Frontend.bind,
    new Uint8Array(1),
    utf8.encode(`${statement}\0`),
    int16(formats.length),
    ...formats.map(int16),
    int16(values.length),
    ...values.map(sized),
    int16(resultFormats.length),
    ...resultFormats.map(int16),
  );
}

const text = (value: string) => utf8.encode(value);

/** A query in bytes that need not be UTF-8: one character per byte. */
function bytesQuery(sql: string): Uint8Array {
  return message(Frontend.query, new Uint8Array(Buffer.from(`${sql}\0`, "latin1")));
}

// Of pg_proc, where they never change.
const INT4PL = 177;
const INT4DIV = 154;
const UPPER = 871;
const BYTEACAT = 2011;
const LO_CREATE = 715;
const LO_OPEN = 952;
const LO_READ = 954;
const LO_WRITE = 955;
const LO_CLOSE = 953;
const NOTHING = 999_999;

const functionCalls = steps("function calls", [
  ["int4pl, binary", [call(INT4PL, [int32(40), int32(2)])]],
  ["int4pl, text", [call(INT4PL, [text("40"), text("2")], 0)]],
  ["int4pl, no formats", [call(INT4PL, [text("40"), text("2")], 0, [])]],
  ["int4pl, a format for each", [call(INT4PL, [text("40"), int32(2)], 0, [0, 1])]],
  ["int4pl, a null", [call(INT4PL, [int32(40), null])]],
  ["int4pl, too few", [call(INT4PL, [int32(40)])]],
  ["int4pl, three formats", [call(INT4PL, [int32(40), int32(2)], 1, [1, 1, 1])]],
  ["int4pl, format 7", [call(INT4PL, [int32(40), int32(2)], 1, [7])]],
  ["int4pl, three bytes", [call(INT4PL, [int32(40), new Uint8Array(3)])]],
  ["int4pl, no number", [call(INT4PL, [text("x"), text("2")], 0)]],
  ["int4div, by zero", [call(INT4DIV, [int32(1), int32(0)])]],
  ["no such function", [call(NOTHING, [])]],
  ["upper, a result of some length", [call(UPPER, [text("é".repeat(5000))])]],
  ["byteacat", [call(BYTEACAT, [new Uint8Array([0, 255]), new Uint8Array(70_000)])]],
  ["in a transaction", [f.Q("BEGIN"), call(INT4PL, [int32(1), int32(2)])], 2],
  ["its failure", [call(INT4DIV, [int32(1), int32(0)])]],
  ["after its failure", [call(INT4PL, [int32(1), int32(2)])]],
  ["the end", [f.Q("ROLLBACK")]],
  ["several at once", [1, 2, 3].map((n) => call(INT4PL, [int32(n), int32(n)])), 3],
  ["a large object", [
    f.Q("BEGIN"),
    call(LO_CREATE, [int32(424242)]),
    call(LO_OPEN, [int32(424242), int32(0x60000)]),
    call(LO_WRITE, [int32(0), new Uint8Array([0, 1, 2, 255])]),
    call(LO_CLOSE, [int32(0)]),
    call(LO_OPEN, [int32(424242), int32(0x40000)]),
    call(LO_READ, [int32(0), int32(100)]),
    f.Q("ROLLBACK"),
  ], 8],
  ["between queries", [f.Q("SELECT 1"), call(INT4PL, [int32(1), int32(1)]), f.Q("SELECT 2")], 3],
]);

const portals = steps("portals", [
  ["in pieces, within a transaction", [
    f.Q("BEGIN"),
    f.P("", "SELECT x FROM generate_series(1, 7) x"),
    f.B("p", ""),
    f.E("p", 3),
    f.S(),
  ], 2],
  ["goes on", [f.E("p", 3), f.S()]],
  ["the rest", [f.E("p", 3), f.E("p", 3), f.S()]],
  ["described", [f.D("P", "p"), f.S()]],
  ["the same name again", [f.B("p", ""), f.S()]],
  ["in the failed transaction", [f.P("", "SELECT 1"), f.S()]],
  ["rolled back by a statement", [f.P("", "ROLLBACK"), f.B(), f.E(), f.S()]],
  ["a portal outlives no transaction", [f.E("p", 1), f.S()]],
  ["two portals of one statement", [
    f.P("s", "SELECT $1::int + x FROM generate_series(1, 3) x"),
    f.B("a", "s", ["10"]),
    f.B("b", "s", ["20"]),
    f.E("a", 1),
    f.E("b", 1),
    f.E("a", 0),
    f.C("P", "b"),
    f.E("b", 0),
    f.S(),
  ]],
  ["a named statement in the next cycle", [f.D("S", "s"), f.B("", "s", ["1"]), f.E(), f.S()]],
  ["the same name for another text", [f.P("s", "SELECT 2"), f.S()]],
  ["closed", [f.C("S", "s"), f.C("S", "s"), f.C("P", "none"), f.S()]],
  ["gone", [f.B("", "s", ["1"]), f.S()]],
  ["described though gone", [f.D("S", "s"), f.D("P", "x"), f.S()]],
  ["no statement was parsed under this name", [f.B("", "never"), f.S()]],
  ["empty", [f.P("", ""), f.B(), f.D(), f.E(), f.S()]],
  ["only a comment", [f.P("", "/* nothing */ -- at all"), f.B(), f.D(), f.E(), f.S()]],
  ["several statements", [f.P("", "SELECT 1; SELECT 2"), f.S()]],
  ["an error skips the rest", [
    f.P("", "SELEC"),
    f.B(),
    f.E(),
    f.P("", "SELECT 1"),
    f.B(),
    f.E(),
    f.S(),
  ]],
  ["an error at Execute", [
    f.P("", "SELECT 1 / (x - 2) FROM generate_series(1, 3) x"),
    f.B(),
    f.D(),
    f.E(),
    f.E(),
    f.S(),
  ]],
  ["too many values", [f.P("", "SELECT 1"), f.B("", "", ["1"]), f.S()]],
  ["too few values", [f.P("", "SELECT $1::int"), f.B(), f.S()]],
  ["a value that is no number", [f.P("", "SELECT $1::int"), f.B("", "", ["x"]), f.S()]],
  ["a type nobody knows", [f.P("", "SELECT $1"), f.D("S"), f.B("", "", ["x"]), f.E(), f.S()]],
  ["a type that clashes", [f.P("", "SELECT $1::int, $1::text"), f.D("S"), f.S()]],
  ["types given", [
    f.P("", "SELECT $1, $2, $3", [20, 0, 17]),
    f.D("S"),
    f.B("", "", ["1", "x", "\\x00"]),
    f.E(),
    f.S(),
  ]],
  ["a type that is none", [f.P("", "SELECT $1", [999_999]), f.S()]],
  ["more types than parameters", [f.P("", "SELECT 1", [23, 23]), f.D("S"), f.S()]],
  ["binary values", [
    f.P("", "SELECT $1::int8, $2::bool"),
    f.B("", "", [new Uint8Array([0, 0, 0, 0, 0, 0, 0, 5]), new Uint8Array([1])], [1]),
    f.E(),
    f.S(),
  ]],
  ["a binary value of a wrong length", [
    f.P("", "SELECT $1::int8"),
    f.B("", "", [new Uint8Array(3)]),
    f.S(),
  ]],
  ["mixed formats", [
    f.P("", "SELECT $1::int, $2::int"),
    bind("", [0, 1], [text("1"), int32(2)], [1, 0]),
    f.D(),
    f.E(),
    f.S(),
  ]],
  ["formats for two of three", [
    f.P("", "SELECT $1::int, $2::int, $3::int"),
    bind("", [0, 1], [text("1"), int32(2), int32(3)]),
    f.S(),
  ]],
  ["result formats for two of one", [f.P("", "SELECT 1"), bind("", [], [], [0, 1]), f.S()]],
  ["format 5", [f.P("", "SELECT $1::int"), bind("", [5], [text("1")]), f.S()]],
  ["result format 5", [f.P("", "SELECT 1"), bind("", [], [], [5]), f.E(), f.S()]],
  ["a flush between", [f.P("", "SELECT 'flushed'"), f.H(), f.B(), f.H(), f.E(), f.H(), f.S()]],
  ["Sync alone", [f.S(), f.S(), f.S()], 3],
  ["transactions in one pipeline", [
    ...["BEGIN", "SELECT 1", "SELECT 1 / 0", "SELECT 2", "ROLLBACK", "SELECT 3"].flatMap((sql) => [
      f.P("", sql),
      f.B(),
      f.E(),
      f.S(),
    ]),
  ], 6],
  ["a cycle is a transaction", [
    f.P("", "CREATE TABLE portals_cycle (a int)"),
    f.B(),
    f.E(),
    f.P("", "SELECT 1 / 0"),
    f.B(),
    f.E(),
    f.S(),
    f.Q("SELECT * FROM portals_cycle"),
  ], 2],
  ["simple between extended", [f.P("", "SELECT 1"), f.B(), f.E(), f.Q("SELECT 2"), f.S()], 2],
  ["rows of RETURNING in pieces", [
    f.Q("BEGIN; CREATE TABLE portals_rows (a int)"),
    f.P("", "INSERT INTO portals_rows SELECT generate_series(1, 5) RETURNING a"),
    f.B(),
    f.E("", 2),
    f.E("", 2),
    f.E("", 2),
    f.S(),
    f.Q("SELECT count(*) FROM portals_rows; ROLLBACK"),
  ], 3],
  ["EXPLAIN in pieces", [f.P("", "EXPLAIN (COSTS off) SELECT 1"), f.B(), f.E("", 1), f.S()]],
  ["a cursor's portal", [
    f.Q("BEGIN; DECLARE c CURSOR FOR SELECT x FROM generate_series(1, 4) x"),
    f.D("P", "c"),
    f.E("c", 2),
    f.S(),
    f.Q("FETCH ALL FROM c; COMMIT"),
  ], 3],
  ["a negative limit", [f.P("", "SELECT generate_series(1, 3)"), f.B(), f.E("", -1), f.S()]],
]);

const rows = [1, 2, 3].map((n) => `${n}\trow ${n}\n`).join("");

const copies = steps("COPY", [
  ["a table", [f.Q("CREATE TABLE copies (a int, b text)")]],
  ["one message", [f.Q("COPY copies FROM STDIN"), f.d(rows), f.c()]],
  ["a message per byte", [f.Q("COPY copies FROM STDIN"), ...[...rows].map(f.d), f.c()]],
  ["empty messages", [f.Q("COPY copies FROM STDIN"), f.d(""), f.d("7\tx\n"), f.d(""), f.c()]],
  ["no data", [f.Q("COPY copies FROM STDIN"), f.c()]],
  ["an end within the data", [f.Q("COPY copies FROM STDIN"), f.d("8\tx\n\\.\n"), f.c()]],
  ["given up", [f.Q("COPY copies FROM STDIN"), f.d(rows), f.f('changed my "mind" é')]],
  ["given up at once", [f.Q("COPY copies FROM STDIN"), f.f("")]],
  ["Sync and Flush are ignored", [
    f.Q("COPY copies FROM STDIN"),
    f.S(),
    f.H(),
    f.d(rows),
    f.S(),
    f.c(),
  ]],
  ["bad data, and more of it", [
    f.Q("COPY copies FROM STDIN"),
    f.d("x\ty\n"),
    f.d(rows),
    f.d(rows),
    f.c(),
  ]],
  ["data without a COPY", [f.d(rows), f.c(), f.f("nothing"), f.Q("SELECT 'still here'")]],
  ["extended", [f.P("", "COPY copies FROM STDIN"), f.B(), f.D(), f.E(), f.d(rows), f.c(), f.S()]],
  ["extended, given up", [
    f.P("", "COPY copies FROM STDIN"),
    f.B(),
    f.E(),
    f.d(rows),
    f.f("no"),
    f.S(),
  ]],
  ["extended, bad data", [
    f.P("", "COPY copies FROM STDIN"),
    f.B(),
    f.E(),
    f.d("x\n"),
    f.d(rows),
    f.c(),
    f.S(),
  ]],
  ["extended, refused", [
    f.P("", "COPY nothing FROM STDIN"),
    f.B(),
    f.E(),
    f.d(rows),
    f.c(),
    f.S(),
  ]],
  ["extended, out", [f.P("", "COPY copies TO STDOUT"), f.B("", "", [], [1]), f.D(), f.E(), f.S()]],
  ["extended, out in pieces", [f.P("", "COPY copies TO STDOUT"), f.B(), f.E("", 1), f.S()]],
  ["in a transaction", [
    f.Q("BEGIN"),
    f.Q("COPY copies FROM STDIN"),
    f.d(rows),
    f.c(),
    f.Q("ROLLBACK"),
  ], 3],
  ["twice in one string", [
    f.Q("COPY copies FROM STDIN; SELECT count(*) FROM copies; COPY copies FROM STDIN"),
    f.d(rows),
    f.c(),
    f.d(rows),
    f.c(),
  ]],
  ["out and in by turns", [
    f.Q("COPY copies TO STDOUT; COPY copies FROM STDIN; COPY copies TO STDOUT"),
    f.d(rows),
    f.c(),
  ]],
  ["emptied", [f.Q("TRUNCATE copies")]],
  ["binary in", [
    f.Q("COPY copies FROM STDIN (FORMAT binary)"),
    f.d("PGCOPY\n"),
    copyDataMessage(new Uint8Array([0xff, 0x0d, 0x0a, 0x00, 0, 0, 0, 0, 0, 0, 0, 0])),
    copyDataMessage(concatBytes(int16(2), sized(int32(77)), sized(text("binary é")))),
    copyDataMessage(concatBytes(int16(2), sized(int32(-1)), int32(-1), int16(-1))),
    f.c(),
  ]],
  ["binary in, cut short", [
    f.Q("COPY copies FROM STDIN (FORMAT binary)"),
    f.d("PGCOPY\n"),
    copyDataMessage(
      new Uint8Array([0xff, 0x0d, 0x0a, 0x00, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 4, 0]),
    ),
    f.c(),
  ]],
  ["binary in, no signature", [
    f.Q("COPY copies FROM STDIN (FORMAT binary)"),
    f.d("PGCOPIES\n"),
    f.c(),
  ]],
  ["binary out", [f.Q("COPY copies TO STDOUT (FORMAT binary)")]],
  ["large", [f.Q("COPY copies FROM STDIN"), f.d(`5\t${"x".repeat(1_000_000)}\n`), f.c()]],
  ["large out", [f.Q("COPY copies TO STDOUT; DROP TABLE copies")]],
]);

const wide = Array.from({ length: 1000 }, (_, at) => `${at} AS c${at}`).join(", ");
const tooWide = Array.from({ length: 1665 }, () => "1").join(", ");

const sizes = steps("sizes", [
  ["1,000 columns", [f.Q(`SELECT ${wide}`)]],
  ["1,000 columns, extended, binary", [
    f.P("", `SELECT ${wide}`),
    f.D("S"),
    f.B("", "", [], [1]),
    f.D(),
    f.E(),
    f.S(),
  ]],
  ["1,000 columns, a format for each", [
    f.P("", `SELECT ${wide}`),
    f.B("", "", [], Array.from({ length: 1000 }, (_, at) => (at % 2) as 0 | 1)),
    f.D(),
    f.E(),
    f.S(),
  ]],
  ["too many columns", [f.Q(`SELECT ${tooWide}`)]],
  ["1,000 parameters", [
    f.P("", `SELECT ${Array.from({ length: 1000 }, (_, at) => `$${at + 1}::int`).join(" + ")}`),
    f.D("S"),
    f.B("", "", Array.from({ length: 1000 }, (_, at) => `${at}`)),
    f.E(),
    f.S(),
  ]],
  ["a long query", [f.Q(`SELECT length('${"q".repeat(2_000_000)}')`)]],
  ["a long value", [f.Q("SELECT repeat('v', 3000000)")]],
  ["a long parameter", [
    f.P("", "SELECT md5($1)"),
    f.B("", "", ["p".repeat(2_000_000)]),
    f.E(),
    f.S(),
  ]],
  ["many rows", [f.Q("SELECT x, repeat('r', x % 300) FROM generate_series(1, 20000) x")]],
  ["no columns, many rows", [f.Q("SELECT FROM generate_series(1, 3000)")]],
  ["long names", [
    f.P("s".repeat(300), "SELECT 1"),
    f.B("p".repeat(300), "s".repeat(300)),
    f.E("p".repeat(300)),
    f.S(),
  ]],
  ["a long error", [f.Q(`SELECT ${"nothing_at_all_".repeat(10_000)}`)]],
  ["many short queries", Array.from({ length: 300 }, (_, at) => f.Q(`SELECT ${at}`)), 300],
  [
    "many short cycles",
    Array.from({ length: 300 }, () => [f.P("", "SELECT 1"), f.B(), f.E(), f.S()]).flat(),
    300,
  ],
  ["an empty query", [f.Q("")]],
  ["blanks", [f.Q("  \n\t ")]],
  ["a comment", [f.Q("-- nothing")]],
  ["semicolons", [f.Q(";;;")]],
]);

const encoded = (name: string, sample: string): MessageScript =>
  steps(`client_encoding ${name}`, [
    ["shown", [f.Q("SHOW client_encoding")]],
    ["a literal", [bytesQuery(`SELECT '${sample}' AS "${sample}", length('${sample}')`)]],
    ["its bytes", [bytesQuery(`SELECT convert_to('${sample}', 'UTF8')`)]],
    ["a parameter", [
      f.P("", "SELECT $1::text, length($1)"),
      bind("", [], [new Uint8Array(Buffer.from(sample, "latin1"))]),
      f.E(),
      f.S(),
    ]],
    ["a binary parameter and result", [
      f.P("", "SELECT $1::text"),
      bind("", [1], [new Uint8Array(Buffer.from(sample, "latin1"))], [1]),
      f.E(),
      f.S(),
    ]],
    ["in an error", [bytesQuery(`SELECT '${sample}'::int`)]],
    ["in a notice", [bytesQuery(`DO $$ BEGIN RAISE NOTICE '${sample}'; END $$`)]],
    ["a table's name", [bytesQuery(`CREATE TABLE "t${sample}" ("${sample}" text)`)]],
    ["COPY in", [
      bytesQuery(`COPY "t${sample}" FROM STDIN`),
      copyDataMessage(new Uint8Array(Buffer.from(`${sample}\n`, "latin1"))),
      f.c(),
    ]],
    ["COPY out", [bytesQuery(`COPY "t${sample}" TO STDOUT`)]],
    ["read", [bytesQuery(`SELECT * FROM "t${sample}"; DROP TABLE "t${sample}"`)]],
    ["what it cannot say", [f.Q("SELECT chr(128512)")]],
    ["bytes that are none of it", [bytesQuery("SELECT '\x81\xff\x80'")]],
    ["a NUL", [
      f.P("", "SELECT $1::text"),
      bind("", [0], [new Uint8Array([0x61, 0, 0x62])]),
      f.S(),
    ]],
    ["after all that", [f.Q("SELECT 1")]],
  ], { parameters: { client_encoding: name } });

const switched = steps("client_encoding changed on the way", [
  ["UTF8", [f.Q("SELECT 'é'")]],
  ["to LATIN1", [f.Q("SET client_encoding = 'LATIN1'")]],
  ["LATIN1", [bytesQuery("SELECT '\xe9', length('\xe9')")]],
  ["within a transaction", [
    f.Q("BEGIN; SET LOCAL client_encoding = 'SJIS'"),
    bytesQuery("SELECT '\x8a\xbf'"),
    f.Q("COMMIT"),
  ], 3],
  ["LATIN1 again", [bytesQuery("SELECT '\xe9'")]],
  ["not there", [f.Q("SET NAMES 'KLINGON'")]],
  ["in a transaction that fails", [
    f.Q("BEGIN; SET client_encoding = 'UTF8'; SELECT 1 / 0"),
    f.Q("ROLLBACK"),
  ], 2],
  ["still LATIN1", [bytesQuery("SELECT '\xe9'")]],
  ["back", [f.Q("RESET client_encoding")]],
  ["UTF8 again", [f.Q("SELECT 'é', '漢字'")]],
]);

const refused = steps("what is refused", [
  ["a NUL in a query", [message(Frontend.query, text("SELECT 1\0; SELECT 2\0"))]],
  ["a NUL in a text parameter", [
    f.P("", "SELECT $1::text"),
    bind("", [0], [new Uint8Array([65, 0, 66])]),
    f.S(),
  ]],
  ["a NUL in a binary text", [
    f.P("", "SELECT $1::text"),
    bind("", [1], [new Uint8Array([65, 0, 66])]),
    f.S(),
  ]],
  ["a NUL in COPY", [
    f.Q("CREATE TABLE refused (a text)"),
    f.Q("COPY refused FROM STDIN"),
    f.d("a\0b\n"),
    f.c(),
  ], 2],
  ["bytes that are no UTF-8", [bytesQuery("SELECT '\xff'")]],
  ["a cut character", [bytesQuery("SELECT '\xe6\xbc'")]],
  ["a surrogate", [bytesQuery("SELECT '\xed\xa0\x80'")]],
  ["in a Parse", [
    message(Frontend.parse, new Uint8Array(Buffer.from("\0SELECT '\xff'\0\0\0", "latin1"))),
    f.S(),
  ]],
  ["in a COPY", [
    f.Q("COPY refused FROM STDIN"),
    copyDataMessage(new Uint8Array([0xff, 0x0a])),
    f.c(),
  ]],
  ["gone", [f.Q("DROP TABLE refused")]],
]);

/** Each ends the session, with the server's last words. One exchange each, up to the end of the connection. */
export const lastWords: readonly MessageScript[] = [
  steps("a query amid COPY data", [
    ["", [
      f.Q("CREATE TEMPORARY TABLE t (a text)"),
      f.Q("COPY t FROM STDIN"),
      f.d("x\n"),
      f.Q("SELECT 1"),
    ], 3],
  ]),
  steps("ended by itself", [
    ["", [f.Q("SELECT 1"), f.Q("SELECT pg_terminate_backend(pg_backend_pid())")], 3],
  ]),
  steps("ended by itself, extended, in a transaction", [
    ["", [
      f.Q("BEGIN"),
      f.P(
        "",
        "SELECT x, CASE x WHEN 3 THEN pg_terminate_backend(pg_backend_pid()) END FROM generate_series(1, 3) x",
      ),
      f.B(),
      f.E(),
      f.S(),
    ], 3],
  ]),
  steps("idle in a transaction for too long", [
    ["", [f.Q("BEGIN; SET LOCAL idle_in_transaction_session_timeout = '20ms'; SELECT 1")], 2],
  ]),
];

/** All that leave the session as it was. */
export const messageScripts: readonly MessageScript[] = [
  functionCalls,
  portals,
  copies,
  sizes,
  encoded("LATIN1", "\xe9\xfc\xdf"),
  encoded("SJIS", "\x8a\xbf\x8e\x9a"),
  encoded("EUC_JP", "\xb4\xc1\xbb\xfa"),
  encoded("WIN1252", "\x80\xe9"),
  encoded("UTF8", "\xe6\xbc\xa2\xf0\x9f\x98\x80"),
  switched,
  refused,
];
