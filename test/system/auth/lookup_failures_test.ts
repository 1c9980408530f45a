// auth_query when its server is down, slow, ends in the middle or speaks nonsense: each login has an error that a
// driver can act on, in time, that tells strangers nothing; and logins work again when the server does.
// limit: 240 s

import {
  Backend,
  concatBytes,
  dataRow,
  errorResponse,
  Frontend,
  md5Secret,
  message,
  noticeResponse,
  parameterStatus,
  readyForQuery,
  rowDescription,
} from "../../../shared/wire/mod.ts";
import { type FakeSession, startFakePostgres } from "../../support/fake_postgres.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { type Pgweir, startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { RawClient, ServerError } from "../../support/raw_client.ts";
import { freePort } from "../../support/temp.ts";

needs("postgresql");

const column = (name: string) => ({ name, typeOid: 25, typeSize: -1 });
const begun = [
  message(Backend.parseComplete),
  message(Backend.bindComplete),
  rowDescription([column("user"), column("secret")]),
];
const ended = [
  message(Backend.commandComplete, new TextEncoder().encode("SELECT 1\0")),
  readyForQuery("I"),
];
const right = concatBytes(...begun, dataRow(["app", md5Secret("app", "right")]), ...ended);
const fatal = errorResponse({ severity: "FATAL", code: "57P01", message: "ends at shop-db-7" });

type Script = (session: FakeSession) => void | Promise<void>;
/** What the next auth queries are answered with, one each; then the right answer. */
let scripts: Script[] = [];
let asked = 0;
let loginHangs = false;

const fake = await startFakePostgres({
  onStartup: (session) => loginHangs ? undefined : session.acceptLogin(),
  onMessage: (session, received) => {
    const isAsker = session.startup.parameters.get("user") === "asker";
    // A session that has changed is reset before it is asked.
    if (!isAsker || received.type === Frontend.query) return session.answer(received);
    if (received.type !== Frontend.sync) return;
    asked++;
    const script = scripts.shift();
    return script === undefined ? session.send(right) : script(session);
  },
});
const deadPort = await freePort();
const postgres = await startPostgres({
  hba: ["host all asker 127.0.0.1/32 scram-sha-256"],
});
await postgres.query("CREATE ROLE asker LOGIN PASSWORD 'another'");
const pooler: Pgweir = await startPgweir({
  ini: {
    databases: {
      shop: `host=127.0.0.1 port=${fake.port}`,
      // Nobody need wait there: elsewhere a look-up takes as long as it takes.
      dead: `host=127.0.0.1 port=${deadPort} query_wait_timeout=1`,
      unresolved: "host=no-such-host.invalid query_wait_timeout=1",
      refused: `host=127.0.0.1 port=${postgres.port} dbname=postgres`,
    },
    pgbouncer: {
      auth_type: "md5",
      auth_user: "asker",
      server_login_retry: 0.2,
    },
  },
  userlist: { asker: "asks", admin: "right" },
});

/** "in", or the error. */
async function login(password = "right", database = "shop"): Promise<string> {
  try {
    const client = await RawClient.login(pooler, { user: "app", database, password });
    await client.end();
    return "in";
  } catch (error) {
    if (error instanceof ServerError) return `${error.code} ${error.fields.message}`;
    throw error;
  }
}

const tests = suite("failures of auth_query");

tests.before.each(() => {
  scripts = [];
  asked = 0;
});

tests.after(async () => {
  await pooler.stop();
  await fake.stop();
  await postgres.stop("immediate");
});

const configError = "28000 bouncer config error";
const failing = (cause: string) =>
  `08006 server login has been failing, cached error: ${cause} (server_login_retry)`;
const breaks: Script = (session) => session.reset();

const rows: readonly (readonly [what: string, scripts: readonly Script[], expected: string])[] = [
  ["ends the connection once", [(session) => session.end()], "in"],
  ["breaks it once", [breaks], "in"],
  ["breaks it again and again", [breaks, breaks], failing("server conn crashed?")],
  [
    "says good-bye once",
    [(session) => {
      session.send(fatal);
      session.end();
    }],
    "in",
  ],
  [
    "breaks in the middle of its answer",
    [(session) => {
      session.send(right.subarray(0, right.length - 9));
      session.end();
    }],
    "in",
  ],
  ["answers byte by byte", [(session) => session.sendByteByByte(right)], "in"],
  [
    "says other things too",
    [(session) =>
      session.send(
        noticeResponse({ severity: "NOTICE", code: "00000", message: "hear" }),
        right.subarray(0, right.length - 6),
        parameterStatus("application_name", "x"),
        right.subarray(right.length - 6),
        noticeResponse({ severity: "NOTICE", code: "00000", message: "hear" }),
        parameterStatus("application_name", ""),
      )],
    "in",
  ],
  ["answers twice", [(session) => session.send(right, right)], configError],
  ["speaks nonsense", [(session) => session.send(message(0x7e, right))], configError],
  ["starts a COPY", [
    (session) => session.send(message(Backend.copyIn, Uint8Array.of(0, 0, 0))),
  ], configError],
  [
    "claims a huge row",
    [(session) => session.send(...begun, Uint8Array.of(Backend.dataRow, 0x3f, 255, 255, 255))],
    configError,
  ],
  [
    "sends a row that is damaged",
    [(session) =>
      session.send(...begun, message(Backend.dataRow, Uint8Array.of(0, 2, 0, 0, 1, 0)), ...ended)],
    configError,
  ],
  [
    "has no such function",
    [(session) =>
      session.send(
        errorResponse({ severity: "ERROR", code: "42883", message: "no function in shop-db-7" }),
        readyForQuery("I"),
      )],
    configError,
  ],
  ["refuses without a word", [
    (session) => session.send(message(Backend.errorResponse, Uint8Array.of(0)), readyForQuery("I")),
  ], configError],
  ["refuses in half a word", [(session) =>
    session.send(
      message(Backend.errorResponse, new TextEncoder().encode("SERROR\0Mhal")),
      readyForQuery("I"),
    )], configError],
  [
    "finds nobody",
    [(session) => session.send(...begun, ...ended)],
    "28P01 password authentication failed",
  ],
];

