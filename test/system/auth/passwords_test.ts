// Passwords that are no plain ASCII, and long ones: a spelling that PostgreSQL takes for the right one is taken here,
// by SCRAM and in clear text, from clients and towards servers; what is too long is refused, never cut.
// limit: 240 s

import {
  deriveScramSecret,
  formatScramSecret,
  passwordMessage,
  saltedPassword,
} from "../../../shared/wire/mod.ts";
import { assert, suite } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { type Pgweir, startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { RawClient, ServerError, type Target } from "../../support/raw_client.ts";

needs("postgresql");

/** Two spellings: with the first one the password is set, with both one can log in. */
const SPELLINGS: readonly (readonly [string, string])[] = [
  ["I\u00adX", "IX"],
  ["\u2168", "IX"],
  ["pass\u00a0word", "pass word"],
  ["\u00aa", "a"],
  ["control\u0007character", "control\u0007character"],
  ["hola que tal", "hola que tal"],
  ["\u0627\u0031", "\u0627\u0031"],
  ["quote\"s and 'more' \\ of them", "quote\"s and 'more' \\ of them"],
  ["\u00fcml\u00e4ut \u4e2d\u6587", "u\u0308mla\u0308ut \u4e2d\u6587"],
  // Newer than the tables of SASLprep, which leave it as it is.
  ["\ud83d\ude00", "\ud83d\ude00"],
];
const LENGTHS = [995, 996, 1023, 1024, 2047, 4096, 16_000];
const longPassword = (length: number) => "0123456789abcdef".repeat(1001).slice(0, length - 1) + "!";
const notUtf8 = Uint8Array.of(0xff, 0xfe, 0x61);

const postgres = await startPostgres({ auth: "scram-sha-256" });
const plainUsers: Record<string, string> = {};
const storedUsers: Record<string, string> = {};

async function createUser(user: string, password: string | Uint8Array): Promise<void> {
  const salt = crypto.getRandomValues(new Uint8Array(16));
  const secret = typeof password === "string" ? password.replaceAll("'", "''") : formatScramSecret(
    deriveScramSecret(await saltedPassword(password, salt, 4096), salt, 4096),
  );
  await postgres.query(
    `SET standard_conforming_strings = on; CREATE ROLE ${user} LOGIN PASSWORD '${secret}'`,
  );
  const [row] = await postgres.query("SELECT rolpassword FROM pg_authid WHERE rolname = $1", [
    user,
  ]);
  storedUsers[user] = String(row!["rolpassword"]);
  if (typeof password === "string") plainUsers[user] = password;
}

for (const [i, [password]] of SPELLINGS.entries()) await createUser(`spelled${i}`, password);
for (const length of LENGTHS) await createUser(`long${length}`, longPassword(length));
await createUser("raw", notUtf8);
await createUser("empty", "");

type Source = "plain" | "stored";
const poolers = new Map<string, Pgweir>();
for (const auth of ["scram-sha-256", "plain"]) {
  for (const source of ["plain", "stored"] as const satisfies readonly Source[]) {
    poolers.set(
      `${auth} with ${source} secrets`,
      await startPgweir({
        ini: {
          databases: { postgres: `host=127.0.0.1 port=${postgres.port}` },
          pgbouncer: { auth_type: auth },
        },
        userlist: { admin: "", ...(source === "plain" ? plainUsers : storedUsers) },
      }),
    );
  }
}

async function login(
  target: Target,
  user: string,
  password: string | Uint8Array,
): Promise<string> {
  try {
    const client = await RawClient.login(target, { user, database: "postgres", password });
    const rows = await client.query("SELECT 1");
    await client.end();
    return rows.length === 1 ? "in" : "no row";
  } catch (error) {
    if (error instanceof ServerError) return error.code;
    throw error;
  }
}

const tests = suite("odd passwords");

tests.after(async () => {
  for (const pooler of poolers.values()) await pooler.stop();
  await postgres.stop("immediate");
});

for (const [name, pooler] of poolers) {
  // The bytes as they came were hashed: valid passwords were refused, though PostgreSQL takes them.
  tests(`both spellings of a password are right, ${name}`, async () => {
    for (const [i, spellings] of SPELLINGS.entries()) {
      for (const spelling of spellings) {
        const what = JSON.stringify(spelling);
        assert.is(await login(postgres, `spelled${i}`, spelling), "in", `${what} directly`);
        assert.is(await login(pooler, `spelled${i}`, spelling), "in", what);
      }
      assert.is(await login(pooler, `spelled${i}`, `${spellings[1]} `), "28P01");
    }
  });

  // Buffers of a fixed size: a cloud provider's token of some KiB was cut, so that a part of it was enough.
  tests(`long passwords are taken whole, ${name}`, async () => {
    for (const length of LENGTHS) {
      const user = `long${length}`;
      const password = longPassword(length);
      assert.is(await login(pooler, user, password), "in", user);
      const almost = `${password.slice(0, -1)}?`;
      assert.is(await login(pooler, user, almost), "28P01", `${user}, last byte changed`);
      assert.is(await login(pooler, user, password.slice(0, -1)), "28P01", `${user}, cut`);
      assert.is(await login(pooler, user, `${password}x`), "28P01", `${user}, longer`);
    }
  });

  // A user without a password has an empty secret in the file: whoever sent an empty password was that user.
  tests(`no password is no password, ${name}`, async () => {
    for (const password of ["", "empty"]) {
      assert.is(await login(pooler, "empty", password), "28P01");
    }
  });
}

// A password that is no text at all: it was turned into text first, with question marks.
for (const auth of ["scram-sha-256", "plain"]) {
  tests(`a password that is not UTF-8 is taken as it is, ${auth}`, async () => {
    const pooler = poolers.get(`${auth} with stored secrets`)!;
    assert.is(await login(postgres, "raw", notUtf8), "in");
    assert.is(await login(pooler, "raw", notUtf8), "in");
    assert.is(await login(pooler, "raw", Uint8Array.of(0xff, 0xfd, 0x61)), "28P01");
    assert.is(await login(pooler, "raw", "\ufffd\ufffda"), "28P01");
  });
}

// It came in two segments, and the second one was taken for the next message.
tests("a password message may come in pieces", async () => {
  const pooler = poolers.get("plain with plain secrets")!;
  const message = passwordMessage(longPassword(4096));
  for (const cuts of [[1], [4], [5, 6], [1000, 2000], [message.length - 1]]) {
    const client = await RawClient.connect(pooler);
    client.startup({ user: "long4096", database: "postgres" });
    await client.message();
    await client.sendCut(message, cuts);
    assert.match(await client.replies(), /^R (S )+K Z\(I\)$/);
    await client.end();
  }
});

// What was longer than the buffer was cut: the beginning of a password was as good as the whole.
tests("a password beyond 16 KiB is refused, whatever it is", async () => {
  for (const pooler of poolers.values()) {
    const client = await RawClient.connect(pooler);
    client.startup({ user: "long16000", database: "postgres" });
    await client.message();
    client.send(passwordMessage("x".repeat(65_535)));
    assert.is(await client.repliesUntilClosed(), "E(08P01) closed");
  }
});

tests.run();
