// Options of LDAP logins: what PostgreSQL's words come to, from auth_ldap_options and from a line of auth_hba_file, and
// what is wrong with them, without a word of a secret.

import { type LdapOptions, parseLdapOptions } from "../../shared/config/ldap.ts";
import { parseHba } from "../../shared/config/hba.ts";
import { assert, suite } from "../support/harness.ts";
import { configOf, filesOf, iniWith } from "./fixtures.ts";

const test = suite("config: LDAP");

/** In short: servers and TLS, then how the name is found. */
function short(read: ReturnType<typeof parseLdapOptions>): string {
  if ("failure" in read) return read.failure;
  const { servers, tls, template, search, bindPassword }: LdapOptions = read;
  const at = servers.map(({ host, port }) => `${host} ${port}`).join(", ");
  const how = template === null
    ? `${search!.baseDn} ${search!.scope} ${search!.filter} as ${search!.bindDn}/${bindPassword}`
    : `${template.prefix}*${template.suffix}`;
  return `${at}; ${tls}; ${how}`;
}

const base = `ldapserver=h ldapbasedn="dc=x,dc=y"`;
const mixed = "cannot use ldapbasedn, ldapbinddn, ldapbindpasswd, ldapsearchattribute, " +
  "ldapsearchfilter, or ldapurl together with ldapprefix or ldapsuffix";
const unreadableUrl =
  "ldapurl is not understood: wanted ldap://host:port/basedn?attribute?scope?filter, or ldaps://";

const rows: readonly (readonly [string, string])[] = [
  [`ldapserver=h ldapprefix="uid=" ldapsuffix=",dc=x"`, "h 389; none; uid=*,dc=x"],
  [`ldapserver=h, ldapsuffix="@x.net"`, "h 389; none; *@x.net"],
  [`ldapserver=h ldapprefix="AD\\" ldapsuffix=""`, "h 389; none; AD\\*"],
  [`ldapserver="a b" ldapport=3389 ldapprefix=p`, "a 3389, b 3389; none; p*"],
  [`ldapserver="a:1 [::1]:2 [::2] ::3" ldapprefix=p`, "a 1, ::1 2, ::2 389, ::3 389; none; p*"],
  ["ldapserver=h ldapscheme=ldaps ldapprefix=p", "h 636; direct; p*"],
  ["ldapserver=h ldapscheme=ldap ldaptls=1 ldapprefix=p", "h 389; start; p*"],
  [base, "h 389; none; dc=x,dc=y sub (uid=$username) as /"],
  [
    `${base} ldapbinddn="cn=r,dc=x" ldapbindpasswd="a ""b"" #c" ldapsearchattribute=mail`,
    'h 389; none; dc=x,dc=y sub (mail=$username) as cn=r,dc=x/a "b" #c',
  ],
  [
    `${base} ldapsearchfilter="(|(uid=$username)(mail=$username))"`,
    "h 389; none; dc=x,dc=y sub (|(uid=$username)(mail=$username)) as /",
  ],
  [
    `ldapurl="ldap://h:12345/dc=x,dc=y?uid?sub"`,
    "h 12345; none; dc=x,dc=y sub (uid=$username) as /",
  ],
  [
    `ldapurl="ldaps://[::1]/dc=x%20y??one?(cn=$username)" ldapbinddn=r ldapbindpasswd=s`,
    "::1 636; direct; dc=x y one (cn=$username) as r/s",
  ],
  [`"ldapurl"="LDAP:///dc=x" ldaptls=1`, "localhost 389; start; dc=x base (uid=$username) as /"],

  ["ldapprefix=p", "ldapserver is missing: wanted one host, or several with blanks"],
  ["ldapserver=h", "one of ldapbasedn, ldapurl, ldapprefix and ldapsuffix is needed"],
  [`${base} ldapprefix=p`, mixed],
  ["ldapserver=h ldapsuffix=p ldapbindpasswd=hunter2", mixed],
  [
    `${base} ldapsearchattribute=uid ldapsearchfilter=(uid=$username)`,
    "cannot use ldapsearchattribute together with ldapsearchfilter",
  ],
  [
    `${base} ldapsearchfilter=(uid=admin)`,
    "ldapsearchfilter has no $username: it would find the same entry for every user",
  ],
  [
    `${base} ldapsearchattribute=uid)(x`,
    'ldapsearchattribute "uid)(x" is no name of an attribute',
  ],
  [`${base} ldapserwer=x`, 'there is no LDAP option "ldapserwer", did you mean "ldapserver"'],
  [`${base} ldapport=0`, 'ldapport: the port "0" is not from 1 to 65535'],
  ["ldapserver=h:99999 ldapprefix=p", 'ldapserver: the port "99999" is not from 1 to 65535'],
  [`${base} ldapscheme=ldapi`, 'ldapscheme "ldapi" is not ldap or ldaps'],
  [`${base} ldaptls=yes`, 'ldaptls "yes" is not 0 or 1'],
  [`${base} ldapscheme=ldaps ldaptls=1`, "ldaptls = 1 is not for ldaps, which is TLS"],
  ["ldapurl=http://h/dc=x", unreadableUrl],
  ["ldapurl=ldap://u:hunter2@h/dc=x", unreadableUrl],
  // Blanks in a host were an exception, and names of what every object has were scopes.
  [`ldapurl="ldap://h:\r1/dc=x"`, unreadableUrl],
  [`ldapurl="ldap://h\u2028x/dc=x"`, unreadableUrl],
  [
    "ldapurl=ldap://h/dc=x??constructor",
    'ldapurl: the scope "constructor" is not base, one or sub',
  ],
  ["ldapurl=ldap://h/dc=x??all", 'ldapurl: the scope "all" is not base, one or sub'],
  ["ldapurl=ldap://h/dc=%zz", "ldapurl has a % that is not followed by two hexadecimal digits"],
  [`${base} ldapbindpasswd=se hunter2`, 'option 4 is not name="value"'],
  [
    `${base} ldapbindpasswd=se hunter2=x`,
    "unknown option after ldapbindpasswd, a value with blanks needs double quotes",
  ],
  [`${base} ldapbindpasswd="hunter2`, 'option 3 is not name="value"'],
  [`${base} ldapbindpasswd="a"hunter2`, 'option 3 is not name="value"'],
];

