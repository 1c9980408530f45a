// SCRAM-SHA-256: the vector of RFC 7677, secrets that PostgreSQL 15 stored, both of our sides against
// each other and against node-postgres, and every refusal that the RFC or PostgreSQL asks for.

import { createRequire } from "node:module";
import { assert, suite } from "../support/harness.ts";
import {
  deriveScramSecret,
  formatScramSecret,
  mockScramSecret,
  parseScramSecret,
  saltedPassword,
  ScramClientExchange,
  type ScramClientOptions,
  scramKeys,
  type ScramSecret,
  scramSecretMatches,
  ScramServerExchange,
  type ScramServerOptions,
} from "../../shared/wire/mod.ts";
import { ascii, hex } from "./samples.ts";

const test = suite("wire/scram");

const text = (bytes: Uint8Array) => String.fromCharCode(...bytes);
const base64 = (value: string | Uint8Array) =>
  btoa(typeof value === "string" ? value : text(value));

// RFC 7677, section 3
const rfc = {
  salt: ascii(atob("W22ZaJ0SNY7soEsUEjb6gQ==")),
  first: "n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
  nonce: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
  reply: "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
  final: "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0," +
    "p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
  verifier: "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
};

const rfcSalted = await saltedPassword("pencil", rfc.salt, 4096);
const rfcSecret = deriveScramSecret(rfcSalted, rfc.salt, 4096);

function rfcServer(options: ScramServerOptions = {}): ScramServerExchange {
  return new ScramServerExchange(rfcSecret, { nonce: rfc.nonce, ...options });
}

test("ScramServerExchange answers as RFC 7677 says", () => {
  const server = rfcServer();
  const first = server.first(ascii(rfc.first));
  assert.ok(first.ok);
  assert.is(text(first.reply), rfc.reply);
  const final = server.final(ascii(rfc.final));
  assert.ok(final.ok);
  assert.is(text(final.reply), rfc.verifier);
  assert.is(hex(final.clientKey), hex(scramKeys(rfcSalted).clientKey));
});

const stored: [password: string, secret: string][] = [
  [
    "pencil",
    "SCRAM-SHA-256$4096:+Z/+YLKlbfgPPodwqSKkmw==$7IaA3qaXMj8aZGHyXog4RrfY9RVya7plWf9BDw24TAs=" +
    ":pZ6p9crp6SCiHMmudG7Y61JSJergshDVVC096azPCZE=",
  ],
  [
    "I\u00adX",
    "SCRAM-SHA-256$4096:L7qahKVxPyuljrFDnO6abg==$bdqFs9ou3PGTZ/ABQteHTZt3MjpiOHzTzTpkTXquEM8=" +
    ":3Na2L0q91wuLDiYD1IAq1cptq4o2lXF0kJ7FF+WBKkk=",
  ],
  [
    "pass\u00a0word\u2168\u00aa",
    "SCRAM-SHA-256$4096:+8p08TNUdAsP0FBWvLOVsQ==$fNzjpdQZJiKPPbNSPYBU/kpxSMIRVUqe9bjXTV+bkXs=" +
    ":XR0/CfqtGs0UsvjRtURJ9h8W0ZguJlBeY8WWXihUKCU=",
  ],
];

test("deriveScramSecret() derives the secrets that PostgreSQL stored", async () => {
  for (const [password, line] of stored) {
    const secret = parseScramSecret(line);
    assert.ok(secret);
    assert.is(formatScramSecret(secret), line);
    const salted = await saltedPassword(password, secret.salt, secret.iterations);
    assert.is(formatScramSecret(deriveScramSecret(salted, secret.salt, secret.iterations)), line);
    assert.ok(scramSecretMatches(secret, salted));
    const wrong = await saltedPassword(password + "x", secret.salt, secret.iterations);
    assert.not.ok(scramSecretMatches(secret, wrong));
  }
  const ix = parseScramSecret(stored[1]![1])!;
  assert.ok(scramSecretMatches(ix, await saltedPassword("IX", ix.salt, ix.iterations)));
});

