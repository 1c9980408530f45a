// The command line: what each word means, and the one line that each mistake gets.

import { assert, suite } from "../support/harness.ts";
import type { HostOptions } from "../../shared/host/mod.ts";
import {
  type Command,
  loneWorker,
  type OverloadCommand,
  parseArguments,
} from "../../services/supervisor/arguments.ts";

const test = suite("arguments");

function up(changes: Partial<Extract<Command, { kind: "up" }>> = {}): Command {
  return {
    kind: "up",
    file: null,
    upstream: null,
    workers: null,
    runtime: null,
    port: null,
    options: hosted(),
    lone: false,
    ...changes,
  };
}

function hosted(changes: Partial<HostOptions> = {}): HostOptions {
  return { quiet: false, verbose: 0, daemon: false, user: null, ...changes };
}

function pooler(changes: Partial<HostOptions> = {}): Command {
  return { kind: "pooler", file: "a.ini", options: hosted(changes) };
}

const shop = {
  host: "db.example",
  port: 5432,
  database: "shop",
  user: null,
  password: null,
  sslmode: null,
};

const overload = (change: Partial<OverloadCommand>): Command => ({
  kind: "overload",
  file: "a.ini",
  databases: [],
  postmaster: { pid: null, dataDirectory: null, port: null },
  ...change,
});

const accepted: [string[], Command][] = [
  [["up"], up()],
  [["up", "a.ini"], up({ file: "a.ini" })],
  [["up", "--workers", "4", "a.ini"], up({ file: "a.ini", workers: 4 })],
  [["up", "--workers=1024"], up({ workers: 1024 })],
  [["up", "--workers", "auto"], up()],
  [["up", "--runtime", "deno", "--port", "7000"], up({ runtime: "deno", port: 7000 })],
  [["up", "--upstream", "db.example/shop"], up({ upstream: shop })],
  [["up", "--upstream", "db.example:5433/shop"], up({ upstream: { ...shop, port: 5433 } })],
  [["up", "--upstream=[::1]:5433/shop"], up({ upstream: { ...shop, host: "::1", port: 5433 } })],
  [
    ["up", "--upstream", "postgres://ann:p%40ss%2f@db.example/my%20shop?sslmode=require"],
    up({
      upstream: {
        ...shop,
        user: "ann",
        password: "p@ss/",
        database: "my shop",
        sslmode: "require",
      },
    }),
  ],
  [
    ["up", "--upstream", "postgresql://ann@db.example/shop"],
    up({ upstream: { ...shop, user: "ann" } }),
  ],
  [["pooler", "a.ini"], pooler()],
  [["pooler", "-q", "a.ini"], pooler({ quiet: true })],
  [["pooler", "a.ini", "-d"], pooler({ daemon: true })],
  [["pooler", "-qdvv", "a.ini"], pooler({ quiet: true, daemon: true, verbose: 2 })],
  [["pooler", "-v", "--verbose", "a.ini"], pooler({ verbose: 2 })],
  [["pooler", "-u", "ann", "a.ini"], pooler({ user: "ann" })],
  [["pooler", "-uann", "a.ini"], pooler({ user: "ann" })],
  [["pooler", "-du", "ann", "a.ini"], pooler({ daemon: true, user: "ann" })],
  [["pooler", "--user=ann", "a.ini"], pooler({ user: "ann" })],
  [["pooler", "--user", "ann", "a.ini"], pooler({ user: "ann" })],
  [["pooler", "--quiet", "--daemon", "a.ini"], pooler({ quiet: true, daemon: true })],
  [["pooler", "--", "a.ini"], pooler()],
  [["pooler", "-V"], { kind: "version" }],
  [["pooler", "-qV", "a.ini"], { kind: "version" }],
  [["pooler", "--help"], { kind: "help" }],
  [["up", "-dv", "a.ini"], up({ file: "a.ini", options: hosted({ daemon: true, verbose: 1 }) })],
  [["up", "-v"], up({ options: hosted({ verbose: 1 }) })],
  [["budget", "a.ini"], { kind: "budget", file: "a.ini" }],
  [["overload", "a.ini"], overload({})],
  [["overload", "--database", "a", "--database=b", "a.ini"], overload({ databases: ["a", "b"] })],
  [
    ["overload", "--database", "a", "--data-directory", "/d", "--port", "5433", "--pid=7", "a.ini"],
    overload({
      databases: ["a"],
      postmaster: { pid: 7, dataDirectory: "/d", port: 5433 },
    }),
  ],
  [["overload", "--help"], { kind: "help" }],
  [["check", "a.ini"], { kind: "check", file: "a.ini" }],
  [["--version"], { kind: "version" }],
  [["-V"], { kind: "version" }],
  [["--help"], { kind: "help" }],
  [["up", "--help"], { kind: "help" }],
  [["check", "-h"], { kind: "help" }],
];

for (const [argv, command] of accepted) {
  test(`parseArguments() reads "${argv.join(" ")}"`, () => {
    assert.equal(parseArguments(argv), command);
  });
}

