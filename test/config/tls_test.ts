// What the settings of TLS come to: versions and their shortcuts, ciphers, which certificates are asked for.

import {
  clientTlsPlan,
  loadConfig,
  serverTlsPlan,
  type Settings,
} from "../../shared/config/mod.ts";
import { tlsProblems, tlsVersions } from "../../shared/config/tls.ts";
import { assert, suite } from "../support/harness.ts";

const test = suite("config: TLS");

function settings(lines: Readonly<Record<string, string>>): Settings {
  const text = Object.entries({ listen_addr: "*", ...lines })
    .map(([name, value]) => `${name} = ${value}\n`).join("");
  const { config, problems } = loadConfig("main.ini", () => `[databases]\n[pgbouncer]\n${text}`);
  assert.equal(problems, []);
  return config!.settings;
}

const files = { client_tls_cert_file: "c.crt", client_tls_key_file: "c.key" };

const v0 = "tlsv1.0";
const v1 = "tlsv1.1";
const v2 = "tlsv1.2";
const v3 = "tlsv1.3";
const versions: [string[], string[] | null][] = [
  [[], [v2, v3]],
  [["secure"], [v2, v3]],
  [["default"], [v2, v3]],
  [["all"], [v0, v1, v2, v3]],
  [["legacy"], [v0, v1, v2, v3]],
  [["TLSv1.3"], [v3]],
  [["tlsv1.3", "tlsv1.1"], [v1, v3]],
  [["tlsv1.3:tlsv1.2"], [v2, v3]],
  [["all", "!tlsv1.0"], [v1, v2, v3]],
  [["!tlsv1.3"], [v0, v1, v2]],
  [["tlsv1"], [v0, v1, v2, v3]],
  [["tlsv1.4"], null],
  [["secure", "x"], null],
  [["secure", "!secure"], null],
];
for (const [list, wanted] of versions) {
  test(`tlsVersions() of "${list}"`, () => assert.equal(tlsVersions(list), wanted));
}

test("clientTlsPlan() asks for certificates where they can be checked, and insists where told", () => {
  assert.is(clientTlsPlan(settings({})), null);
  const rows: [Record<string, string>, string][] = [
    [{ client_tls_sslmode: "allow" }, "unverified"],
    [{ client_tls_sslmode: "require" }, "unverified"],
    [{ client_tls_sslmode: "prefer", client_tls_ca_file: "ca" }, "offered"],
    [{ client_tls_sslmode: "require", client_tls_ca_file: "ca" }, "offered"],
    [{ client_tls_sslmode: "verify-ca", client_tls_ca_file: "ca" }, "verified"],
    [{ client_tls_sslmode: "verify-full", client_tls_ca_file: "ca" }, "verified"],
  ];
  for (const [lines, wanted] of rows) {
    assert.is(clientTlsPlan(settings({ ...files, ...lines }))?.peer, wanted);
  }
});

test("clientTlsPlan() reads the words for ciphers and curves", () => {
  const rows: [Record<string, string>, string, string][] = [
    [{}, "", ""],
    [{ client_tls_ciphers: "SECURE" }, "", ""],
    [{ client_tls_ciphers: "all" }, "ALL:!aNULL:!eNULL", ""],
    [{ client_tls_ciphers: "AES256-SHA" }, "AES256-SHA", ""],
    [{ client_tls_ecdhcurve: "prime256v1" }, "", "prime256v1"],
    [{ client_tls_ecdhcurve: "none" }, "DEFAULT:!kECDHE", ""],
  ];
  for (const [lines, ciphers, groups] of rows) {
    const plan = clientTlsPlan(settings({ ...files, client_tls_sslmode: "allow", ...lines }))!;
    assert.equal([plan.ciphers, plan.groups], [ciphers, groups]);
  }
});

test("serverTlsPlan() verifies as its mode says; prefer is the default", () => {
  const of = (mode: string) =>
    serverTlsPlan({ ...settings({}), serverTlsSslmode: mode } as Settings);
  assert.is(of("disable"), null);
  assert.equal(serverTlsPlan(settings({})), of("prefer"));
  const told = ["allow", "prefer", "require", "verify-ca", "verify-full"].map((mode) => {
    const { peer, checksHost } = of(mode)!;
    return [peer, checksHost];
  });
  assert.equal(told, [
    ...[["unverified", false], ["unverified", false], ["unverified", false]],
    ...[["verified", false], ["verified", true]],
  ]);
});

test("tlsProblems() names the setting to change", () => {
  const base = settings({});
  const rows: [Partial<Settings>, string[]][] = [
    [{}, []],
    [{ clientTlsSslmode: "allow" }, ["client_tls_sslmode"]],
    [{ clientTlsSslmode: "verify-ca", clientTlsKeyFile: "k", clientTlsCertFile: "c" }, [
      "client_tls_sslmode",
    ]],
    [{ serverTlsCertFile: "c" }, ["server_tls_cert_file"]],
    [{ serverTlsKeyFile: "k" }, ["server_tls_key_file"]],
    [{ serverTlsProtocols: ["x"] }, ["server_tls_protocols"]],
    [{ authType: "cert" }, ["auth_type"]],
  ];
  for (const [change, wanted] of rows) {
    assert.equal(tlsProblems({ ...base, ...change }).map(([name]) => name), wanted);
  }
});

test.run();
