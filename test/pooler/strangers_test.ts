// What stands in for unknown users: always the same for a name, as often of each kind as known users are, and of no use.

import { ControlLink } from "../../services/pooler/plane/control_link.ts";
import type { Credential } from "../../services/pooler/plane/credentials.ts";
import { Strangers } from "../../services/pooler/plane/strangers.ts";
import { secretKind, type UserSecret } from "../../shared/config/mod.ts";
import {
  deriveScramSecret,
  formatScramSecret,
  md5Secret,
  ScramClientExchange,
  scramKeys,
  type ScramSecret,
  ScramServerExchange,
} from "../../shared/wire/mod.ts";
import { assert, suite } from "../support/harness.ts";

const key = new Uint8Array(32).fill(7);
const salted = new Uint8Array(32).fill(9);
const scramText = formatScramSecret(deriveScramSecret(salted, new Uint8Array(16), 4096));

function users(scram: number, md5: number, plain: number, none = 0): UserSecret[] {
  const of = (count: number, secret: string) =>
    Array.from({ length: count }, (_, i) => ({
      user: `${secret.slice(0, 4)}${i}`,
      kind: secretKind(secret),
      secret,
    }));
  return [
    ...of(scram, scramText),
    ...of(md5, md5Secret("u", "p")),
    ...of(plain, "password"),
    ...of(none, ""),
  ];
}

/** The share of names that seem to have a SCRAM secret. */
function share(strangers: Strangers, lookedUp = false): number {
  const names = Array.from({ length: 2000 }, (_, i) => `name ${i}`);
  const scram = names.filter((name) => strangers.credential(name, 4096, "md5", lookedUp).hasScram);
  return scram.length / names.length;
}

/** What a client is asked to prove; nothing has to be derived for it. */
function offeredBy(credential: Credential): readonly ScramSecret[] {
  let offered: readonly ScramSecret[] = [];
  const control = new ControlLink(() => {});
  credential.scramSecrets(control, key, 4096, (secrets) => offered = secrets);
  return offered;
}

const test = suite("strangers");

test("a stranger has a SCRAM secret as often as users of the auth_file have", () => {
  const rows: [scram: number, md5: number, plain: number, none: number, expected: number][] = [
    [0, 0, 0, 0, 0],
    [0, 3, 4, 0, 0],
    [5, 0, 0, 0, 1],
    [5, 0, 0, 5, 1],
    [1, 1, 0, 0, 0.5],
    [1, 1, 1, 1, 1 / 3],
    [9, 0, 1, 0, 0.9],
  ];
  for (const [scram, md5, plain, none, expected] of rows) {
    const strangers = new Strangers(key);
    strangers.know(users(scram, md5, plain, none));
    const found = share(strangers);
    assert.ok(Math.abs(found - expected) < 0.04, `${found}, wanted ${expected}`);
    if (expected === 0 || expected === 1) assert.is(found, expected);
  }
});

test("a stranger that was looked up is taken for one of those that are found", () => {
  const strangers = new Strangers(key);
  assert.is(share(strangers, true), 1);
  for (let i = 0; i < 3; i++) strangers.onFound("md5");
  assert.is(share(strangers, true), 0);
  for (let i = 0; i < 9; i++) strangers.onFound("scram-sha-256");
  assert.is(share(strangers, true), 1);
});

test("a stranger is the same on all workers and at each time, and no other", () => {
  const strangers = [new Strangers(key), new Strangers(key)];
  for (const each of strangers) each.know(users(1, 1, 0));
  const other = new Strangers(new Uint8Array(32).fill(8));
  for (const method of ["md5", "scram-sha-256", "plain"]) {
    const secrets = new Set<string>();
    for (let i = 0; i < 50; i++) {
      const [a, b] = strangers.map((each) => each.credential(`n${i}`, 4096, method, false));
      assert.is(a!.identity, b!.identity);
      assert.is(a!.isMock, true);
      secrets.add(a!.identity);
      assert.is.not(other.credential(`n${i}`, 4096, method, false).identity, a!.identity);
    }
    assert.is(secrets.size, 50);
  }
  const [scram] = offeredBy(strangers[0]!.credential("n", 5000, "scram-sha-256", false));
  assert.is(scram?.iterations, 5000);
  assert.is(scram?.salt.length, 16);
});

test("nobody proves to be a stranger, whatever key is tried", () => {
  const [scram] = offeredBy(new Strangers(key).credential("n", 4096, "scram-sha-256", false));
  const server = new ScramServerExchange(scram!);
  const client = new ScramClientExchange();
  const first = server.first(client.first());
  assert.ok(first.ok);
  if (!first.ok) return;
  client.continue(first.reply);
  const final = server.final(client.proofFromKeys(scramKeys(salted)));
  assert.is(final.ok, false);
});

test.run();