for (const [what, answers, expected] of rows) {
  tests(`a login when the server ${what}`, async () => {
    scripts = [...answers];
    assert.is(await login(), expected);
    assert.is(scripts.length, 0);
    // And then all is well again, on a server that nothing is left on.
    assert.is(await login(), "in");
    assert.is(await login("wrong"), "28P01 password authentication failed");
  });
}

tests("a login ends when the server does not answer, and the query is cancelled", async () => {
  const before = fake.cancels.length;
  scripts = [() => {}];
  // Those that are to get in have all the time they need.
  const admin = { user: "admin", database: "pgbouncer", password: "right" };
  const console = await RawClient.login(pooler, admin);
  await console.query("SET client_login_timeout = 2");
  // A login that is slow itself has not asked, and is told less.
  await until("a login that has asked", async () => {
    const end = await login();
    if (end === "08006 client_login_timeout") return false;
    assert.is(end, "57P03 client_login_timeout (server down)");
    return true;
  });
  assert.is(scripts.length, 0);
  await console.query("SET client_login_timeout = 60");
  await console.end();
  await until("the cancel request", () => fake.cancels.length > before);
  assert.is(await login(), "in");
  assert.is(await login("wrong"), "28P01 password authentication failed");
});

// Each waited its turn behind a query that was lost, or for one that was for somebody who had left.
tests("who leaves while the server is asked leaves nothing behind", async () => {
  let answer: (() => void) | null = null;
  scripts = [(session) => {
    answer = () => session.send(right);
  }];
  const clients = [];
  for (let i = 0; i < 20; i++) {
    const client = await RawClient.connect(pooler);
    client.startup({ user: "app", database: "shop" });
    clients.push(client);
  }
  await until("the first query", () => answer !== null);
  for (const client of clients) client.close();
  const late = login();
  answer!();
  assert.is(await late, "in");
  // Those who are heard of while one is asked share the next: on a busy machine they are not heard of together.
  assert.ok(asked < 10, `${asked} queries`);
});

tests("a server that does not let auth_user in is waited for as long as clients wait", async () => {
  loginHangs = true;
  const own = await startPgweir({
    ini: {
      databases: { shop: `host=127.0.0.1 port=${fake.port}` },
      pgbouncer: { auth_type: "md5", auth_user: "asker", query_wait_timeout: 0.5 },
    },
    userlist: { asker: "asks" },
  });
  const at = performance.now();
  let told = "";
  await RawClient.login(own, { user: "app", database: "shop", password: "right" })
    .catch((error) => told = `${error.code} ${error.fields?.message}`);
  assert.is(told, "53300 query_wait_timeout");
  assert.ok(performance.now() - at >= 500);
  loginHangs = false;
  await own.kill();
});

// Before the proof nobody is told which server it is, nor what it says.
const causes = {
  dead: "connect failed",
  unresolved: "server DNS lookup failed",
  refused: "login failed",
};
for (const [database, cause] of Object.entries(causes)) {
  tests(`a login when the server of auth_user is ${database}`, async () => {
    const fields: unknown[] = [];
    const attempt = async () => {
      try {
        await RawClient.login(pooler, { user: "app", database, password: "right" });
        return "in";
      } catch (error) {
        if (!(error instanceof ServerError)) throw error;
        fields.push(error.fields);
        return `${error.code} ${error.fields.message}`;
      }
    };
    const first = await attempt();
    assert.ok(
      database === "refused" ? first === failing(cause) : first === "53300 query_wait_timeout",
    );
    await until("the error at once", async () => await attempt() === failing(cause));
    assert.not.match(
      JSON.stringify(fields),
      new RegExp(`127\\.0|${deadPort}|${postgres.port}|no-such|asker|refused|pg_hba`),
    );
    const line = `${database}/asker: connection to server failed`;
    await until("the log", () => pooler.log().includes(line));
  });
}

tests.run();