test("saltedPassword() takes raw bytes that are not UTF-8, and keeps all of long passwords", async () => {
  const salt = ascii("salt");
  const raw = await saltedPassword(Uint8Array.of(0xff, 0xfe), salt, 2);
  assert.is.not(hex(raw), hex(await saltedPassword("\ufffd\ufffd", salt, 2)));
  const long = "x".repeat(1023);
  assert.is.not(
    hex(await saltedPassword(long + "a", salt, 2)),
    hex(await saltedPassword(long + "b", salt, 2)),
  );
});

test("saltedPassword() rejects iterations out of bounds before it computes", async () => {
  for (const iterations of [0, -1, 10_000_001, 1.5, NaN]) {
    const error = await saltedPassword("x", rfc.salt, iterations).catch((e) => e);
    assert.instance(error, RangeError);
  }
});

const key = base64(new Uint8Array(32));
const notSecrets = [
  "",
  "pencil",
  "md53175bce1d3201d16594cebf9d7eb3f9d",
  `SCRAM-SHA-1$4096:c2FsdA==$${key}:${key}`,
  `SCRAM-SHA-256$4096:c2FsdA==$${key}`,
  `SCRAM-SHA-256$4096:c2FsdA==$${key}:${key}:x`,
  `SCRAM-SHA-256$0:c2FsdA==$${key}:${key}`,
  `SCRAM-SHA-256$-1:c2FsdA==$${key}:${key}`,
  `SCRAM-SHA-256$10000001:c2FsdA==$${key}:${key}`,
  `SCRAM-SHA-256$4096:$${key}:${key}`,
  `SCRAM-SHA-256$4096:c2FsdA$${key}:${key}`,
  `SCRAM-SHA-256$4096:c2Fs dA==$${key}:${key}`,
  `SCRAM-SHA-256$4096:c2FsdA==$c2hvcnQ=:${key}`,
  `SCRAM-SHA-256$4096:c2FsdA==$${key}:${base64("x".repeat(33))}`,
  `SCRAM-SHA-256$4096:c2FsdA==$${key}:${key}\n`,
];

test("parseScramSecret() takes nothing else", () => {
  assert.ok(parseScramSecret(`SCRAM-SHA-256$4096:c2FsdA==$${key}:${key}`));
  assert.ok(parseScramSecret(`SCRAM-SHA-256$10000000:c2FsdA==$${key}:${key}`));
  for (const line of notSecrets) assert.is(parseScramSecret(line), null, line);
});

type Outcome = { server: string; client: boolean };

/** A whole login; server is "ok" or the SQLSTATE of its refusal. */
function login(
  secret: ScramSecret,
  salted: Uint8Array,
  server: ScramServerOptions = {},
  client: ScramClientOptions = {},
): Outcome {
  const s = new ScramServerExchange(secret, server);
  const c = new ScramClientExchange(client);
  const first = s.first(c.first());
  if (!first.ok) return { server: first.sqlstate, client: false };
  const challenge = c.continue(first.reply);
  if (challenge.kind === "problem") return { server: "ok", client: false };
  assert.equal(challenge.salt, secret.salt);
  assert.is(challenge.iterations, secret.iterations);
  const final = s.final(c.proof(salted));
  if (!final.ok) return { server: final.sqlstate, client: false };
  return { server: "ok", client: c.verifyFinal(final.reply) };
}

test("both sides agree, and a wrong password is 28P01", async () => {
  assert.equal(login(rfcSecret, rfcSalted), { server: "ok", client: true });
  const wrong = await saltedPassword("pencil2", rfc.salt, 4096);
  assert.equal(login(rfcSecret, wrong), { server: "28P01", client: false });
});

test("both sides agree with empty and with awkward passwords", async () => {
  for (const password of ["", " ", "\u0007", ",=\"'\\", "\u2168\u00ad", "x".repeat(65_535)]) {
    const salted = await saltedPassword(password, rfc.salt, 3);
    const secret = deriveScramSecret(salted, rfc.salt, 3);
    assert.equal(login(secret, salted), { server: "ok", client: true });
  }
});

