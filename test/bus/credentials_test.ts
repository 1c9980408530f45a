// Login with a .creds file: a signed user of an account, on a nats-server that trusts the account's
// operator. The tokens are made here, as the nsc program makes them.

import { Buffer } from "node:buffer";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { nkeys } from "nats";
import { type Bus, BusError, busOptions, connectBus, openStore } from "../../shared/bus/mod.ts";
import { createLogger } from "../../shared/telemetry/mod.ts";
import { assert, suite, until } from "../support/harness.ts";
import { type NatsServer, startNats } from "../support/nats.ts";
import { needs } from "../support/needs.ts";
import { tempDir } from "../support/temp.ts";
import { patientBus, patientStore } from "./patience.ts";

needs("nats-server");

type KeyPair = ReturnType<typeof nkeys.createUser>;

/** A JSON web token with NATS's own signature, of one key about another. */
function token(by: KeyPair, about: KeyPair, name: string, nats: object): string {
  const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString("base64url");
  const head = part({ typ: "JWT", alg: "ed25519-nkey" });
  const claims = part({
    jti: crypto.randomUUID(),
    iat: Math.floor(Date.now() / 1000),
    iss: by.getPublicKey(),
    sub: about.getPublicKey(),
    name,
    nats: { ...nats, version: 2 },
  });
  const signature = by.sign(new Uint8Array(Buffer.from(`${head}.${claims}`)));
  return `${head}.${claims}.${Buffer.from(signature).toString("base64url")}`;
}

const unlimited = { subs: -1, data: -1, payload: -1 };
const operator = nkeys.createOperator();
const account = nkeys.createAccount();
const system = nkeys.createAccount();
const plain = nkeys.createAccount();
const limits = {
  ...unlimited,
  ...{ imports: -1, exports: -1, wildcards: true, conn: -1, leaf: -1 },
};
const storage = { mem_storage: -1, disk_storage: -1, streams: -1, consumer: -1 };

const dir = tempDir("creds");
const file = (name: string): string => join(dir, name);

/** What nsc writes: the token and the seed between lines of dashes. */
function writeCredentials(name: string, by: KeyPair): string {
  const user = nkeys.createUser();
  const jwt = token(by, user, name, { type: "user", pub: {}, sub: {}, ...unlimited });
  const seed = Buffer.from(user.getSeed()).toString();
  writeFileSync(
    file(name),
    `-----BEGIN NATS USER JWT-----\n${jwt}\n------END NATS USER JWT------\n\n` +
      `-----BEGIN USER NKEY SEED-----\n${seed}\n------END USER NKEY SEED------\n`,
  );
  return file(name);
}

const lines: string[] = [];
const logger = createLogger({
  component: "test",
  level: "debug",
  format: "text",
  write: (line) => lines.push(line),
});
const opened: Bus[] = [];
let server: NatsServer;

async function connect(busCredentials: string): Promise<Bus> {
  const settings = {
    mesh: "m",
    busUrl: [server.url],
    busCredentials,
    busTlsCaFile: "",
    busTlsCertFile: "",
    busTlsKeyFile: "",
  };
  const one = await connectBus({ ...busOptions(settings), name: "one", logger, ...patientBus });
  opened.push(one);
  return one;
}

const test = suite("login with credentials");

test.before(async () => {
  const accountToken = token(operator, account, "pgweir", {
    type: "account",
    limits: { ...limits, ...storage },
    default_permissions: { pub: {}, sub: {} },
  });
  const withoutStorage = (about: KeyPair, name: string): string =>
    token(operator, about, name, {
      type: "account",
      limits,
      default_permissions: { pub: {}, sub: {} },
    });
  const operatorToken = token(operator, operator, "operator", {
    type: "operator",
    system_account: system.getPublicKey(),
  });
  writeFileSync(
    file("nats.conf"),
    `operator: ${operatorToken}
system_account: ${system.getPublicKey()}
resolver: MEMORY
resolver_preload {
  ${account.getPublicKey()}: ${accountToken}
  ${system.getPublicKey()}: ${withoutStorage(system, "system")}
  ${plain.getPublicKey()}: ${withoutStorage(plain, "plain")}
}\n`,
  );
  server = await startNats({
    token: "",
    jetstream: true,
    extraArguments: ["--config", file("nats.conf")],
  });
});
test.after.each(async () => {
  for (const one of opened.splice(0)) await one.close();
});
test.after(async () => {
  await server.stop();
});

test("connectBus() logs in with a credentials file, and again when the server was restarted", async () => {
  const one = await connect(writeCredentials("good.creds", account));
  const store = await openStore(one, patientStore);
  const revision = (await store.create("a", new Uint8Array(1)))!;
  await server.restart();
  await until("the bus to be back", () => one.connected);
  assert.ok(await store.update("a", new Uint8Array(2), revision));
});

test("connectBus() is refused with the credentials of an account that the server does not trust", async () => {
  const path = writeCredentials("stranger.creds", nkeys.createAccount());
  try {
    await connect(path);
    assert.unreachable();
  } catch (error) {
    assert.is((error as BusError).code, "REFUSED");
  }
});

test("openStore() says so when the account has no JetStream", async () => {
  const one = await connect(writeCredentials("plain.creds", plain));
  try {
    await openStore(one);
    assert.unreachable();
  } catch (error) {
    assert.ok(error instanceof BusError);
    assert.is(error.code, "NO_JETSTREAM");
  }
});

test("nothing of a credentials file is in the log", () => {
  assert.ok(lines.length > 0);
  assert.not.match(lines.join(""), /eyJ|SU[A-Z0-9]{10}/);
});

test.run();