const refused: [string[], RegExp][] = [
  [[], /^no command given, wanted up, check, pooler, budget or overload/],
  [["upp"], /^unknown command "upp"/],
  [["a.ini"], /^unknown command "a\.ini"/],
  [["--verbose"], /^unknown option "--verbose"/],
  [["up", "--verbos"], /^up: unknown option "--verbos"/],
  [["up", "-x"], /^up: unknown option "-x"/],
  [["up", "-d"], /^up: -d given without a file/],
  [["up", "-u", "ann"], /^up: -u given without a file/],
  [["pooler", "-x", "a.ini"], /^pooler: unknown option "-x"/],
  [["pooler", "-qx", "a.ini"], /^pooler: unknown option "-x" in "-qx"/],
  [["pooler", "--daemon=1", "a.ini"], /^pooler: option "--daemon=1" takes no value/],
  [["pooler", "a.ini", "-u"], /^pooler: option "-u" names no user/],
  [["pooler", "-R", "a.ini"], /^pooler: -R: online restarts need no take-over: .* SIGTERM$/],
  [["pooler", "--reboot", "-d", "a.ini"], /^pooler: -R: /],
  [["up", "a.ini", "b.ini"], /^up: a second file "b\.ini", wanted one$/],
  [["up", "--workers"], /^up: --workers has no value$/],
  [["up", "--workers="], /^up: --workers has no value$/],
  [["up", "--workers", "0"], /^up: --workers is "0", wanted auto or 1 to 1024$/],
  [["up", "--workers", "1025"], /wanted auto or 1 to 1024$/],
  [["up", "--workers", "2.5"], /^up: --workers is "2\.5"/],
  [["up", "--workers", "-1"], /^up: --workers is "-1"/],
  [["up", "--workers", "2", "--workers", "3"], /^up: --workers given twice, wanted once$/],
  [["up", "--runtime", "node"], /^up: --runtime is "node", wanted bun or deno$/],
  [["up", "--port", "0"], /^up: --port is "0", wanted 1 to 65535$/],
  [["up", "--port", "65536"], /^up: --port is "65536"/],
  [["up", "--port", "80", "a.ini"], /^up: --port given together with "a\.ini"/],
  [["up", "a.ini", "--upstream", "h/d"], /^up: --upstream given together with "a\.ini"/],
  [["up", "--upstream", "db.example"], /^up: --upstream names no database, wanted postgres:/],
  [["up", "--upstream", "/shop"], /^up: --upstream names no host/],
  [["up", "--upstream", "h:0/d"], /^up: --upstream has port 0/],
  [["up", "--upstream", "h:99999/d"], /^up: --upstream is no address/],
  [["up", "--upstream", "mysql://h/d"], /^up: --upstream begins with "mysql:\/\/"/],
  [["up", "--upstream", "h/d?sslmode=on"], /has sslmode "on", wanted one of disable, /],
  [["up", "--upstream", "h/d?options=x"], /has the parameter "options", only sslmode is known$/],
  [["up", "--upstream", "postgres://u:a%zz@h/d"], /has a "%" that begins no two hexadecimal/],
  [["up", "--upstream", "postgres://u:a%0Ab@h/d"], /has a control character in its password$/],
  [["pooler"], /^pooler: 0 files given, wanted one/],
  [["budget"], /^budget: 0 files given, wanted one/],
  [["overload", "--database", "a"], /^overload: no file given, wanted one/],
  [["overload", "--database", "a.ini"], /^overload: no file given/],
  [["overload", "--databse", "a", "a.ini"], /^overload: unknown option "--databse"/],
  [["overload", "--port=0", "a.ini"], /^overload: --port is "0", wanted 1 to 65535$/],
  [["overload", "--pid=-1", "a.ini"], /^overload: --pid is "-1", wanted a process id$/],
  [["overload", "--pid=1", "--pid=2", "a.ini"], /^overload: --pid given twice, wanted once$/],
  [["check", "a.ini", "b.ini"], /^check: 2 files given, wanted one/],
  [["check", "--all", "a.ini"], /^check: unknown option "--all"/],
];

for (const [argv, expected] of refused) {
  test(`parseArguments() refuses "${argv.join(" ")}"`, () => {
    const command = parseArguments(argv);
    assert.is(command.kind, "misuse");
    if (command.kind === "misuse") assert.match(command.problem, expected);
  });
}

test("loneWorker() is one worker of a supervisor of its own, with the same options", () => {
  const options = hosted({ quiet: true });
  assert.equal(
    loneWorker({ kind: "pooler", file: "a.ini", options }),
    up({ file: "a.ini", workers: 1, options, lone: true }),
  );
});

test("parseArguments() repeats no password in a complaint", () => {
  for (const address of ["postgres://u:hush@h", "postgres://u:hush@:1/d", "x://u:hush@h/d"]) {
    const command = parseArguments(["up", "--upstream", address]);
    assert.is(command.kind, "misuse");
    assert.not.match(JSON.stringify(command), /hush/);
  }
});

test.run();