test("the client's keys log in to a second server that has the same secret", () => {
  const server = rfcServer();
  assert.ok(server.first(ascii(rfc.first)).ok);
  const final = server.final(ascii(rfc.final));
  assert.ok(final.ok);
  const behind = new ScramServerExchange(rfcSecret);
  const us = new ScramClientExchange();
  const first = behind.first(us.first());
  assert.ok(first.ok && us.continue(first.reply).kind === "challenge");
  const { clientKey } = final;
  const passed = behind.final(us.proofFromKeys({ clientKey, serverKey: rfcSecret.serverKey }));
  assert.ok(passed.ok && us.verifyFinal(passed.reply));
});

test("channel binding is used, refused and missed as RFC 5802 says", () => {
  const mechanism = "SCRAM-SHA-256-PLUS";
  const hash = new Uint8Array(32).fill(3);
  const other = new Uint8Array(32).fill(4);
  const rows: [what: string, ScramServerOptions, ScramClientOptions, server: string][] = [
    ["bound", { mechanism, channelBinding: hash }, { channelBinding: hash }, "ok"],
    [
      "bound to another certificate",
      { mechanism, channelBinding: hash },
      { channelBinding: other },
      "28000",
    ],
    ["not offered, not able", {}, { channelBinding: "none" }, "ok"],
    ["not offered, able", {}, { channelBinding: "not offered" }, "ok"],
    ["offered, not able", { channelBinding: hash }, { channelBinding: "none" }, "ok"],
    ["the offer was taken out on the way", { channelBinding: hash }, {
      channelBinding: "not offered",
    }, "28000"],
    [
      "PLUS without binding data",
      { mechanism, channelBinding: hash },
      { channelBinding: "none" },
      "08P01",
    ],
    [
      "PLUS with flag y",
      { mechanism, channelBinding: hash },
      { channelBinding: "not offered" },
      "08P01",
    ],
    ["binding data without PLUS", { channelBinding: hash }, { channelBinding: hash }, "08P01"],
    ["PLUS that was not offered", { mechanism }, { channelBinding: hash }, "08P01"],
  ];
  for (const [what, server, client, verdict] of rows) {
    const outcome = login(rfcSecret, rfcSalted, server, client);
    assert.equal(outcome, { server: verdict, client: verdict === "ok" }, what);
  }
  assert.is(new ScramClientExchange({ channelBinding: hash }).mechanism, mechanism);
  assert.is(new ScramClientExchange().mechanism, "SCRAM-SHA-256");
});

test("a mock secret is stable for a user, differs between users and keys, and never lets in", async () => {
  const mock = mockScramSecret(ascii("key"), "nobody", 4096);
  assert.equal(mockScramSecret(ascii("key"), "nobody"), mock);
  assert.is(mock.salt.length, 16);
  assert.is.not(hex(mockScramSecret(ascii("key"), "somebody").salt), hex(mock.salt));
  assert.is.not(hex(mockScramSecret(ascii("other"), "nobody").salt), hex(mock.salt));
  const salted = await saltedPassword("x", mock.salt, 4096);
  assert.equal(login(mock, salted), { server: "28P01", client: false });
  // Even keys that would fit do not open it: a mock is not a secret somebody may know.
  const fitting = { ...mock, ...deriveScramSecret(salted, mock.salt, 4096) };
  assert.equal(login(fitting, salted), { server: "28P01", client: false });
});

const badFirst: [message: string, sqlstate: string][] = [
  ["", "08P01"],
  ["n", "08P01"],
  ["n,,", "08P01"],
  ["n,n=user,r=abc", "08P01"],
  ["n,,n=user", "08P01"],
  ["n,,r=abc,n=user", "08P01"],
  ["n,,n=user,r=", "08P01"],
  ["n,,n=user,r=a b", "08P01"],
  ["n,,n=user,r=a\x7f", "08P01"],
  ["n,,n=user,r=a\xe9", "08P01"],
  ["n,,n=user,r=abc\0", "08P01"],
  ["n,,n=user,r=abc,junk", "08P01"],
  ["n,,n=user,r=abc,", "08P01"],
  ["x,,n=user,r=abc", "08P01"],
  ["N,,n=user,r=abc", "08P01"],
  ["n=,,n=user,r=abc", "08P01"],
  ["y,x,n=user,r=abc", "08P01"],
  ["n,a=admin,n=user,r=abc", "0A000"],
  ["n,,m=ext,n=user,r=abc", "0A000"],
  ["p=tls-unique,,n=user,r=abc", "08P01"],
  ["p,,n=user,r=abc", "08P01"],
  [",,,,,,,,,,", "08P01"],
];

