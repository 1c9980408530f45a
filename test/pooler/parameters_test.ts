// The parameters that follow clients, without any server: which sets are one object, the SQL between two
// sets, what a server is known to have after it, and which clients may share prepared statements.

import {
  Dialects,
  type Extra,
  isParameterName,
  noExtras,
  type ParameterSet,
  ParameterTracker,
  quoteLiteral,
  type ServerParameters,
  spelledName,
} from "../../services/pooler/plane/parameters.ts";
import { assert, suite } from "../support/harness.ts";

const tracker = new ParameterTracker(["IntervalStyle", "timezone", "search_path"]);
const defaults = tracker.names.map((name) =>
  ({
    client_encoding: "UTF8",
    DateStyle: "ISO, MDY",
    TimeZone: "UTC",
    standard_conforming_strings: "on",
    application_name: "",
    IntervalStyle: "postgres",
  })[name] ?? null
);

/** A server right after its login. */
function server(): ServerParameters & { values: (string | null)[] } {
  return {
    values: [...defaults],
    defaults,
    extras: noExtras,
    extrasUnsure: false,
    syncedFor: null,
  };
}

function set(values: Record<string, string>, extras: readonly Extra[] = []): ParameterSet {
  const list = tracker.names.map((): string | null => null);
  for (const [name, value] of Object.entries(values)) list[tracker.indexOf(name)] = value;
  return tracker.intern(list, extras);
}

/** Gives the server what a client wants, as PostgreSQL would take it; returns the SQL. */
function give(to: ReturnType<typeof server>, wanted: ParameterSet): string {
  const sql = tracker.setStatement(wanted, to);
  for (const index of tracker.names.keys()) {
    if (to.values[index] !== null) to.values[index] = wanted.values[index] ?? to.defaults[index]!;
  }
  tracker.settle(to, wanted);
  return sql;
}

const test = suite("session parameters");

test("names are tracked once, in any case", () => {
  assert.is(tracker.names.filter((name) => name.toLowerCase() === "timezone").length, 1);
  assert.is(tracker.indexOf("TIMEZONE"), tracker.indexOf("TimeZone"));
  assert.is(tracker.indexOf("work_mem"), -1);
});

test("intern() gives one object for equal sets, whatever the order of the extras", () => {
  const one = set({ TimeZone: "UTC" }, [["work_mem", "1MB"], ["Role", "r"]]);
  const other = set({ TimeZone: "UTC" }, [["Role", "r"], ["work_mem", "1MB"]]);
  assert.is(one, other);
  assert.equal(one.extras, [["Role", "r"], ["work_mem", "1MB"]]);
  assert.is(one.extras, set({}, one.extras).extras);
  assert.is(tracker.none.extras, noExtras);
  const different = [
    set({}, [["a", "b"]]),
    set({}, [["a", "b"], ["c", ""]]),
    set({}, [["a", ""]]),
    set({ TimeZone: "a" }),
    set({ application_name: "a" }),
    set({ application_name: "-" }),
    set({ application_name: "" }),
    tracker.none,
  ];
  assert.is(new Set(different).size, different.length);
});

test("intern() keeps a bounded number of sets, and goes on after it has dropped them", () => {
  const small = new ParameterTracker([]);
  const before = small.intern(["first", null, null, null, null]);
  for (let i = 0; i < 20_000; i++) {
    small.intern([null, null, null, null, `name ${i}`], [["work_mem", String(i)]]);
  }
  const after = small.intern(["first", null, null, null, null]);
  assert.not(after === before);
  assert.equal(after, before);
  // Clients without parameters were taken for such with some from then on.
  assert.is(small.intern(small.none.values), small.none);
  const state = { ...server(), syncedFor: before };
  assert.is(small.setStatement(small.none, state), "");
});

test("setStatement() says nothing where nothing differs", () => {
  const state = server();
  assert.is(tracker.setStatement(tracker.none, state), "");
  assert.is(tracker.setStatement(set({ TimeZone: "UTC" }), state), "");
  const wanted = set({ DateStyle: "German, DMY" }, [["work_mem", "1MB"], ["role", "r"]]);
  give(state, wanted);
  assert.is(tracker.setStatement(wanted, state), "");
  assert.is(state.syncedFor, wanted);
});