for (const [text, expected] of rows) {
  test(`parseLdapOptions() of ${text}`, () => {
    const read = short(parseLdapOptions(text));
    assert.is(read, expected);
  });
}

test("a line of auth_hba_file means the same", () => {
  const parse = (line: string) => parseHba(line, "hba.conf", filesOf({}));
  for (const [text, expected] of rows.slice(0, 13)) {
    // There a # begins a comment, and commas part lists, outside of quotes.
    const { rules, problems } = parse(`host all all all ldap ${text.replace("h,", "h")}`);
    assert.equal(problems, [], text);
    assert.is(short(rules[0]!.ldap!), expected);
  }
  const [problem] = parse("host all all all ldap ldapserver=h ldapbindpasswd=a hunter2").problems;
  assert.is(
    problem?.message,
    "unknown option after ldapbindpasswd, a value with blanks needs double quotes",
  );
  assert.is(parse("host all all all md5 ldapserver=h").problems.length, 1);
});

test("the password of who searches is in no hash that it could be guessed from", () => {
  const hashOf = (password: string) => {
    const hba = `host all all all ldap ${base} ldapbinddn=r ldapbindpasswd=${password}\n`;
    const ini = iniWith("auth_type = hba\nauth_hba_file = hba.conf");
    return configOf(ini, { "hba.conf": hba });
  };
  const [one, same, other] = [hashOf("one"), hashOf("one"), hashOf("other")];
  assert.is(one!.hash, same!.hash);
  assert.is.not(one!.hash, other!.hash);
  assert.is(one!.hba[0]!.ldap!.bindPassword, "one");
});

test.run();
