// Certificates from anywhere: files that are damaged in any way, and names in the certificates of peers. Nothing but a
// TlsError is thrown, OpenSSL's memory is given back, and a name is exactly the one that was signed, or none.
// How many, and which: test/support/fuzz.ts.
// limit: 900 s

import { Buffer } from "node:buffer";
import { generateKeyPairSync, type KeyObject, sign } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import {
  accept,
  closeFd,
  connectUnix,
  Errno,
  listenUnix,
  TlsContext,
  TlsError,
  type TlsOptions,
} from "../../shared/sys/mod.ts";
import { type Dice, fuzz } from "../support/fuzz.ts";
import { assert, suite } from "../support/harness.ts";
import { needs } from "../support/needs.ts";
import { tempDir } from "../support/temp.ts";

needs("openssl");
const test = suite("sys: certificates from anywhere");

// --- certificates, in DER

/** One value, tag and length before its contents. */
function der(tag: number, ...contents: readonly Uint8Array[]): Buffer {
  const body = Buffer.concat(contents);
  const { length } = body;
  const size = length < 128
    ? [length]
    : length < 256
    ? [0x81, length]
    : [0x82, length >> 8, length & 0xff];
  return Buffer.concat([Buffer.from([tag, ...size]), body]);
}

const hex = (text: string) => Buffer.from(text, "hex");
const sequence = (...parts: readonly Uint8Array[]) => der(0x30, ...parts);
const ecdsaWithSha256 = sequence(der(6, hex("2a8648ce3d040302")));
const validity = sequence(
  der(0x17, Buffer.from("200101000000Z")),
  der(0x17, Buffer.from("491231235959Z")),
);
const commonName = hex("550403");
const otherAttributes = [hex("55040a"), hex("550406"), hex("550403"), hex("2a864886f70d010901")];

interface Attribute {
  readonly oid: Uint8Array;
  /** Its type of string: UTF-8, printable, IA5, T61, BMP, universal. */
  readonly tag: number;
  readonly value: Uint8Array;
}

function nameOf(attributes: readonly Attribute[]): Buffer {
  return sequence(
    ...attributes.map(({ oid, tag, value }) => der(0x31, sequence(der(6, oid), der(tag, value)))),
  );
}

const newKey = () => generateKeyPairSync("ec", { namedCurve: "prime256v1" });
const [authorityKey, peerKey] = [newKey(), newKey()];
const authorityName = nameOf([{ oid: commonName, tag: 12, value: Buffer.from("authority") }]);
const isAuthority = der(
  0xa3,
  sequence(sequence(der(6, hex("551d13")), der(1, hex("ff")), der(4, sequence(der(1, hex("ff")))))),
);

function certificate(subject: Uint8Array, key: KeyObject, extensions: readonly Uint8Array[]) {
  const toBeSigned = sequence(
    der(0xa0, der(2, hex("02"))),
    der(2, hex("01")),
    ecdsaWithSha256,
    authorityName,
    validity,
    subject,
    key.export({ type: "spki", format: "der" }),
    ...extensions,
  );
  const signature = sign("sha256", toBeSigned, authorityKey.privateKey);
  return sequence(toBeSigned, ecdsaWithSha256, der(3, hex("00"), signature));
}

function pem(what: string, bytes: Uint8Array): string {
  const lines = Buffer.from(bytes).toString("base64").match(/.{1,64}/g) ?? [];
  return `-----BEGIN ${what}-----\n${lines.join("\n")}\n-----END ${what}-----\n`;
}

const dir = tempDir("tls");
function file(name: string, content: string | Uint8Array): string {
  const path = join(dir, name);
  writeFileSync(path, content);
  return path;
}

const authorityDer = certificate(authorityName, authorityKey.publicKey, [isAuthority]);
const keyDer = peerKey.privateKey.export({ type: "pkcs8", format: "der" });
const subject = nameOf([{ oid: commonName, tag: 12, value: Buffer.from("ann") }]);
const ownDer = certificate(subject, peerKey.publicKey, []);
const caFile = file("ca.crt", pem("CERTIFICATE", authorityDer));
const certFile = file("own.crt", pem("CERTIFICATE", ownDer));
const keyFile = file("own.key", pem("PRIVATE KEY", keyDer));

const common: TlsOptions = {
  role: "client",
  name: "server_tls",
  certFile,
  keyFile,
  caFile: "",
  peer: "unverified",
  checksHost: false,
  versions: ["tlsv1.3"],
  ciphers: "",
  tls13Ciphers: "",
  groups: "",
  dh: "none",
};
const server = new TlsContext({
  ...common,
  role: "server",
  name: "client_tls",
  caFile,
  peer: "verified",
});

// --- two ends in one thread

const listenFd = listenUnix({ path: `@pgweir-fuzz-${process.pid}`, mode: 0o600, backlog: 8 });

