// PostgreSQL's own files and messages, as versions 15 to 18 write them.

import { assert, suite } from "../support/harness.ts";
import {
  demoStatements,
  failureLine,
  maxConnections,
  parsePostmasterFile,
} from "../../services/supervisor/postmaster.ts";

const test = suite("postmaster");

const complete = "1234\n/srv/data\n1764446400\n5432\n\n127.0.0.1\n  5432001    65536\nready   \n";

const files: [string, string, ReturnType<typeof parsePostmasterFile>][] = [
  ["a running server", complete, { pid: 1234, dataDirectory: "/srv/data", ready: true }],
  ["one that recovers", complete.replace("ready   ", "starting"), {
    pid: 1234,
    dataDirectory: "/srv/data",
    ready: false,
  }],
  ["the first lines only", "1234\n/srv/data\n", {
    pid: 1234,
    dataDirectory: "/srv/data",
    ready: false,
  }],
  ["a stand-alone backend", "-77\n/srv/data\n", {
    pid: 77,
    dataDirectory: "/srv/data",
    ready: false,
  }],
  ["nothing yet", "", null],
  ["half a line", "12", null],
  ["something else", "hello\nworld\n", null],
];

for (const [name, text, expected] of files) {
  test(`parsePostmasterFile() of ${name}`, () => {
    assert.equal(parsePostmasterFile(text), expected);
  });
}

const outputs: [string, string, string | null][] = [
  [
    "a server",
    `2026-11-29 19:58:38.273 UTC [1] LOG:  could not bind IPv4 address "127.0.0.1": Address in use
2026-11-29 19:58:38.273 UTC [1] HINT:  Is another postmaster already running on port 5432?
2026-11-29 19:58:38.273 UTC [1] FATAL:  could not create any TCP/IP sockets
2026-11-29 19:58:38.280 UTC [1] LOG:  database system is shut down
`,
    "could not create any TCP/IP sockets",
  ],
  [
    "initdb",
    'The files belong to "x".\ninitdb: error: invalid locale name "xx"\n',
    'invalid locale name "xx"',
  ],
  [
    "the loader",
    "postgres: error while loading shared libraries: libxml2.so.2: cannot open\n\n",
    "postgres: error while loading shared libraries: libxml2.so.2: cannot open",
  ],
  ["nobody", " \n\n", null],
];

for (const [name, output, expected] of outputs) {
  test(`failureLine() of ${name}`, () => assert.is(failureLine(output), expected));
}

test("demoStatements() quotes names and passwords, one command a line", () => {
  assert.is(
    demoStatements(`a"b`, `it's`),
    `CREATE ROLE "a""b" LOGIN PASSWORD 'it''s';\nCREATE DATABASE "a""b" OWNER "a""b";\n`,
  );
});

test("maxConnections() covers the pool rounded up for every worker", () => {
  assert.equal([maxConnections(2, 20), maxConnections(64, 20), maxConnections(1024, 20)], [
    100,
    100,
    1060,
  ]);
});

test.run();
