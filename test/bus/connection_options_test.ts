// From bus settings to the NATS client's options: servers, logins, and the pauses between dials.

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import {
  Backoff,
  type BusAddress,
  busOptions,
  type BusSettings,
  natsOptions,
} from "../../shared/bus/connection_options.ts";
import { BusError } from "../../shared/bus/mod.ts";
import { assert, suite } from "../support/harness.ts";
import { tempDir } from "../support/temp.ts";

function optionsOf(address: Partial<BusAddress>): ReturnType<typeof natsOptions> {
  return natsOptions({ servers: ["nats://h"], name: "n", mesh: "m", ...address }, new Backoff());
}

const settings = suite("natsOptions");

settings("natsOptions() reads servers with and without scheme, port and login", () => {
  const rows: [string, string, Record<string, string>][] = [
    ["nats://10.0.0.1:4333", "10.0.0.1:4333", {}],
    ["db.example", "db.example:4222", {}],
    ["db.example:1", "db.example:1", {}],
    ["nats://[::1]:4333", "[::1]:4333", {}],
    ["tls://a", "a:4222", {}],
    ["nats://tok%40en@a", "a:4222", { token: "tok@en" }],
    ["nats://user:pa%3Ass@a:5", "a:5", { user: "user", pass: "pa:ss" }],
  ];
  for (const [server, listen, login] of rows) {
    const { servers, token, user, pass, tls } = optionsOf({ servers: [server] });
    assert.equal(servers, [listen]);
    const found = Object.fromEntries(
      Object.entries({ token, user, pass }).filter(([, value]) => value !== undefined),
    );
    assert.equal(found, login, server);
    assert.equal(tls, server.startsWith("tls:") ? {} : undefined);
  }
});

settings("natsOptions() prefers what is given by name to what is in a URL", () => {
  const servers = ["nats://other:one@a", "nats://b"];
  assert.is(optionsOf({ servers, token: "t" }).token, "t");
  assert.is(optionsOf({ servers, token: "t" }).user, undefined);
  assert.is(optionsOf({ servers, user: "u" }).user, "u");
  assert.is(optionsOf({ servers, user: "u" }).pass, "");
  assert.is(optionsOf({ servers, user: "u", password: "p" }).pass, "p");
  const { user, authenticator } = optionsOf({ servers, creds: "..." });
  assert.is(user, undefined);
  assert.type(authenticator, "function");
});

settings("natsOptions() refuses what is no server, without quoting it", () => {
  const bad = ["", "http://a", "nats://", "nats://a:99999", "nats://u:se%cret@a", "ws://secret@a"];
  for (const server of bad) {
    assert.throws(
      () => optionsOf({ servers: [server] }),
      (error: Error) => /^read bus server: /.test(error.message) && !/secret/.test(error.message),
      server,
    );
  }
  assert.throws(() => optionsOf({ servers: [] }), /no server is given/);
  assert.throws(() => optionsOf({ name: "a b" }), /client name is "a b"/);
  assert.throws(() => optionsOf({ mesh: "" }), /mesh is ""/);
});

settings("natsOptions() never gives up and notices a dead broker in seconds", () => {
  const options = optionsOf({ tls: { caFile: "/ca.pem", key: undefined } });
  assert.is(options.reconnect, true);
  assert.is(options.maxReconnectAttempts, -1);
  assert.is(options.pingInterval, 2000);
  assert.is(options.maxPingOut, 2);
  assert.is(options.inboxPrefix, "pgweir.m.inbox.n");
  assert.equal(options.tls, { caFile: "/ca.pem" });
});

settings.run();

const files = suite("busOptions");

const dir = tempDir("options");
const none: BusSettings = {
  mesh: "m",
  busUrl: ["nats://a", "nats://b"],
  busCredentials: "",
  busTlsCaFile: "",
  busTlsCertFile: "",
  busTlsKeyFile: "",
};

function write(name: string, content: string): string {
  const path = join(dir, name);
  writeFileSync(path, content);
  return path;
}