test("setStatement() goes from any set to any other", () => {
  const state = server();
  const rows: [ParameterSet, string][] = [
    [set({ TimeZone: "Asia/Tokyo" }), "SET \"TimeZone\"='Asia/Tokyo'"],
    [
      set({ DateStyle: "German" }),
      'SET "DateStyle"=DEFAULT;SET "DateStyle"=\'German\';RESET "TimeZone"',
    ],
    [tracker.none, 'RESET "DateStyle"'],
    [
      set({}, [["statement_timeout", "50"], ["My.Own", "it's"]]),
      "SELECT pg_catalog.set_config('My.Own','it''s',false);" +
      "SELECT pg_catalog.set_config('statement_timeout','50',false)",
    ],
    [
      set({}, [["STATEMENT_TIMEOUT", "50"], ["my.own", "other"]]),
      "SELECT pg_catalog.set_config('my.own','other',false)",
    ],
    [
      set({ application_name: "x" }, [["my.own", "other"]]),
      'SET "application_name"=\'x\';RESET "STATEMENT_TIMEOUT"',
    ],
    [set({ application_name: "x" }), 'RESET "my"."own"'],
    [tracker.none, 'RESET "application_name"'],
  ];
  for (const [wanted, sql] of rows) assert.is(give(state, wanted), sql);
});

test("setStatement() sets everything as the user that logged in, whoever the session acts for", () => {
  // A role that may not change a setting kept it from being set or reset for the next client.
  const state = server();
  const acting = set({}, [["role", "r"], ["Session_Authorization", "u"], ["work_mem", "1MB"]]);
  assert.is(
    give(state, acting),
    "SELECT pg_catalog.set_config('work_mem','1MB',false);" +
      "SELECT pg_catalog.set_config('session_authorization','u',false);" +
      "SELECT pg_catalog.set_config('role','r',false)",
  );
  assert.is(
    give(state, set({ TimeZone: "Asia/Tokyo" }, acting.extras)),
    'RESET "session_authorization";RESET "role";SET "TimeZone"=\'Asia/Tokyo\';' +
      "SELECT pg_catalog.set_config('session_authorization','u',false);" +
      "SELECT pg_catalog.set_config('role','r',false)",
  );
  assert.is(
    give(state, set({ TimeZone: "Asia/Tokyo" }, [["role", "other"], ["work_mem", "1MB"]])),
    'RESET "session_authorization";RESET "role";' +
      "SELECT pg_catalog.set_config('role','other',false)",
  );
  assert.is(give(state, tracker.none), 'RESET "role";RESET "TimeZone";RESET "work_mem"');
});

test("setStatement() repeats extras that may have been undone", () => {
  const state = server();
  const wanted = set({ TimeZone: "Asia/Tokyo" }, [["work_mem", "1MB"]]);
  give(state, wanted);
  state.extrasUnsure = true;
  assert.ok(tracker.setsExtras(wanted, state));
  assert.is(tracker.setStatement(tracker.none, state), 'RESET "TimeZone";RESET "work_mem"');
  assert.is(give(state, wanted), "SELECT pg_catalog.set_config('work_mem','1MB',false)");
  assert.not(state.extrasUnsure);
  assert.is(tracker.setStatement(wanted, state), "");
});

test("setsExtras() is true where a server may refuse what it is told", () => {
  const state = server();
  const wanted = set({}, [["work_mem", "1MB"]]);
  const acting = set({}, [["role", "r"]]);
  assert.not(tracker.setsExtras(set({ TimeZone: "UTC" }), state));
  assert.ok(tracker.setsExtras(wanted, state));
  give(state, wanted);
  assert.not(tracker.setsExtras(wanted, state));
  assert.not(tracker.setsExtras(set({ TimeZone: "Asia/Tokyo" }, wanted.extras), state));
  assert.not(tracker.setsExtras(tracker.none, state));
  // The role is set anew behind whatever else changes.
  give(state, acting);
  assert.ok(tracker.setsExtras(acting, state));
});

