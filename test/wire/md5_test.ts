// md5 secrets that PostgreSQL 15 stored, and responses computed by another implementation.

import { assert, suite } from "../support/harness.ts";
import { isMd5Secret, md5Response, md5Secret, verifyMd5Response } from "../../shared/wire/mod.ts";
import { ascii } from "./samples.ts";

const test = suite("wire/md5");

const salt = Uint8Array.of(0x01, 0xff, 0x00, 0x7f);
const vectors: [user: string, password: string, secret: string, response: string][] = [
  [
    "postgres",
    "postgres",
    "md53175bce1d3201d16594cebf9d7eb3f9d",
    "md591949e56c89971b8f7adb8ac01f5db10",
  ],
  ["alice", "secret", "md54a0a68b43b6cd5cf266fa02f196e2371", "md5ee24f1759f8caeceb41ca75d9f1ed6a6"],
  ["bob", "", "md59f9d51bc70ef21ca5c14f307980a29d8", "md52469a3f8cd29ae1b7bad9f75a3b11041"],
  [
    "zo\u00eb",
    "p\u00e4ssword",
    "md53fd45c7129b90318310d732eb832e10f",
    "md5abc2109a4fc6607c18e81b1f1f41c63d",
  ],
];

for (const [user, password, secret, response] of vectors) {
  test(`md5Secret() and md5Response() agree with PostgreSQL for "${user}"`, () => {
    assert.is(md5Secret(user, password), secret);
    assert.is(md5Secret(user, new TextEncoder().encode(password)), secret);
    assert.is(md5Response(secret, salt), response);
    assert.ok(verifyMd5Response(secret, salt, response));
    assert.ok(verifyMd5Response(secret, salt, ascii(response)));
  });
}

test("verifyMd5Response() refuses all but the response to this challenge", () => {
  const [, , secret, response] = vectors[1]!;
  const wrong = [
    "",
    "md5",
    secret,
    response.toUpperCase(),
    response + "\0",
    response.slice(0, -1),
    response.slice(3),
    vectors[0]![3],
    "md5" + "\u00e4".repeat(16),
  ];
  for (const text of wrong) assert.not.ok(verifyMd5Response(secret, salt, text), text);
  assert.not.ok(verifyMd5Response(secret, Uint8Array.of(1, 2, 3, 4), response));
});

test("verifyMd5Response() accepts nothing for a secret of another kind", () => {
  for (
    const secret of [
      "",
      "md5",
      "secret",
      "SCRAM-SHA-256$4096:AA==$AA==:AA==",
      "md5" + "g".repeat(32),
    ]
  ) {
    assert.not.ok(isMd5Secret(secret));
    assert.not.ok(verifyMd5Response(secret, salt, md5Response(secret, salt)), secret);
  }
});

test.run();
