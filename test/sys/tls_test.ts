// TLS under a Stream, where it differs from a plain one: handshakes that fail or never end, what comes first on a
// connection, records cut anywhere, certificates. That bytes arrive in order and with back-pressure is tested together
// with plain streams (back_pressure_test.ts, echo_test.ts, stream_fuzz_test.ts).
// limit: 300 s

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { CertificateAuthority } from "../support/certificates.ts";
import { assert, suite, until } from "../support/harness.ts";
import { needs } from "../support/needs.ts";
import {
  collectGarbage,
  Errno,
  TlsContext,
  TlsError,
  type TlsOptions,
} from "../../shared/sys/mod.ts";
import { encoder, type Peer, type Rig, withRig } from "./fixtures.ts";
import { certificates, tlsContexts } from "./tls_fixtures.ts";

needs("openssl");
const test = suite("sys: TLS");

const hello = encoder.encode("hello");

/** Both ends begin a handshake; returns what their owners were told, "" for success. */
async function shake(
  rig: Rig,
  [near, far]: readonly [Peer, Peer],
  client: TlsOptions,
  server: TlsOptions,
  host = "",
): Promise<[string, string]> {
  const contexts = [new TlsContext(client), new TlsContext(server)] as const;
  try {
    near.stream.startTls(contexts[0], host);
    far.stream.startTls(contexts[1]);
    await rig.until("the near end's handshake", () => near.secured !== null);
    if (near.secured === "") {
      // The server learns later whether its client is content, and the client the other way round.
      await rig.until("the far end's handshake", () => far.secured !== null);
    } else near.stream.closeWhenDrained(1000);
    await rig.until("the far end's handshake", () => far.secured !== null);
    return [near.secured!, far.secured!];
  } finally {
    for (const context of contexts) context.free();
  }
}

/** Carries bytes between two plain streams, `size` at a time. */
function forward(rig: Rig, from: Peer, to: Peer, size: number): void {
  from.onRead = () => {
    const count = from.stream.recv(rig.buffer, 40_000, size);
    if (count > 0) to.stream.send(rig.buffer, 40_000, count);
    else if (count === 0) to.stream.closeWhenDrained(1000);
  };
}

for (const version of ["tlsv1.2", "tlsv1.3"] as const) {
  test(`Stream.startTls() agrees on ${version}, and tells what was agreed`, () =>
    withRig(async (rig) => {
      const { client, server } = certificates();
      const [near, far] = await rig.pair();
      const only = { versions: [version] };
      assert.equal(await shake(rig, [near, far], { ...client, ...only }, server), ["", ""]);
      const name = version === "tlsv1.2" ? "TLSv1.2/ECDHE-ECDSA-" : "TLSv1.3/TLS_AES_256_GCM_";
      assert.ok(near.stream.tls!.info.startsWith(name), near.stream.tls!.info);
      assert.is(far.stream.tls!.info, near.stream.tls!.info);
      assert.ok(far.stream.tls!.hasAlpn && near.stream.tls!.hasAlpn);
      assert.not(far.stream.tls!.hasPeerCertificate);
      assert.is(far.stream.tls!.peerName, null);
    }));

  for (const size of [1, 7, 16_000]) {
    test(`Stream under ${version} reads records that come ${size} bytes at a time`, () =>
      withRig(async (rig) => {
        const { client, server } = certificates();
        const [near, left] = await rig.pair();
        const [right, far] = await rig.pair();
        forward(rig, left, right, size);
        forward(rig, right, left, size);
        const only = { versions: [version] };
        assert.equal(await shake(rig, [near, far], { ...client, ...only }, server), ["", ""]);
        const sent = new Uint8Array(size === 1 ? 3000 : 60_000).map((_, i) => (i * 7) & 0xff);
        near.send(sent);
        far.stream.sendBytes(sent);
        await rig.until(
          "all bytes",
          () => far.receivedBytes >= sent.length && near.receivedBytes >= sent.length,
        );
        assert.is(Buffer.compare(far.bytes(), sent), 0);
        assert.is(Buffer.compare(near.bytes(), sent), 0);
        near.stream.closeWhenDrained(1000);
        await rig.until("end of file", () => far.ended === 0);
      }));
  }
}

