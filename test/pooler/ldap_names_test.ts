// The names an LDAP server is asked for: what a client calls itself means nothing but itself in them.

import { boundName, filterFor } from "../../services/pooler/ldap_names.ts";
import { assert, suite } from "../support/harness.ts";

const test = suite("LDAP names");

const people = { prefix: "uid=", suffix: ",ou=people,dc=x" };
const domain = { prefix: "AD\\", suffix: "" };
const mail = { prefix: "", suffix: "@x.net" };

const bound: readonly (readonly [typeof people, string, string | null])[] = [
  [people, "ann", "uid=ann,ou=people,dc=x"],
  [people, "Jürgen Ä", "uid=Jürgen Ä,ou=people,dc=x"],
  [people, "ann,ou=admins", "uid=ann\\,ou\\=admins,ou=people,dc=x"],
  [people, 'a+b"c<d>e;f\\g', 'uid=a\\+b\\"c\\<d\\>e\\;f\\\\g,ou=people,dc=x'],
  [people, " #a ", "uid=\\ #a\\ ,ou=people,dc=x"],
  [people, "#a", "uid=\\#a,ou=people,dc=x"],
  [people, " ", "uid=\\ ,ou=people,dc=x"],
  [domain, "ann", "AD\\ann"],
  [domain, "OTHER\\ann", null],
  [domain, "a/b", null],
  [mail, "ann", "ann@x.net"],
  [mail, "cn=ann,dc=y", null],
  [mail, "a\0b", null],
];
for (const [template, user, expected] of bound) {
  test(`boundName() of ${JSON.stringify(user)} with ${template.prefix}*${template.suffix}`, () => {
    assert.is(boundName(template, user), expected);
  });
}

const filters: readonly (readonly [string, string, string])[] = [
  ["(uid=$username)", "ann", "(uid=ann)"],
  ["(uid=$username)", "*", "(uid=\\2a)"],
  ["(uid=$username)", "ann)(uid=*", "(uid=ann\\29\\28uid=\\2a)"],
  ["(uid=$username)", "a\\2ab\0", "(uid=a\\5c2ab\\00)"],
  ["(|(uid=$username)(cn=$username))", "é", "(|(uid=é)(cn=é))"],
  // What a replacement's text could mean as a pattern.
  ["(uid=$username)", "$&$1$username", "(uid=$&$1$username)"],
];
for (const [filter, user, expected] of filters) {
  test(`filterFor() of ${JSON.stringify(user)} in ${filter}`, () => {
    assert.is(filterFor(filter, user), expected);
  });
}

test.run();
