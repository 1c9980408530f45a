// Passwords that others judge: how many are asked for at once, and that those who leave are not asked for and not answered.

import { PasswordChecks, type PasswordProof } from "../../services/pooler/password_checks.ts";
import { parseLdapOptions } from "../../shared/config/mod.ts";
import { assert, suite } from "../support/harness.ts";

const test = suite("password checks");

const options = parseLdapOptions("ldapserver=a ldapprefix=p");
if ("failure" in options) throw new Error(options.failure);
const ldap = (user: string): PasswordProof => ({ kind: "ldap", options, user, password: "x" });
const pam = (user: string): PasswordProof => {
  return { kind: "pam", question: { service: "s", folder: "", user, password: "x", host: "h" } };
};

/** Judges that answer when they are told to. */
function world() {
  const asked: string[] = [];
  const told: string[] = [];
  const judges: ((verdict: string | null) => void)[] = [];
  const ask = (user: string) => {
    asked.push(user);
    return new Promise<string | null>((resolve) => judges.push(resolve));
  };
  const checks = new PasswordChecks(
    { check: (_options, user) => ask(user) },
    { check: ({ user }) => ask(user), close: () => {} },
    (id, verdict) => told.push(`${id} ${verdict}`),
  );
  return { asked, told, judges, checks };
}

/** Lets promises that are settled go on. */
const settle = () => new Promise<void>((resolve) => setTimeout(resolve, 0));

test("LDAP is asked for sixteen at once, PAM beside it", async () => {
  const { asked, told, judges, checks } = world();
  for (let id = 1; id <= 20; id++) void checks.check(id, ldap(`u${id}`));
  void checks.check(21, pam("p"));
  await settle();
  assert.is(asked.length, 17);
  assert.ok(asked.includes("p"));
  judges[0]!(null);
  judges[1]!("no");
  await settle();
  assert.is(asked.length, 19);
  assert.equal(told, ["1 null", "2 no"]);
});

test("who leaves is not asked for, and not answered", async () => {
  const { asked, told, judges, checks } = world();
  for (let id = 1; id <= 18; id++) void checks.check(id, ldap(`u${id}`));
  checks.abandon(17);
  checks.abandon(1);
  await settle();
  judges[0]!(null);
  await settle();
  assert.equal(told, []);
  assert.equal(asked.slice(16), ["u18"]);
});

test("beyond a bound a login fails at once", async () => {
  const { told, checks } = world();
  for (let id = 1; id <= 4097; id++) void checks.check(id, id % 2 === 0 ? ldap("u") : pam("u"));
  await settle();
  assert.equal(told, ["4097 too many logins wait for PAM"]);
});

test.run();