test("settle() takes a value that nobody has set for the server's own", () => {
  // The default that was reported at the login was set again and again, whatever the server had since.
  const state = server();
  const zone = tracker.indexOf("TimeZone");
  const client = set({ application_name: "app" });
  state.values[zone] = "Europe/Lisbon";
  assert.is(tracker.setStatement(client, state), 'RESET "TimeZone";SET "application_name"=\'app\'');
  state.values[tracker.applicationName] = "app";
  tracker.settle(state, client);
  assert.is(state.defaults[zone], "Europe/Lisbon");
  assert.is(state.defaults[tracker.applicationName], "");
  assert.is(tracker.setStatement(tracker.none, state), 'RESET "application_name"');
});

test("settle() gives what was asked for as the server spells it", () => {
  const state = server();
  const asked = set({ DateStyle: "german", TimeZone: "asia/tokyo" }, [["work_mem", "1024kB"]]);
  state.values[tracker.indexOf("DateStyle")] = "German, DMY";
  state.values[tracker.indexOf("TimeZone")] = "Asia/Tokyo";
  const spelled = tracker.settle(state, asked);
  assert.is(
    spelled,
    set({ DateStyle: "German, DMY", TimeZone: "Asia/Tokyo" }, [["work_mem", "1024kB"]]),
  );
  assert.is(state.syncedFor, spelled);
  assert.is(tracker.setStatement(spelled, state), "");
});

test("settable() makes extras of what the server does not report", () => {
  const asked = set({ TimeZone: "UTC", search_path: "s1" }, [["work_mem", "1MB"]]);
  const settable = tracker.settable(asked, defaults);
  assert.is(settable, set({ TimeZone: "UTC" }, [["search_path", "s1"], ["work_mem", "1MB"]]));
  assert.is(tracker.settable(settable, defaults), settable);
  assert.is(give(server(), settable).includes("set_config('search_path','s1',false)"), true);
});

test("spelledName() cuts a long name as PostgreSQL does", () => {
  assert.is(spelledName("n".repeat(70)), "n".repeat(63));
  assert.is(spelledName("psql"), "psql");
});

test("isParameterName() takes what PostgreSQL could take, and nothing that is SQL", () => {
  for (const name of ["a", "work_mem", "A1$", "_x", "my.own", "a.b.c"]) {
    assert.ok(isParameterName(name), name);
  }
  const bad = ["", "1a", "a b", "a;b", 'a"b', "a'b", "a.", ".a", "a..b", "a\n", "é", "a-b", "$a"];
  for (const name of bad) assert.not(isParameterName(name), name);
});

test("quoteLiteral() gives ASCII that is the same string under any setting", () => {
  const rows: [string, string][] = [
    ["plain", "'plain'"],
    ["it's", "'it''s'"],
    ["", "''"],
    ["a\\b", " E'a\\\\b'"],
    ["a\\'b", " E'a\\\\''b'"],
    ["two\nlines", " E'two\\U0000000alines'"],
    ["é😀", " E'\\U000000e9\\U0001f600'"],
  ];
  for (const [value, literal] of rows) assert.is(quoteLiteral(value), literal);
});

test("Dialects tell apart the settings under which a text may mean something else", () => {
  const dialects = new Dialects(tracker);
  dialects.renew(defaults);
  const name = (values: Record<string, string>, extras: readonly Extra[] = []) =>
    dialects.of(set(values, extras));
  const own = ["", name({ application_name: "x" }), name({ TimeZone: "UTC" })];
  assert.equal(own, ["", "", ""]);
  const others = [
    name({ TimeZone: "Asia/Tokyo" }),
    name({ DateStyle: "German, DMY" }),
    name({}, [["search_path", "s1"]]),
    name({}, [["search_path", "s2"]]),
    name({ TimeZone: "Asia/Tokyo" }, [["search_path", "s2"]]),
  ];
  assert.is(new Set(others).size, others.length);
  for (const other of others) assert.match(other, /^\d+\u0100$/);
  assert.is(name({ TimeZone: "Asia/Tokyo", application_name: "y" }), others[0]);
  // With other servers behind the pool the names stay what they are, and so does what they stand for.
  dialects.renew(defaults.map((value) => value === "UTC" ? "Asia/Tokyo" : value));
  assert.is(name({ TimeZone: "Asia/Tokyo" }), "");
  assert.is(name({}, [["search_path", "s1"]]), others[2]);
  assert.not(others.includes(name({ TimeZone: "UTC" })));
});

test.run();