test("ScramServerExchange.first() refuses what is not a client-first-message", () => {
  for (const [message, sqlstate] of badFirst) {
    const server = rfcServer();
    const result = server.first(ascii(message));
    assert.ok(!result.ok, message);
    assert.is(result.sqlstate, sqlstate, message);
    assert.not.ok(server.first(ascii(rfc.first)).ok, "a refused exchange stays refused");
    assert.not.ok(server.final(ascii(rfc.final)).ok);
  }
  const plus = rfcServer({ mechanism: "SCRAM-SHA-256-PLUS", channelBinding: ascii("hash") });
  assert.not.ok(plus.first(ascii("p=tls-unique,,n=,r=abc")).ok);
});

test("ScramServerExchange.first() takes user names and extensions that it ignores", () => {
  for (
    const message of ["n,,n=,r=abc", "n,,n=*,r=abc", "n,,n=b=2Cc,r=abc,x=1,y=a=b", "n,,n=\xe9,r=a"]
  ) {
    assert.ok(rfcServer().first(ascii(message)).ok, message);
  }
});

const nonce = "rOprNGfwEbeRWgbNEkqO" + rfc.nonce;
const proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
const badFinal: [message: string, sqlstate: string][] = [
  ["", "08P01"],
  [`c=biws,r=${nonce}`, "08P01"],
  [`c=biws,p=${proof}`, "08P01"],
  [`r=${nonce},c=biws,p=${proof}`, "08P01"],
  [`p=${proof}`, "08P01"],
  [`c=biws,r=${nonce},p=`, "08P01"],
  [`c=biws,r=${nonce},p=AAAA`, "08P01"],
  [`c=biws,r=${nonce},p=${proof}\0`, "08P01"],
  [`c=biws,r=${nonce},p=${proof},x=1`, "08P01"],
  [`c=biws,r=${nonce},p= ${proof}`, "08P01"],
  [`c=biws,r=${nonce},p=${proof.replace("=", "")}`, "08P01"],
  [`c=biws,r=${nonce},p=${proof.replace("Q=", "R=")}`, "08P01"],
  [`c=eSws,r=${nonce},p=${proof}`, "08P01"],
  [`c=,r=${nonce},p=${proof}`, "08P01"],
  [`c=biws,r=${nonce}x,p=${proof}`, "08P01"],
  [`c=biws,r=rOprNGfwEbeRWgbNEkqO,p=${proof}`, "08P01"],
  [`c=biws,r=${nonce.toLowerCase()},p=${proof}`, "08P01"],
  [`c=biws,r=${nonce},x=1,p=${proof}`, "28P01"],
  [`c=biws,r=${nonce},p=${key}`, "28P01"],
];

test("ScramServerExchange.final() refuses all but the proof for this exchange", () => {
  for (const [message, sqlstate] of badFinal) {
    const server = rfcServer();
    assert.ok(server.first(ascii(rfc.first)).ok);
    const result = server.final(ascii(message));
    assert.ok(!result.ok, message);
    assert.is(result.sqlstate, sqlstate, message);
    assert.not.ok(server.final(ascii(rfc.final)).ok, "there is no second try");
  }
});

test("ScramServerExchange refuses a final message first and a first message twice", () => {
  assert.not.ok(rfcServer().final(ascii(rfc.final)).ok);
  const server = rfcServer();
  assert.ok(server.first(ascii(rfc.first)).ok);
  assert.not.ok(server.first(ascii(rfc.first)).ok);
});