/** What a server makes of a client's certificate: its name, null for none, or why it is refused. */
function nameSeen(client: TlsContext): { name: string | null } | { problem: string } {
  const fds = [connectUnix(`@pgweir-fuzz-${process.pid}`), accept(listenFd)] as const;
  const near = client.session(fds[0]);
  const far = server.session(fds[1]);
  try {
    for (let step = 0; step < 20; step++) {
      const outcomes = [near.handshake(), far.handshake()];
      if (far.problem !== "") return { problem: far.problem };
      if (outcomes[1] === 1) {
        assert.ok(far.peerEndPoint === null || far.peerEndPoint.length > 0);
        return { name: far.peerName };
      }
      for (const outcome of outcomes) assert.ok(outcome === 1 || outcome === -Errno.EAGAIN);
    }
    throw new Error("the handshake does not come to an end");
  } finally {
    for (const end of [near, far]) end.end();
    for (const fd of fds) closeFd(fd);
  }
}

/** The context; null where the files are no good, which is said with the setting's name. */
function contextOf(options: TlsOptions): TlsContext | null {
  try {
    return new TlsContext(options);
  } catch (error) {
    if (!(error instanceof TlsError)) throw error;
    assert.match(error.message, /^(client|server)_tls_(cert|key|ca)_file "[^\n]*": [^\n]+$/);
    return null;
  }
}

test("what the inputs are made of is right", () => {
  const client = new TlsContext(common);
  assert.equal(nameSeen(client), { name: "ann" });
  client.free();
});

const texts = [caFile, certFile, keyFile].map((_, i) =>
  [pem("CERTIFICATE", authorityDer), pem("CERTIFICATE", ownDer), pem("PRIVATE KEY", keyDer)][i]!
);
const pieces = [
  "-----BEGIN CERTIFICATE-----\n",
  "-----END CERTIFICATE-----\n",
  "\n",
  "=",
  "A",
  "\0",
];

/** A damaged text, or a text of damaged bytes. */
function damaged(dice: Dice, which: number): string {
  if (dice.chance(0.4)) return dice.mutateText(texts[which]!, pieces);
  const bytes = dice.input([[authorityDer, ownDer, keyDer][which]!]);
  return pem(which === 2 ? dice.pick(["PRIVATE KEY", "EC PRIVATE KEY"]) : "CERTIFICATE", bytes);
}

fuzz(test, "TlsContext takes any files, or says what is wrong with them", 8_000, (dice, note) => {
  const which = dice.below(3);
  const text = damaged(dice, which);
  note(`${which}: ${text}`);
  const path = file("damaged", text);
  const options: TlsOptions = which === 0
    ? { ...common, role: "server", name: "client_tls", caFile: path, peer: "verified" }
    : which === 1
    ? { ...common, certFile: path }
    : { ...common, keyFile: path };
  const context = contextOf(options);
  if (context === null) return;
  // What was loaded can be shown: it is taken, as whose it is, or refused.
  if (options.role === "client") {
    const seen = nameSeen(context);
    if ("name" in seen) assert.is(seen.name, "ann");
  }
  context.free();
});

const strings = [
  "ann",
  "b o b",
  "",
  "ann\0.evil.example",
  "\u00e9",
  "a".repeat(300),
  "all",
  "/ann",
];

fuzz(test, "a peer's name is the one that was signed, or none", 4_000, (dice, note) => {
  const attributes = Array.from({ length: dice.below(4) }, (): Attribute => ({
    oid: dice.chance(0.6) ? commonName : dice.pick(otherAttributes),
    tag: dice.chance(0.8) ? 12 : dice.pick([19, 22, 20, 30, 28]),
    value: dice.chance(0.8)
      ? Buffer.from(
        dice.pick(strings),
        dice.chance(0.8) ? "utf8" : dice.pick(["latin1", "utf16le"]),
      )
      : dice.bytes(40),
  }));
  const bytes = certificate(nameOf(attributes), peerKey.publicKey, []);
  note(bytes);
  const client = contextOf({ ...common, certFile: file("named.crt", pem("CERTIFICATE", bytes)) });
  if (client === null) return;
  const seen = nameSeen(client);
  client.free();
  if ("problem" in seen) return;
  // As in PostgreSQL the first common name counts, as it stands.
  const first = attributes.find(({ oid }) => Buffer.from(oid).equals(commonName));
  const text = first === undefined || first.value.length === 0 || first.value.includes(0)
    ? null
    : new TextDecoder("utf-8", { ignoreBOM: true }).decode(first.value);
  const isText = text !== null && Buffer.from(text).equals(Buffer.from(first!.value));
  assert.is(seen.name, isText ? text : null);
});

test.after(() => {
  server.free();
  closeFd(listenFd);
});

test.run();
