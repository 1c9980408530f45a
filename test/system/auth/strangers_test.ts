// What somebody without a password can learn: nothing. Whether a user or a database exists, which secrets are stored
// and which servers are down is told after the proof only, and all failures look the same, on every worker.
// limit: 300 s

import {
  Backend,
  cancelKeyWorker,
  deriveScramSecret,
  formatScramSecret,
  md5Response,
  md5Secret,
  parseAuthentication,
  type ParsedError,
  parseErrorFields,
  passwordMessage,
  saslInitialResponse,
  saslResponse,
  ScramClientExchange,
  scramSha256,
} from "../../../shared/wire/mod.ts";
import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { notation } from "../../support/notation.ts";
import { type Pgweir, startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { RawClient, ServerError } from "../../support/raw_client.ts";
import { freePort } from "../../support/temp.ts";

needs("postgresql");

const postgres = await startPostgres();
await postgres.query("CREATE ROLE outsider LOGIN");
await postgres.query("CREATE DATABASE closed_shop");
await postgres.query("REVOKE CONNECT ON DATABASE closed_shop FROM PUBLIC");
const [stored] = await postgres.query(
  "CREATE ROLE hashed LOGIN PASSWORD 'right'; SELECT rolpassword FROM pg_authid WHERE rolname = 'hashed'",
);
const userlist = {
  postgres: "right",
  outsider: "right",
  hashed: String(stored!["rolpassword"]),
  hash_md5: md5Secret("hash_md5", "right"),
  nothing: "",
  admin: "right",
};
const stored40k = formatScramSecret(
  deriveScramSecret(new Uint8Array(32).fill(1), new Uint8Array(16).fill(2), 40_000),
);
const deadPort = await freePort();
const databases = {
  postgres: `host=127.0.0.1 port=${postgres.port}`,
  dead: `host=127.0.0.1 port=${deadPort}`,
  unresolved: "host=no-such-host.invalid",
  closed_shop: `host=127.0.0.1 port=${postgres.port}`,
};
/** Users and databases, existing or not, that must all look alike. */
const ATTEMPTS: readonly (readonly [user: string, database: string])[] = [
  ["postgres", "postgres"],
  ["hashed", "postgres"],
  ["nothing", "postgres"],
  ["stranger", "postgres"],
  ["postgres", "nowhere"],
  ["stranger", "nowhere"],
  ["outsider", "closed_shop"],
  ["postgres", "dead"],
  ["postgres", "unresolved"],
  ["postgres", "pgbouncer"],
  ["admin", "pgbouncer"],
  ["stranger", "pgbouncer"],
];

const start = (settings: Record<string, string | number>, workers?: number) =>
  startPgweir({
    ini: { databases, pgbouncer: { server_login_retry: 0.2, max_client_conn: 400, ...settings } },
    userlist,
    ...(workers === undefined ? {} : { workers }),
    readyTimeoutMs: 60_000,
  });

interface Seen {
  /** The messages of the pooler in the short notation. */
  readonly replies: string;
  readonly error: ParsedError;
  readonly salt: string;
  readonly iterations: number;
}

/** Logs in with a wrong password and keeps all that can be seen. */
async function attempt(
  pooler: Pgweir,
  user: string,
  database: string,
  password = "wrong",
): Promise<Seen> {
  const client = await RawClient.connect(pooler);
  client.startup({ user, database });
  const replies: string[] = [];
  const scram = new ScramClientExchange();
  let salt = "";
  let iterations = 0;
  for (;;) {
    const message = (await client.message())!;
    replies.push(notation(message));
    if (message.type === Backend.errorResponse) {
      assert.is(await client.repliesUntilClosed(), "closed");
      return {
        replies: replies.join(" "),
        error: parseErrorFields(message.body),
        salt,
        iterations,
      };
    }
    const asked = parseAuthentication(message.body);
    if (asked.kind === "md5") {
      client.send(passwordMessage(md5Response(md5Secret(user, password), asked.salt)));
    } else if (asked.kind === "cleartext") {
      client.send(passwordMessage(password));
    } else if (asked.kind === "sasl") {
      client.send(saslInitialResponse(scramSha256, scram.first()));
    } else if (asked.kind === "saslContinue") {
      const challenge = scram.continue(asked.data);
      assert.is(challenge.kind, "challenge");
      if (challenge.kind !== "challenge") continue;
      salt = [...challenge.salt].join();
      iterations = challenge.iterations;
      client.send(saslResponse(scram.proof(new Uint8Array(32))));
    } else {
      throw new Error(`attempt: asked for ${asked.kind}`);
    }
  }
}

const tests = suite("strangers");

tests.after(async () => {
  await postgres.stop("immediate");
});

for (const auth of ["scram-sha-256", "md5", "plain"]) {
  // An unknown user or database, or a server that was down, was told before the password was asked for, or in
  // other words, or after another number of messages.
  tests(`every failed login looks the same with auth_type ${auth}`, async () => {
    const pooler = await start({ auth_type: auth });
    // Whose secret is a SCRAM secret is asked for SCRAM by md5 too, as PostgreSQL does it; and so are some strangers,
    // always the same ones.
    const shapes = new Map<string, ParsedError>();
    const known = await attempt(pooler, "postgres", "postgres");
    const hashed = await attempt(pooler, "hashed", "postgres");
    for (const { replies, error } of [known, hashed]) shapes.set(replies, error);
    assert.is(shapes.size, auth === "md5" ? 2 : 1);
    const byUser = new Map([["hashed", hashed.replies], ["nothing", ""], ["stranger", ""]]);
    for (const [user, database] of ATTEMPTS) {
      const seen = await attempt(pooler, user, database);
      const before = byUser.get(user) ?? known.replies;
      if (before !== "") assert.is(seen.replies, before, `${user} to ${database}`);
      byUser.set(user, seen.replies);
      assert.equal(seen.error, shapes.get(seen.replies), `${user} to ${database}`);
      assert.is(seen.error.code, "28P01");
      assert.not.match(JSON.stringify(seen.error), /stranger|nowhere|dead|127\.0|outsider|closed/);
    }
    await pooler.stop();
  });
}

// A database that an operator had disabled or paused was told before the password was asked for.
tests("a database that is disabled or paused looks like any other, until the proof", async () => {
  const pooler = await start({ auth_type: "scram-sha-256", admin_users: "admin" });
  const admin = await RawClient.login(pooler, {
    user: "admin",
    database: "pgbouncer",
    password: "right",
  });
  const before = await attempt(pooler, "postgres", "postgres");
  for (const command of ["DISABLE postgres", "ENABLE postgres", "PAUSE postgres"]) {
    await admin.query(command);
    for (const user of ["postgres", "stranger"]) {
      const seen = await attempt(pooler, user, "postgres");
      assert.equal([seen.replies, seen.error], [before.replies, before.error], command);
    }
  }
  await admin.query("RESUME postgres");
  await admin.query("DISABLE postgres");
  const right = { user: "postgres", database: "postgres", password: "right" };
  const refusal = await RawClient.login(pooler, right).catch((error) => error);
  assert.is(refusal instanceof ServerError && refusal.code, "57P03");
  await admin.end();
  await pooler.stop();
});

const median = (values: readonly number[]) =>
  [...values].sort((a, b) => a - b)[values.length >> 1]!;

// A wrong clear password took milliseconds where there was a SCRAM secret to compare it with, and none where there
// was no user; and md5 asked strangers for md5 where all users have SCRAM secrets.
tests("strangers look and take as long as users whose secrets are SCRAM secrets", async () => {
  for (const auth of ["plain", "md5", "scram-sha-256"]) {
    const pooler = await startPgweir({
      ini: { databases, pgbouncer: { auth_type: auth, scram_iterations: 40_000 } },
      userlist: { hashed: stored40k },
    });
    const took: Record<string, number[]> = { hashed: [], stranger: [] };
    const medians = () => Object.values(took).map(median) as [number, number];
    const isAlike = () => {
      const [known, stranger] = medians();
      return stranger > known / 2 && stranger < known * 2;
    };
    // What differs each time still differs after many times, which noise does not.
    for (let i = 0; i < 20 || (i < 400 && !isAlike()); i++) {
      for (const [user, times] of Object.entries(took)) {
        const at = performance.now();
        const seen = await attempt(pooler, user, "postgres", `wrong ${i}`);
        times.push(performance.now() - at);
        assert.is(seen.replies, auth === "plain" ? "R E(28P01)" : "R R E(28P01)");
      }
    }
    assert.ok(isAlike(), `${auth}: ${medians().join(" ")} ms`);
    await pooler.stop();
  }
});

tests("who is looked up and not found looks like who is found", async () => {
  const pooler = await startPgweir({
    ini: { databases, pgbouncer: { auth_type: "md5", auth_user: "postgres" } },
    userlist: { postgres: "plain" },
  });
  const known = await attempt(pooler, "hashed", "postgres");
  for (const user of ["stranger", "outsider", "expired"]) {
    const seen = await attempt(pooler, user, "postgres");
    assert.is(seen.replies, known.replies, user);
    assert.equal(seen.error, known.error, user);
    assert.is(seen.iterations, known.iterations);
    assert.is(seen.salt.split(",").length, known.salt.split(",").length);
    assert.is(seen.salt, (await attempt(pooler, user, "postgres")).salt);
  }
  await pooler.stop();
});

// A stranger asked twice: real users have one salt, unknown ones had a new one each time, or one for each
// worker, or the iterations of another setting.
tests("salts and iterations tell nobody who exists, whichever worker is asked", async () => {
  const pooler = await start({ auth_type: "scram-sha-256", scram_iterations: 5000 }, 2);
  for (const user of ["postgres", "stranger", "hash_md5", "nothing", "other stranger"]) {
    const salts = new Set<string>();
    for (let i = 0; i < 12; i++) {
      const seen = await attempt(pooler, user, "postgres");
      salts.add(seen.salt);
      assert.is(seen.salt.split(",").length, 16, user);
      assert.is(seen.iterations, 5000, user);
    }
    assert.is(salts.size, 1, `${user} has ${salts.size} salts`);
  }
  assert.is.not(
    (await attempt(pooler, "stranger", "postgres")).salt,
    (await attempt(pooler, "other stranger", "postgres")).salt,
  );
  // Both workers have been asked, since the kernel chooses for each of the sixty.
  const workers = new Set<number>();
  await until("both workers", async () => {
    const client = await RawClient.login(pooler, {
      user: "postgres",
      database: "postgres",
      password: "right",
    });
    workers.add(cancelKeyWorker(client.key!.processId, client.key!.secret));
    await client.end();
    return workers.size === 2;
  });
  await pooler.stop();
});

// After the proof the truth helps.
tests("who has proved to be somebody is told what is wrong", async () => {
  const pooler = await start({ auth_type: "scram-sha-256" });
  const told = async (user: string, database: string) => {
    try {
      await (await RawClient.login(pooler, { user, database, password: "right" })).end();
      return "in";
    } catch (error) {
      return error instanceof ServerError ? `${error.code} ${error.fields.message}` : String(error);
    }
  };
  assert.is(await told("postgres", "postgres"), "in");
  assert.is(await told("postgres", "nowhere"), "3D000 no such database: nowhere");
  assert.match(await told("outsider", "closed_shop"), /^42501 permission denied for database/);
  assert.match(await told("postgres", "pgbouncer"), /^42501 not allowed/);
  await pooler.stop();
});

tests.run();
