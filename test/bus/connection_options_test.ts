// From bus settings to the NATS client's options: servers, logins, and the pauses between dials.

import { Backoff, type BusAddress, natsOptions } from "../../shared/bus/connection_options.ts";
import { assert, suite } from "../support/harness.ts";

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
