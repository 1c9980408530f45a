// What a file names that is not on this host, or not as it is said: all of it at once, each with the line it stands in.

import { mkdirSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { loadConfig, problemText } from "../../shared/config/mod.ts";
import { loadWithFiles, reloadProblems } from "../../shared/host/mod.ts";
import { CertificateAuthority } from "../support/certificates.ts";
import { assert, suite } from "../support/harness.ts";
import { needs } from "../support/needs.ts";
import { tempDir } from "../support/temp.ts";

needs("openssl");
const test = suite("what settings name outside of the configuration");
const dir = tempDir("outside");
const authority = new CertificateAuthority();
const own = authority.issue("own");
const other = authority.issue("other");

function file(lines: readonly string[]): string {
  const path = join(dir, "p.ini");
  const head = "[databases]\na = host=h\n[pgbouncer]\nauth_type = trust\nlisten_addr = *\n";
  writeFileSync(path, `${head}${lines.join("\n")}\n`);
  return path;
}

/** `line: message` of each problem; the first of `lines` is line 6. */
function problemsOf(lines: readonly string[], user: string | null = null): string[] {
  const path = file(lines);
  const loaded = loadWithFiles(path, undefined, user);
  assert.is(loaded.config === null, loaded.problems.length > 0);
  return loaded.problems.map((problem) => problemText(problem).replace(`${path}:`, ""));
}

const missing = "/nonexistent/d";
const starts: readonly (readonly [string, string])[] = [
  [
    `pidfile = ${missing}/pid`,
    `pidfile "${missing}/pid": directory "${missing}": no such directory`,
  ],
  [
    `logfile = ${missing}/log`,
    `logfile "${missing}/log": directory "${missing}": no such directory`,
  ],
  [`logfile = ${dir}`, `logfile "${dir}": it is a directory`],
  ["user = no-such-user", 'user "no-such-user": this host has none of that name'],
  [`unix_socket_dir = ${missing}`, `unix_socket_dir "${missing}": no such directory`],
  ["unix_socket_dir = /dev/null", 'unix_socket_dir "/dev/null": it is no directory'],
  [
    "unix_socket_group = no-such-group",
    'unix_socket_group "no-such-group": this host has none of that name',
  ],
  [`pidfile = ${dir}/pid`, ""],
  [`logfile = ${dir}/log`, ""],
  ["logfile = /dev/null", ""],
  ["user = root", ""],
  ["unix_socket_dir =\nunix_socket_group = no-such-group", ""],
  ["unix_socket_dir = @pgweir", ""],
];
for (const [line, problem] of starts) {
  test(`loadWithFiles() of ${line.replace("\n", ", ").replaceAll(dir, "DIR")}`, () => {
    assert.equal(problemsOf([line]), problem === "" ? [] : [`6: ${problem}`]);
  });
}

test("loadWithFiles() looks for no user that a command line has replaced", () => {
  assert.equal(problemsOf(["user = no-such-user"], "root"), []);
});

test("loadWithFiles() names all that is wrong with TLS at once, beside what the file shows itself", () => {
  const found = problemsOf([
    "server_tls_protocols = tlsv1.9",
    `server_tls_ca_file = ${own.keyFile}`,
    `server_tls_cert_file = ${own.certFile}`,
    `server_tls_key_file = ${other.keyFile}`,
    "client_tls_sslmode = require",
    `client_tls_cert_file = ${missing}/c`,
    "client_tls_ciphers = NOPE",
    "client_tls13_ciphers = NOPE13",
    "client_tls_ecdhcurve = no-curve",
    `client_tls_ca_file = ${missing}/ca`,
    "pool_mode = sesion",
  ]);
  const starting = [
    '16: pool_mode: "sesion" is not one of ',
    "6: server_tls_protocols names no TLS versions: ",
    "10: To allow TLS connections from clients, ",
    '12: client_tls_ciphers "NOPE": ',
    '13: client_tls13_ciphers "NOPE13": ',
    '14: client_tls_ecdhcurve "no-curve": ',
    `11: client_tls_cert_file "${missing}/c": `,
    `15: client_tls_ca_file "${missing}/ca": `,
    `9: server_tls_key_file "${other.keyFile}": key values mismatch`,
    `7: server_tls_ca_file "${own.keyFile}": `,
  ];
  assert.is(found.length, starting.length, found.join("\n"));
  for (const [index, text] of starting.entries()) {
    assert.ok(found[index]?.startsWith(text), `${found[index]}, not ${text}`);
  }
});

test("a threshold of CPU work that this host's CPUs do not come to is warned of", () => {
  const bound = "max_os_cpu_wait_time_ratio_to_throw = 2";
  const warningsOf = (lines: readonly string[]) =>
    loadWithFiles(file(["overload_interval = 0.5", ...lines])).warnings
      .filter(({ message }) => message.startsWith("os_cpu_busy_time_threshold"))
      .map(({ line, message }) => `${line}: ${message}`);
  const most = availableParallelism() * 500_000;
  assert.equal(warningsOf([bound, `os_cpu_busy_time_threshold = ${most}`]), []);
  const tooMuch = `os_cpu_busy_time_threshold = ${most + 1}`;
  assert.equal(warningsOf([tooMuch]), []);
  const [warning, ...more] = warningsOf([bound, tooMuch]);
  assert.match(warning!, `8: ${tooMuch}: in an overload_interval the `);
  assert.match(warning!, `no more than ${most} microseconds of work: nothing is refused`);
  assert.is(more.length, 0);
});

test("reloadProblems() are those of the log file, not of what changes with a restart", () => {
  const path = file([
    `pidfile = ${missing}/pid`,
    "user = no-such-user",
    `logfile = ${missing}/log`,
  ]);
  const text = `logfile "${missing}/log": directory "${missing}": no such directory`;
  assert.equal(reloadProblems(loadConfig(path)).map(problemText), [`${path}:8: ${text}`]);
  mkdirSync(join(dir, "logs"));
  assert.equal(reloadProblems(loadConfig(file([`logfile = ${dir}/logs/log`]))), []);
});

test.run();
