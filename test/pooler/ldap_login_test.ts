// Which LDAP server is asked and when another one is, with connections that do as they are told; real ones are in
// test/system/auth/ldap_test.ts. And that a server which misbehaves is left in time.

import { createServer, type Server, type Socket } from "node:net";
import type { AddressInfo } from "node:net";
import {
  LdapConnection,
  LdapFailure,
  type LdapTarget,
} from "../../services/pooler/ldap_connection.ts";
import { LdapLogin } from "../../services/pooler/ldap_login.ts";
import { type LdapOptions, parseLdapOptions } from "../../shared/config/mod.ts";
import { assert, suite } from "../support/harness.ts";

const test = suite("LDAP logins");

function options(text: string): LdapOptions {
  const read = parseLdapOptions(text);
  if ("failure" in read) throw new Error(read.failure);
  return read;
}

/** Servers by name: "up", or why they cannot be reached; and what they say to a bind. */
function world(state: Record<string, string>, says: (host: string) => LdapFailure | null) {
  const tried: string[] = [];
  let now = 0;
  const open = (target: LdapTarget) => {
    const { host } = target.server;
    tried.push(target.address);
    if (state[host] !== "up") return Promise.reject(new LdapFailure(state[host]!));
    const bind = () => {
      const failure = says(host);
      return failure === null ? Promise.resolve() : Promise.reject(failure);
    };
    return Promise.resolve({ bind, close: () => {} } as unknown as LdapConnection);
  };
  const resolve = (host: string) => {
    const addresses = host === "two" ? ["two/1", "two/2"] : host === "none" ? [] : [host];
    return Promise.resolve({ addresses, reason: "no such name", isTemporary: false });
  };
  const login = new LdapLogin(resolve, open, () => now);
  const all = options(`ldapserver="${Object.keys(state).join(" ")}" ldapprefix="uid="`);
  return {
    tried,
    pass: (ms: number) => now += ms,
    check: (user = "ann", password = "secret") => login.check(all, user, password),
  };
}

test("the first server that can be reached is asked, and one that cannot comes last for a while", async () => {
  const state: Record<string, string> = { none: "", a: "refused", two: "timeout", b: "up" };
  const { tried, check, pass } = world(state, () => null);
  assert.is(await check(), null);
  assert.equal(tried.splice(0), ["a", "two/1", "two/2", "b"]);
  assert.is(await check(), null);
  assert.equal(tried.splice(0), ["b"]);
  state["b"] = "refused";
  state["two"] = "up";
  assert.is(await check(), null);
  assert.equal(tried.splice(0), ["b", "a", "two/1"]);
  pass(30_001);
  assert.is(await check(), null);
  assert.equal(tried.splice(0), ["a", "two/1"]);
});

test("a server's own word is final, and one that falls silent is not the last", async () => {
  const said = world({ a: "up", b: "up" }, () => new LdapFailure("Invalid credentials", true));
  assert.is(
    await said.check(),
    "LDAP login failed for user uid=ann on server a:389: Invalid credentials",
  );
  assert.equal(said.tried, ["a"]);
  const silent = world(
    { a: "up", b: "up" },
    (host) => host === "a" ? new LdapFailure("timeout") : null,
  );
  assert.is(await silent.check(), null);
  assert.equal(silent.tried, ["a", "b"]);
});

test("when no server can be reached, all reasons are told", async () => {
  const { check } = world({ none: "", a: "refused" }, () => null);
  assert.is(
    await check(),
    "could not connect to LDAP server none:389: no such name; could not connect to LDAP server a:389: refused",
  );
});

test("no server is asked for an empty password, or a name that means something", async () => {
  const { tried, check } = world({ a: "up" }, () => null);
  assert.is(await check("ann", ""), "LDAP login with an empty password");
  assert.is(await check("ann", "a\0"), "LDAP login with an empty password");
  assert.equal(tried, []);
});

// --- servers of bytes

let server: Server | null = null;
const sockets: Socket[] = [];

async function serve(onData: (socket: Socket, bytes: Uint8Array) => void): Promise<number> {
  server = createServer((socket) => {
    sockets.push(socket);
    socket.on("error", () => {});
    socket.on("data", (bytes: Uint8Array) => onData(socket, bytes));
  });
  await new Promise<void>((resolve) => server!.listen(0, "127.0.0.1", resolve));
  return (server.address() as AddressInfo).port;
}

test.after.each(() => {
  for (const socket of sockets.splice(0)) socket.destroy();
  server?.close();
  server = null;
});

const here = (host: string) =>
  Promise.resolve({ addresses: [host], reason: "", isTemporary: false });
/** What these servers do is to be seen before, on a machine that stands still for a while, too. */
const patient = { connectMs: 60_000, answersMs: 60_000 };
const ask = (port: number, more = "") =>
  new LdapLogin(here, (target) => LdapConnection.open(target, patient)).check(
    options(`ldapserver=127.0.0.1 ldapport=${port} ldapprefix="uid=" ${more}`),
    "ann",
    "secret",
  );

/** An answer of success: id, and the tag of its kind. */
const success = (id: number, tag: number) =>
  Uint8Array.of(0x30, 0x0c, 2, 1, id, tag, 7, 0x0a, 1, 0, 4, 0, 4, 0);

// A person in between could end the TLS handshake's plain prologue with the beginning of an answer of its own, which the
// first encrypted bytes would complete: "success" to a bind whose password was wrong.
test("what stands behind the answer to StartTLS is taken for no answer", async () => {
  const more = Uint8Array.of(...success(3, 0x61).slice(0, 13), 5);
  const port = await serve((socket, bytes) => {
    if (bytes[5] === 0x77) socket.write(Uint8Array.of(...success(bytes[4]!, 0x78), ...more));
  });
  assert.match(
    String(await ask(port, "ldaptls=1")),
    "could not start LDAP TLS session: data behind",
  );
});

test("a server without StartTLS gets no password", async () => {
  const seen: number[] = [];
  const port = await serve((socket, bytes) => {
    seen.push(bytes[5]!);
    const refused = success(bytes[4]!, 0x78);
    refused[9] = 2;
    socket.write(refused);
  });
  assert.match(String(await ask(port, "ldaptls=1")), "could not start LDAP TLS session: ");
  assert.equal(seen, [0x77]);
});

test("a server that answers without end is left", async () => {
  const port = await serve((socket) => {
    // One message of a length that never comes to its end.
    socket.write(Uint8Array.of(0x30, 0x84, 0x7f, 0xff, 0xff, 0xff));
    const pour = () => {
      while (!socket.destroyed && socket.write(new Uint8Array(65536)));
    };
    socket.on("drain", pour);
    pour();
  });
  assert.match(String(await ask(port)), "answer is too long");
});

test("a server that hangs up is left", async () => {
  const port = await serve((socket) => socket.destroy());
  assert.match(String(await ask(port)), "connection was closed");
});

test.run();