// OpenSSL's memory is nobody's garbage: what is not freed stays for good.
test("Stream gives the memory of its TLS session back", () =>
  withRig(async (rig) => {
    const rss = () => process.memoryUsage.rss();
    let warm = 0;
    for (let i = 0; i < 1200; i++) {
      const [near, far] = await rig.pair("tls");
      near.send(hello);
      await rig.until("the bytes", () => far.receivedBytes === hello.length);
      if (i % 3 === 0) near.reset();
      else if (i % 3 === 1) near.stream.close();
      else near.stream.closeWhenDrained(10);
      far.stream.close();
      rig.forget(near, far);
      if (i !== 300) continue;
      collectGarbage();
      warm = rss();
    }
    // A session takes more than 10 kB at each end. What the engine has not collected yet is no session.
    const grown = () => rss() - warm;
    await until(
      "garbage to be collected",
      () => {
        collectGarbage();
        return grown() < 9_000_000;
      },
      5_000,
      100,
    ).catch(() => assert.unreachable(`${grown()} bytes after 900 connections`));
  }));

test("Stream brings what came in one record in pieces, without anything new on the socket", () =>
  withRig(async (rig) => {
    const [near, far] = await rig.pair("tls");
    far.readBytes = 5;
    near.send(encoder.encode("one two three four five six seven"));
    await rig.until("all bytes", () => far.text() === "one two three four five six seven");
    assert.ok(await rig.batchesWithin(40) < 10, "the loop spins after all was read");
    // Records that came together with one that was read, while the owner was not to be bothered.
    far.onRead = () => {
      far.read();
      far.stream.pause(true);
    };
    const before = far.receivedBytes;
    for (const part of ["a", "b", "c"]) near.send(encoder.encode(part.repeat(9)));
    await rig.until("the first part", () => far.receivedBytes > before);
    assert.ok(await rig.batchesWithin(40) < 10, "the loop spins over a paused stream");
    while (far.receivedBytes < before + 27) {
      const { receivedBytes } = far;
      far.stream.resume();
      await rig.until("the next part", () => far.receivedBytes > receivedBytes);
    }
  }));

test("Stream.send() and recv() refuse while a handshake is under way: nothing goes out in clear", () =>
  withRig(async (rig) => {
    const [near, far] = await rig.pair();
    const [client] = tlsContexts();
    near.stream.startTls(client);
    assert.is(near.send(hello), -Errno.EPIPE);
    assert.is(near.stream.sendBytes(hello), -Errno.EPIPE);
    assert.is(near.stream.recv(rig.buffer, 0, 10), -Errno.EAGAIN);
    await rig.until("the hello of TLS", () => far.receivedBytes > 0);
    assert.is(far.bytes()[0], 0x16);
    assert.not(far.text().includes("hello"));
    near.stream.closeWhenDrained(1000);
    assert.ok(near.stream.closed);
  }));

test("Stream.startTls() against garbage fails, and nothing is sent in clear afterwards", () =>
  withRig(async (rig) => {
    const [, server] = tlsContexts();
    for (const garbage of ["GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\xff\xff\xff", "\0".repeat(99)]) {
      const [near, far] = await rig.pair();
      far.stream.startTls(server);
      near.stream.sendBytes(encoder.encode(garbage));
      if (garbage.startsWith("\x16")) near.stream.closeWhenDrained(1000);
      await rig.until("the failure", () => far.secured !== null);
      assert.not(far.secured === "");
      assert.is(far.send(hello), -Errno.EPIPE);
      assert.is(far.stream.sendBytes(hello), -Errno.EPIPE);
      far.stream.closeWhenDrained(1000);
      near.stream.resume();
      await rig.until("the end", () => near.ended !== null || near.stream.closed);
      assert.not(near.text().includes("hello"));
      near.stream.close();
      await rig.until("the close", () => far.stream.closed);
      assert.is(far.hangupCalls, 0);
    }
  }));

test("Stream.startTls() is told when the peer leaves, wherever in the handshake that is", () =>
  withRig(async (rig) => {
    // The bytes of a client's first flight, to be cut anywhere.
    const [probe, sink] = await rig.pair();
    const [context, serverContext] = tlsContexts();
    probe.stream.startTls(context);
    await rig.until("the first flight", () => sink.receivedBytes > 0);
    const flight = sink.bytes();
    for (const length of [0, 1, 5, 6, 60, flight.length - 1, flight.length]) {
      for (const isReset of [false, true]) {
        const [near, far] = await rig.pair();
        far.stream.startTls(serverContext);
        if (length > 0) near.stream.sendBytes(flight.subarray(0, length));
        if (length === flight.length) await rig.until("an answer", () => near.receivedBytes > 0);
        if (isReset) near.reset();
        else near.stream.close();
        await rig.until(`the failure after ${length} bytes`, () => far.secured !== null);
        assert.not(far.secured === "", `${length} bytes, reset ${isReset}`);
        far.stream.close();
      }
    }
    // A client is told as well.
    const [near, far] = await rig.pair();
    near.stream.startTls(context);
    await rig.until("the first flight", () => far.receivedBytes > 0);
    far.stream.close();
    await rig.until("the failure", () => near.secured !== null);
    assert.match(near.secured!, /closed|reset/);
  }));

