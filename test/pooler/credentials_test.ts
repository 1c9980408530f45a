// Proofs of one or several secrets, of each kind and by each method, without a client or a server.

import { ControlLink } from "../../services/pooler/plane/control_link.ts";
import { Credential } from "../../services/pooler/plane/credentials.ts";
import { parseUserlist } from "../../shared/config/mod.ts";
import {
  deriveScramSecret,
  formatScramSecret,
  md5Response,
  md5Secret,
  saltedPassword,
  ScramClientExchange,
  ScramServerExchange,
} from "../../shared/wire/mod.ts";
import { assert, suite } from "../support/harness.ts";

const mockKey = new Uint8Array(32).fill(7);
const iterations = 2;

/** A plane's link to a control thread that derives keys. */
function linked(): ControlLink {
  const link: ControlLink = new ControlLink((message) => {
    if (message.type !== "salt") return;
    const { id, password, salt, iterations } = message;
    saltedPassword(password, salt, iterations).then((salted) =>
      link.onAnswer({ type: "salted", id, salted })
    );
  });
  return link;
}

/** A user with these lines in the auth_file. */
function credentialOf(...secrets: string[]): Credential {
  const text = secrets.map((secret) => `"u" "${secret}"\n`).join("");
  const { users, problems } = parseUserlist(text, "users.txt", true);
  assert.equal(problems, []);
  return new Credential(users.get("u")!);
}

const md5 = (password: string) => md5Secret("u", password);
async function scram(password: string, salt: number): Promise<string> {
  const bytes = new Uint8Array(16).fill(salt);
  const salted = await saltedPassword(password, bytes, iterations);
  return formatScramSecret(deriveScramSecret(salted, bytes, iterations));
}

async function provesByScram(credential: Credential, password: string): Promise<boolean> {
  const secrets = await new Promise<Parameters<typeof pick>[0]>((resolve) =>
    credential.scramSecrets(linked(), mockKey, iterations, resolve)
  );
  const [first, others] = pick(secrets);
  if (first === undefined) return false;
  const server = new ScramServerExchange(first, { others });
  const client = new ScramClientExchange();
  const reply = server.first(client.first());
  if (!reply.ok) throw new Error(reply.message);
  const challenge = client.continue(reply.reply);
  if (challenge.kind !== "challenge") throw new Error(challenge.message);
  const { salt, iterations: count } = challenge;
  const final = server.final(client.proof(await saltedPassword(password, salt, count)));
  if (!final.ok) return false;
  assert.ok(client.verifyFinal(final.reply), "the server's own proof");
  credential.onScramProof(final.secret, final.clientKey);
  return true;
}

function pick(secrets: readonly ReturnType<typeof deriveScramSecret>[]) {
  const [first, ...others] = secrets;
  return [first, others] as const;
}

const provesByMd5 = (credential: Credential, password: string) => {
  const salt = Uint8Array.of(1, 2, 3, 4);
  const response = new TextEncoder().encode(md5Response(md5(password), salt));
  return credential.provesMd5(salt, response);
};

const provesByPassword = (credential: Credential, password: string) =>
  new Promise<boolean>((resolve) =>
    credential.provesPassword(new TextEncoder().encode(password), linked(), resolve)
  );

const test = suite("Credential");

test("any of the secrets is proved by each method that can prove its kind", async () => {
  const [one, two, twin] = await Promise.all([scram("one", 1), scram("two", 2), scram("two", 1)]);
  // Passwords by clear text, md5 and SCRAM.
  const rows: [secrets: string[], clear: string[], md5: string[], scram: string[]][] = [
    [["one"], ["one"], ["one"], ["one"]],
    [["one", "two"], ["one", "two"], ["one", "two"], ["one", "two"]],
    [["", "two"], ["two"], ["two"], ["two"]],
    [[md5("one")], ["one"], ["one"], []],
    [[md5("one"), "two"], ["one", "two"], ["one", "two"], ["two"]],
    [[md5("one"), md5("two")], ["one", "two"], ["one", "two"], []],
    [[one], ["one"], [], ["one"]],
    [[one, "two"], ["one", "two"], ["two"], ["one", "two"]],
    [["one", two], ["one", "two"], ["one"], ["one", "two"]],
    [[one, twin], ["one", "two"], [], ["one", "two"]],
    // Only one salt can be told.
    [[one, two], ["one", "two"], [], ["one"]],
    [[""], [], [], []],
  ];
  for (const [secrets, clear, byMd5, byScram] of rows) {
    for (const password of ["one", "two", "three", ""]) {
      const what = `${secrets.join(" ")} by "${password}"`;
      const credential = credentialOf(...secrets);
      assert.is(await provesByPassword(credential, password), clear.includes(password), what);
      assert.is(provesByMd5(credential, password), byMd5.includes(password), what);
      assert.is(await provesByScram(credential, password), byScram.includes(password), what);
    }
  }
});

test("servers are given the first secret that can log in there", async () => {
  const [one, two] = await Promise.all([scram("one", 1), scram("two", 2)]);
  assert.is(credentialOf("one", "two").password, "one");
  assert.is(credentialOf(md5("one"), "two").password, "two");
  assert.is(credentialOf(md5("one"), md5("two")).md5, md5("one"));
  const asked = (salt: number) => ({ salt: new Uint8Array(16).fill(salt), iterations });
  for (const prove of [provesByScram, provesByPassword]) {
    const credential = credentialOf(one, two);
    assert.is(credential.scramKeys, null);
    assert.not(await prove(credential, "three"));
    assert.is(credential.scramKeys, null);
    assert.ok(await prove(credential, "one"));
    assert.ok(credential.isFor(asked(1)));
    assert.not(credential.isFor(asked(2)));
    assert.not(credential.isFor({ ...asked(1), iterations: 3 }));
  }
  const second = credentialOf(one, two);
  assert.ok(await provesByPassword(second, "two"));
  assert.ok(second.isFor(asked(2)));
});

test("nothing is proved of a stand-in", async () => {
  const secrets = [md5("one"), "one", await scram("one", 1)];
  for (const secret of secrets) {
    const { users } = parseUserlist(`"u" "${secret}"`, "users.txt");
    const mock = new Credential(users.get("u")!, true);
    assert.not(await provesByPassword(mock, "one"));
    assert.not(provesByMd5(mock, "one"));
    assert.is(mock.scramKeys, null);
  }
});

test.run();
