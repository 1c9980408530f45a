// Logging in by every method on both sides at once: clients with md5, SCRAM and clear text, stored secrets of every
// kind, and a PostgreSQL that asks each of its users for another one.
// limit: 240 s

import { execFile } from "node:child_process";
import { promisify } from "node:util";
import {
  Backend,
  concatBytes,
  message,
  passwordMessage,
  saslInitialResponse,
  saslResponse,
  ScramClientExchange,
  scramSha256,
  scramSha256Plus,
  startupPacket,
} from "../../../shared/wire/mod.ts";
import { assert, suite } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import { type Pgweir, startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { RawClient, ServerError } from "../../support/raw_client.ts";

needs("postgresql");

const PASSWORD = "it's a secret";
/** Users by name: how PostgreSQL stores the password and asks for it, and what the auth_file has. */
const USERS = {
  plain_md5: { stored: "md5", asked: "md5", file: "plain" },
  hash_md5: { stored: "md5", asked: "md5", file: "stored" },
  plain_scram: { stored: "scram-sha-256", asked: "scram-sha-256", file: "plain" },
  hash_scram: { stored: "scram-sha-256", asked: "scram-sha-256", file: "stored" },
  plain_clear: { stored: "scram-sha-256", asked: "password", file: "plain" },
  // PostgreSQL upgrades md5 to SCRAM where the password is stored so.
  plain_either: { stored: "scram-sha-256", asked: "md5", file: "plain" },
} as const;

const postgres = await startPostgres({
  hba: Object.entries(USERS).map(([user, { asked }]) => `host all ${user} 127.0.0.1/32 ${asked}`),
});
const userlist: Record<string, string> = { nothing: "", admin: "admin" };
for (const [user, { stored, file }] of Object.entries(USERS)) {
  await postgres.query(
    `SET password_encryption = '${stored}'; CREATE ROLE ${user} LOGIN PASSWORD '${
      PASSWORD.replaceAll("'", "''")
    }'`,
  );
  const [row] = await postgres.query("SELECT rolpassword FROM pg_authid WHERE rolname = $1", [
    user,
  ]);
  userlist[user] = file === "plain" ? PASSWORD : String(row!["rolpassword"]);
}
await postgres.query("CREATE ROLE nothing LOGIN");

const poolers = new Map<string, Pgweir>();
for (const auth of ["md5", "scram-sha-256", "plain"]) {
  poolers.set(
    auth,
    await startPgweir({
      ini: {
        databases: { postgres: `host=127.0.0.1 port=${postgres.port}` },
        pgbouncer: { auth_type: auth },
      },
      userlist,
    }),
  );
}

/** What is asked for first: 3 clear text, 5 md5, 10 SASL. */
async function asked(pooler: Pgweir, user: string): Promise<number> {
  const client = await RawClient.connect(pooler);
  client.startup({ user, database: "postgres" });
  const first = await client.message();
  client.close();
  assert.is(first?.type, Backend.authentication);
  return first!.body[3]!;
}

async function login(pooler: Pgweir, user: string, password: string): Promise<string> {
  try {
    const client = await RawClient.login(pooler, { user, database: "postgres", password });
    const [row] = await client.query("SELECT current_user");
    await client.end();
    return row![0] === user ? "in" : `in as ${row![0]}`;
  } catch (error) {
    if (error instanceof ServerError) return error.code;
    throw error;
  }
}

const tests = suite("login methods");

tests.after(async () => {
  for (const pooler of poolers.values()) await pooler.stop();
  await postgres.stop("immediate");
});

// One method was used for all users, also those whose stored secret is of another kind: "wrong password type",
// or a request for the password in clear text.
for (const [auth, pooler] of poolers) {
  tests(`auth_type ${auth} takes every user whose secret can prove it`, async () => {
    for (const user of Object.keys(USERS)) {
      // A md5 secret can't prove anything by SCRAM.
      const possible = !(auth === "scram-sha-256" && user === "hash_md5");
      assert.is(await login(pooler, user, PASSWORD), possible ? "in" : "28P01", user);
      for (const wrong of [PASSWORD + "x", PASSWORD.slice(0, -1), ""]) {
        assert.is(await login(pooler, user, wrong), "28P01", `${user} with "${wrong}"`);
      }
      // Still right after wrong ones, on a server that is there and on a new one.
      assert.is(await login(pooler, user, PASSWORD), possible ? "in" : "28P01", user);
    }
    for (const password of ["", "nothing", PASSWORD]) {
      assert.is(await login(pooler, "nothing", password), "28P01");
    }
    assert.is(await login(pooler, "stranger", PASSWORD), "28P01");
  });

  // Where one user could not use the method of the file, everybody was asked for a weaker one, down to the clear
  // password.
  tests(`auth_type ${auth} asks for no less than it says`, async () => {
    const wanted = auth === "plain" ? 3 : auth === "md5" ? 5 : 10;
    for (const user of [...Object.keys(USERS), "nothing", "stranger"]) {
      const upgraded = auth === "md5" && user === "hash_scram";
      const first = await asked(pooler, user);
      // Who is not known, or has no secret, looks like any of the others.
      if (auth === "md5" && !(user in USERS)) assert.ok(first === 5 || first === 10, user);
      else assert.is(first, upgraded ? 10 : wanted, user);
    }
  });

  // What a raw client proves is what we believe of the protocol; libpq checks the server's signature too.
  tests(`psql logs in with auth_type ${auth}`, async () => {
    const run = promisify(execFile);
    for (const user of ["plain_md5", "hash_scram"]) {
      const address = `host=127.0.0.1 port=${pooler.port} user=${user} dbname=postgres`;
      const environment = { ...process.env, PGPASSWORD: PASSWORD };
      const { stdout } = await run("psql", ["-XAtc", "SELECT current_user", address], {
        env: environment,
      });
      assert.is(stdout, `${user}\n`);
    }
  });
}

const scramFirst = () => new ScramClientExchange().first();
const startup = (user: string) => startupPacket({ user, database: "postgres" });

interface Misuse {
  readonly auth: string;
  readonly user: string;
  /** What is sent in answer to each message of the pooler. */
  readonly answers: readonly Uint8Array[];
}

const MISUSES: Readonly<Record<string, Misuse>> = {
  "a SASL message to a md5 challenge": {
    auth: "md5",
    user: "plain_md5",
    answers: [saslInitialResponse(scramSha256, scramFirst())],
  },
  "a clear password to a SASL request": {
    auth: "scram-sha-256",
    user: "plain_scram",
    answers: [passwordMessage(PASSWORD)],
  },
  "the SASL answer twice": {
    auth: "scram-sha-256",
    user: "plain_scram",
    answers: [
      saslInitialResponse(scramSha256, scramFirst()),
      saslInitialResponse(scramSha256, scramFirst()),
    ],
  },
  "both SASL answers at once": {
    auth: "scram-sha-256",
    user: "plain_scram",
    answers: [concatBytes(
      saslInitialResponse(scramSha256, scramFirst()),
      saslResponse(new TextEncoder().encode("c=biws,r=x,p=x")),
    )],
  },
  "an unknown mechanism": {
    auth: "scram-sha-256",
    user: "plain_scram",
    answers: [saslInitialResponse("SCRAM-SHA-1", scramFirst())],
  },
  "channel binding without TLS": {
    auth: "scram-sha-256",
    user: "hash_scram",
    answers: [saslInitialResponse(scramSha256Plus, scramFirst())],
  },
  "no data in the SASL answer": {
    auth: "scram-sha-256",
    user: "hash_scram",
    answers: [
      message(
        0x70,
        new TextEncoder().encode(`${scramSha256}\0`),
        Uint8Array.of(255, 255, 255, 255),
      ),
    ],
  },
  "a password message without an end": {
    auth: "md5",
    user: "hash_md5",
    answers: [message(0x70, new TextEncoder().encode("md5"))],
  },
  "an empty password message": { auth: "plain", user: "plain_clear", answers: [message(0x70)] },
  "a query": { auth: "md5", user: "plain_md5", answers: [f.Q("SELECT 1")] },
  "a length that is no length": {
    auth: "md5",
    user: "plain_md5",
    answers: [Uint8Array.of(0x70, 0, 0, 0, 1)],
  },
  "a length of two gigabytes": {
    auth: "scram-sha-256",
    user: "plain_scram",
    answers: [Uint8Array.of(0x70, 0x7f, 255, 255, 255)],
  },
};

for (const [what, misuse] of Object.entries(MISUSES)) {
  // It crashed a process, or was told apart from a wrong password, or led past the proof.
  tests(`${what} ends the login with an error`, async () => {
    const pooler = poolers.get(misuse.auth)!;
    const client = await RawClient.connect(pooler);
    client.send(startup(misuse.user));
    for (const answer of misuse.answers) {
      assert.is((await client.message())?.type, Backend.authentication);
      client.send(answer);
    }
    const got = await client.repliesUntilClosed();
    assert.match(got, /^(R )?E\((28P01|08P01)\) closed$/);
    assert.is(await login(pooler, misuse.user, PASSWORD), "in");
  });
}

tests.run();