test("Stream.startTls() waits for a peer that says nothing until the owner closes", () =>
  withRig(async (rig) => {
    const [, far] = await rig.pair();
    far.stream.startTls(tlsContexts()[1]);
    assert.ok(await rig.batchesWithin(60) < 10, "the loop spins");
    assert.is(far.secured, null);
    far.stream.close();
    assert.is(far.secured, null);
  }));

test("Stream.expectTls() takes a handshake, and leaves everything else as it is", () =>
  withRig(async (rig) => {
    const [client, server] = tlsContexts();
    for (const first of ["tls", "plain", "nothing", "reset"] as const) {
      const [near, far] = await rig.pair();
      far.stream.expectTls(() => server);
      if (first === "tls") near.stream.startTls(client);
      else if (first === "plain") near.stream.sendBytes(hello);
      else if (first === "nothing") near.stream.closeWhenDrained(1000);
      else near.reset();
      if (first === "tls") {
        await rig.until("the handshake", () => far.secured === "" && near.secured === "");
        near.send(hello);
      }
      if (first === "tls" || first === "plain") {
        await rig.until("the bytes", () => far.text() === "hello");
        assert.is(far.stream.tls === null, first === "plain");
        far.send(encoder.encode("answer"));
        await rig.until("the answer", () => near.text() === "answer");
      } else {
        await rig.until("the end", () => far.ended !== null);
        assert.is(far.ended, first === "nothing" ? 0 : Errno.ECONNRESET);
      }
    }
    // An owner that gives up before anything came may still say why.
    const [near, far] = await rig.pair();
    far.stream.expectTls(() => server);
    assert.is(far.stream.sendBytes(hello), 0);
    far.stream.closeWhenDrained(1000);
    await rig.until("its word", () => near.text() === "hello" && near.ended === 0);
  }));

test("Stream tells a damaged record, and in what words", () =>
  withRig(async (rig) => {
    const { client, server } = certificates();
    const [near, left] = await rig.pair();
    const [right, far] = await rig.pair();
    forward(rig, left, right, 16_000);
    forward(rig, right, left, 16_000);
    await shake(rig, [near, far], client, server);
    left.onRead = () => {
      const count = left.stream.recv(rig.buffer, 40_000, 4000);
      if (count <= 0) return;
      rig.buffer.bytes[40_000 + count - 1]! ^= 1;
      right.stream.send(rig.buffer, 40_000, count);
    };
    near.send(hello);
    await rig.until("the error", () => far.ended !== null);
    assert.is(far.ended, Errno.EPROTO);
    assert.match(far.stream.reasonOf(Errno.EPROTO), /^TLS: .*mac/);
    assert.is(far.stream.reasonOf(Errno.ECONNRESET), "Connection reset by peer");
    assert.is(far.send(hello), -Errno.EPROTO);
  }));