const badServerFirst = [
  "",
  "r=abc",
  "r=abcdef,s=c2FsdA==",
  "r=abcdef,i=4096,s=c2FsdA==",
  "m=x,r=abcdef,s=c2FsdA==,i=4096",
  "r=abc,s=c2FsdA==,i=4096",
  "r=ab,s=c2FsdA==,i=4096",
  "r=xabcdef,s=c2FsdA==,i=4096",
  "r=abc def,s=c2FsdA==,i=4096",
  "r=abcdef,s=,i=4096",
  "r=abcdef,s=c2FsdA,i=4096",
  `r=abcdef,s=${base64("s".repeat(1025))},i=4096`,
  "r=abcdef,s=c2FsdA==,i=0",
  "r=abcdef,s=c2FsdA==,i=-1",
  "r=abcdef,s=c2FsdA==,i=",
  "r=abcdef,s=c2FsdA==,i=1e3",
  "r=abcdef,s=c2FsdA==,i=10000001",
  "r=abcdef,s=c2FsdA==,i=99999999999999999999",
  "r=abcdef,s=c2FsdA==,i=4096\0",
  "e=other-error",
];

test("ScramClientExchange.continue() refuses what a server must not send", () => {
  for (const message of badServerFirst) {
    const client = new ScramClientExchange({ nonce: "abc" });
    client.first();
    assert.is(client.continue(ascii(message)).kind, "problem", message);
    assert.is(client.continue(ascii("r=abcdef,s=c2FsdA==,i=4096")).kind, "problem");
  }
  const client = new ScramClientExchange({ nonce: "abc" });
  assert.is(text(client.first()), "n,,n=,r=abc");
  assert.equal(client.continue(ascii("r=abcdef,s=c2FsdA==,i=10000000,x=1")), {
    kind: "challenge",
    salt: ascii("salt"),
    iterations: 10_000_000,
  });
});

test("ScramClientExchange.verifyFinal() believes only the right signature, once", () => {
  const run = (change: (reply: string) => string): boolean => {
    const server = new ScramServerExchange(rfcSecret);
    const client = new ScramClientExchange();
    const first = server.first(client.first());
    assert.ok(first.ok && client.continue(first.reply).kind === "challenge");
    const final = server.final(client.proof(rfcSalted));
    assert.ok(final.ok);
    const verdict = client.verifyFinal(ascii(change(text(final.reply))));
    assert.not.ok(client.verifyFinal(final.reply), "there is no second try");
    return verdict;
  };
  assert.ok(run((reply) => reply));
  assert.ok(run((reply) => reply + ",x=1"));
  assert.not.ok(run(() => ""));
  assert.not.ok(run(() => "v="));
  assert.not.ok(run(() => `v=${key}`));
  assert.not.ok(run(() => "e=invalid-proof"));
  assert.not.ok(run((reply) => reply.slice(0, -1)));
  assert.not.ok(run((reply) => reply.replace("v=", "x=")));
  assert.not.ok(new ScramClientExchange().verifyFinal(ascii(rfc.verifier)));
});

test("ScramClientExchange throws when its caller forgets a step", () => {
  const client = new ScramClientExchange();
  assert.throws(() => client.proof(rfcSalted), /state "first", wanted "proof"/);
  client.first();
  assert.throws(() => client.first(), /state "continue", wanted "first"/);
});

test("ScramServerExchange lets node-postgres in, and it believes our signature", async () => {
  const sasl = createRequire(import.meta.url)("pg/lib/crypto/sasl.js");
  for (const password of ["pencil", "I\u00adX\u2168", "pass\u00a0word"]) {
    const salted = await saltedPassword(password, rfc.salt, 4096);
    const server = new ScramServerExchange(deriveScramSecret(salted, rfc.salt, 4096));
    const session = sasl.startSession(["SCRAM-SHA-256"]);
    const first = server.first(ascii(session.response));
    assert.ok(first.ok);
    await sasl.continueSession(session, password, text(first.reply));
    const final = server.final(ascii(session.response));
    assert.ok(final.ok);
    sasl.finalizeSession(session, text(final.reply)); // throws if the signature is wrong
  }
});

test.run();