const pem = write("some.pem", "-----BEGIN CERTIFICATE-----\nhunter2\n-----END CERTIFICATE-----\n");

files("busOptions() gives what is set and nothing else", () => {
  assert.equal(busOptions(none), { mesh: "m", servers: ["nats://a", "nats://b"] });
  assert.equal(busOptions({ ...none, busTlsCaFile: pem }).tls, { caFile: pem });
  const both = { ...none, busTlsCertFile: pem, busTlsKeyFile: pem };
  assert.equal(busOptions(both).tls, { certFile: pem, keyFile: pem });
  const creds = "-----BEGIN NATS USER JWT-----\neyJ\n------END NATS USER JWT------\n\n" +
    "-----BEGIN USER NKEY SEED-----\n" +
    "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY\n" +
    "------END USER NKEY SEED------\n";
  const busCredentials = write("good.creds", creds);
  assert.equal(busOptions({ ...none, busCredentials }), {
    mesh: "m",
    servers: ["nats://a", "nats://b"],
    creds,
  });
});

files("busOptions() names the setting and the file that it cannot use, and nothing in it", () => {
  const bad = write("bad", "hunter2");
  const cut = write(
    "cut.creds",
    "-----BEGIN NATS USER JWT-----\nhunter2\n------END NATS USER JWT------\n\n" +
      "-----BEGIN USER NKEY SEED-----\nSUhunter2\n------END USER NKEY SEED------\n",
  );
  const missing = join(dir, "missing");
  const rows: [Partial<BusSettings>, RegExp][] = [
    [{ busCredentials: missing }, /^read bus_credentials: ".*\/missing" ENOENT$/],
    [{ busCredentials: dir }, /^read bus_credentials: ".*" EISDIR$/],
    [{ busCredentials: bad }, /^read bus_credentials: ".*\/bad" is no credentials file, wanted /],
    [{ busCredentials: cut }, /^read bus_credentials: ".*\/cut.creds" is no credentials file/],
    [{ busTlsCaFile: missing }, /^read bus_tls_ca_file: ".*\/missing" ENOENT$/],
    [{ busTlsCaFile: bad }, /^read bus_tls_ca_file: ".*\/bad" is no PEM file$/],
    [{ busTlsCertFile: bad, busTlsKeyFile: pem }, /^read bus_tls_cert_file: ".*\/bad"/],
    [{ busTlsCertFile: pem, busTlsKeyFile: missing }, /^read bus_tls_key_file: ".*\/missing"/],
    [{ busTlsCertFile: pem }, /^read bus_tls_cert_file and bus_tls_key_file: one of them is empty/],
    [{ busTlsKeyFile: pem }, /^read bus_tls_cert_file and bus_tls_key_file: one of them is empty/],
  ];
  for (const [some, message] of rows) {
    assert.throws(() => busOptions({ ...none, ...some }), (error: Error) => {
      assert.match(error.message, message);
      assert.not.match(error.message, /hunter2/);
      return error instanceof BusError && error.code === "INVALID";
    });
  }
});

files.run();

const pauses = suite("Backoff");

pauses("advance() doubles the pause to its bound, less a random half", () => {
  for (
    const [draw, expected] of [
      [0, [50, 100, 200, 400, 800, 1000, 1000]],
      [1, [100, 200, 400, 800, 1600, 2000, 2000]],
    ] as const
  ) {
    const backoff = new Backoff(() => draw);
    const seen = [backoff.delayMs];
    while (seen.length < expected.length) {
      backoff.advance();
      assert.is(backoff.delayMs, backoff.delayMs);
      seen.push(backoff.delayMs);
    }
    assert.equal(seen, [...expected]);
    for (let i = 0; i < 2000; i += 1) backoff.advance();
    assert.is(backoff.delayMs, expected[6]);
    backoff.reset();
    assert.is(backoff.delayMs, expected[0]);
  }
});

pauses.run();