test("TlsContext checks the server's certificate: its authority, its host", () =>
  withRig(async (rig) => {
    const { client, server, authority } = certificates();
    const trusting = { ...client, caFile: authority.caFile, peer: "verified" } as const;
    const full = { ...trusting, checksHost: true };
    const stranger = { ...full, caFile: authority.issue("stranger").certFile };
    const rows: [TlsOptions, string, RegExp][] = [
      [client, "", /^$/],
      [trusting, "elsewhere.example", /^$/],
      [full, "localhost", /^$/],
      [full, "127.0.0.1", /^$/],
      [full, "elsewhere.example", /certificate verify failed \(hostname mismatch\)/],
      [full, "127.0.0.2", /certificate verify failed \(IP address mismatch\)/],
      [full, "::1", /certificate verify failed \(IP address mismatch\)/],
      [stranger, "localhost", /certificate verify failed \(unable to get local issuer/],
      [{ ...trusting, caFile: "" }, "localhost", /certificate verify failed \(/],
    ];
    for (const [options, host, wanted] of rows) {
      const [told, other] = await shake(rig, await rig.pair(), options, server, host);
      assert.match(told, wanted, `${host}: ${told}`);
      if (told !== "") assert.match(other, /alert/, other);
    }
    const [near] = await rig.pair();
    const context = new TlsContext(full);
    assert.throws(() => near.stream.startTls(context, ""), /no host/);
    context.free();
  }));

test("TlsContext checks the client's certificate, and tells whose it is", () =>
  withRig(async (rig) => {
    const { client, server, authority } = certificates();
    const alice = { ...client, ...authority.issue("alice") };
    const mallory = { ...client, ...new CertificateAuthority("another").issue("alice") };
    const required = { ...server, caFile: authority.caFile, peer: "verified" } as const;
    const offered = { ...required, peer: "offered" } as const;
    const rows: [TlsOptions, TlsOptions, string | null][] = [
      [alice, required, "alice"],
      [alice, offered, "alice"],
      [alice, server, null],
      [client, offered, null],
    ];
    for (const [options, wanted, name] of rows) {
      const pair = await rig.pair();
      assert.equal(await shake(rig, pair, options, wanted), ["", ""]);
      assert.is(pair[1].stream.tls!.peerName, name);
      assert.is(pair[1].stream.tls!.hasPeerCertificate, name !== null);
    }
    for (const [options, wanted] of [[client, required], [mallory, required], [mallory, offered]]) {
      const pair = await rig.pair();
      // With TLS 1.3 the client is through before the server has looked at its certificate.
      const [, far] = await shake(rig, pair, options!, wanted!);
      assert.match(far, /peer did not return a certificate|certificate verify failed/);
      assert.is(pair[1].stream.tls, null);
    }
  }));

test("TlsContext and TlsSession agree on the tls-server-end-point data", () =>
  withRig(async (rig) => {
    const { client, server } = certificates();
    const [near, far] = await rig.pair();
    await shake(rig, [near, far], client, server);
    const own = far.stream.tls!.context.endPoint!;
    assert.is(own.length, 32);
    assert.equal(near.stream.tls!.peerEndPoint, own);
    assert.is(near.stream.tls!.context.endPoint, null);
  }));

test("new TlsContext() says which setting is wrong, and why", () => {
  const { client, server, authority } = certificates();
  const garbage = join(authority.dir, "garbage.pem");
  writeFileSync(garbage, "no certificate\n");
  const other = authority.issue("other");
  const rows: [TlsOptions, RegExp][] = [
    [
      { ...server, certFile: "/nowhere.crt" },
      /^client_tls_cert_file "\/nowhere.crt": No such file/,
    ],
    [{ ...server, keyFile: "/nowhere.key" }, /^client_tls_key_file "\/nowhere.key": No such file/],
    [{ ...server, caFile: "/nowhere.ca" }, /^client_tls_ca_file "\/nowhere.ca": No such file/],
    [{ ...client, caFile: garbage }, /^server_tls_ca_file ".*garbage.pem": \S/],
    [{ ...server, certFile: garbage }, /^client_tls_cert_file ".*": no start line/],
    [{ ...server, keyFile: other.keyFile }, /^client_tls_key_file ".*": key values mismatch/],
    [{ ...server, ciphers: "nonsense" }, /^client_tls_ciphers "nonsense": no cipher match/],
    [{ ...server, tls13Ciphers: "nonsense" }, /^client_tls13_ciphers "nonsense": \S/],
    [{ ...server, groups: "nonsense" }, /^client_tls_ecdhcurve "nonsense": \S/],
  ];
  for (const [options, wanted] of rows) {
    try {
      new TlsContext(options);
      assert.unreachable(`${wanted} was not thrown`);
    } catch (error) {
      assert.instance(error, TlsError);
      assert.match((error as Error).message, wanted);
    }
  }
});

test("TlsContext.admits() a few steps of handshakes per batch of events", () => {
  const [, server] = tlsContexts();
  const admitted = (now: number) => Array.from({ length: 20 }, () => server.admits(now));
  for (const now of [1e9, 1e9 + 1]) {
    const steps = admitted(now);
    assert.is(steps.filter((is) => is).length, 8);
    assert.is(steps.lastIndexOf(true), 7);
  }
});

test("many handshakes that come together are all done, a few at a time", () =>
  withRig(async (rig) => {
    const [client, server] = tlsContexts();
    const pairs: (readonly [Peer, Peer])[] = [];
    for (let i = 0; i < 60; i++) pairs.push(await rig.pair());
    for (const [near, far] of pairs) {
      near.stream.startTls(client);
      far.stream.startTls(server);
    }
    await rig.until("the handshakes", () => pairs.flat().every(({ secured }) => secured === ""));
  }));

test("a key with a password is an error, and asks nobody", () => {
  const { server, authority } = certificates();
  const encrypted = authority.encryptKey(server.keyFile, "secret");
  assert.throws(
    () => new TlsContext({ ...server, keyFile: encrypted }),
    /^client_tls_key_file ".*": \S/,
  );
});

test.run();
