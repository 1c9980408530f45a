// The bus over TLS: against a real nats-server with certificates made for the test.

import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import {
  type Bus,
  BusError,
  type BusOptions,
  busOptions,
  connectBus,
  openStore,
} from "../../shared/bus/mod.ts";
import { createLogger } from "../../shared/telemetry/mod.ts";
import { assert, suite, until } from "../support/harness.ts";
import { ManagedProcess } from "../support/managed_process.ts";
import { findProgram, needs } from "../support/needs.ts";
import { freePort, tempDir } from "../support/temp.ts";
import { patientBus, patientStore } from "./patience.ts";

needs("nats-server");
const openssl = findProgram("openssl");
if (openssl === null) {
  console.log("SKIP openssl not installed");
  process.exit(0);
}

const dir = tempDir("tls");
const file = (name: string): string => join(dir, name);

function run(...args: string[]): void {
  const { status, stderr } = spawnSync(openssl ?? "", args, { cwd: dir, encoding: "utf8" });
  if (status !== 0) throw new Error(`openssl ${args[0]}: ${stderr}`);
}

function authority(name: string): void {
  run(
    ...["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"],
    ...["-days", "2", "-subj", `/CN=${name}`, "-keyout", `${name}.key`, "-out", `${name}.pem`],
  );
}

function certificate(name: string, ca: string, names = "IP:127.0.0.1,DNS:localhost"): void {
  run(
    ...["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"],
    ...["-subj", `/CN=${name}`, "-keyout", `${name}.key`, "-out", `${name}.csr`],
  );
  writeFileSync(file("ext"), `subjectAltName=${names}\n`);
  run(
    ...["x509", "-req", "-in", `${name}.csr`, "-CA", `${ca}.pem`, "-CAkey", `${ca}.key`],
    ...["-CAcreateserial", "-days", "2", "-extfile", "ext", "-out", `${name}.pem`],
  );
}

const logger = createLogger({ component: "test", level: "fatal", format: "text" });
const opened: Bus[] = [];
let server: ManagedProcess;
let port = 0;

function options(more: Partial<BusOptions>): BusOptions {
  return {
    servers: [`tls://127.0.0.1:${port}`],
    user: "worker",
    password: "pass word",
    mesh: "m",
    name: "one",
    logger,
    ...patientBus,
    ...more,
  };
}

async function codeOf(promise: Promise<unknown>): Promise<string> {
  try {
    await promise;
  } catch (error) {
    if (error instanceof BusError) return error.code;
    throw error;
  }
  return "none";
}

async function start(identity: string): Promise<void> {
  writeFileSync(
    file("nats.conf"),
    `listen: "127.0.0.1:${port}"
authorization { user: worker, password: "pass word" }
tls {
  cert_file: "${file(`${identity}.pem`)}", key_file: "${file(`${identity}.key`)}"
  ca_file: "${file("ca.pem")}", verify: true
}\n`,
  );
  const jetstream = ["-js", "-sd", file("store")];
  server = await ManagedProcess.launch({
    command: ["nats-server", "-c", file("nats.conf"), ...jetstream],
  });
  await server.ready("nats-server", () => server.output().includes("Server is ready"));
}

const tls = suite("Bus over TLS");

tls.before(async () => {
  authority("ca");
  authority("other");
  certificate("server", "ca");
  certificate("client", "ca");
  certificate("named", "ca", "DNS:localhost");
  port = await freePort();
  await start("server");
});
tls.after.each(async () => {
  for (const one of opened.splice(0)) await one.close();
});
tls.after(async () => {
  await server.stop();
});

/** One dial. */
const once = { waitOnFirstConnectMs: 0 } as const;
const identity = { certFile: file("client.pem"), keyFile: file("client.key") };

tls("connectBus() verifies the server and shows its own certificate", async () => {
  const one = await connectBus(options({ tls: { caFile: file("ca.pem"), ...identity } }));
  opened.push(one);
  assert.ok(await one.roundTripMs() >= 0);
});

tls(
  "busOptions() takes files and login from the settings of a mesh, and the store works",
  async () => {
    const settings = {
      mesh: "m",
      busUrl: [`tls://worker:pass%20word@127.0.0.1:${port}`],
      busCredentials: "",
      busTlsCaFile: file("ca.pem"),
      busTlsCertFile: identity.certFile,
      busTlsKeyFile: identity.keyFile,
    };
    const one = await connectBus({ ...busOptions(settings), name: "one", logger, ...patientBus });
    opened.push(one);
    const store = await openStore(one, patientStore);
    assert.ok(await store.create("a", new Uint8Array(1)));
    assert.is((await store.list("")).length, 1);
  },
);

tls(
  "connectBus() refuses a server of another authority, and is refused without a certificate",
  async () => {
    const rows: [Partial<BusOptions>, string][] = [
      [{ tls: { caFile: file("other.pem"), ...identity } }, "UNREACHABLE"],
      [{ tls: identity }, "UNREACHABLE"],
      [{ tls: { caFile: file("ca.pem") } }, "UNREACHABLE"],
      [{ tls: { caFile: file("missing.pem") } }, "UNREACHABLE"],
      [{ tls: { caFile: file("ca.pem"), ...identity }, password: "wrong" }, "REFUSED"],
    ];
    for (const [more, code] of rows) {
      // A refusal is final, so that there is time for it; all the others would be tried again.
      const dials = code === "REFUSED" ? patientBus : once;
      assert.is(
        await codeOf(connectBus(options({ ...more, ...dials }))),
        code,
        JSON.stringify(more),
      );
    }
  },
);

tls("a bus over TLS comes back when its broker was restarted", async () => {
  const one = await connectBus(options({ tls: { caFile: file("ca.pem"), ...identity } }));
  opened.push(one);
  await server.stop("SIGKILL");
  await until("the loss", () => !one.connected);
  await start("server");
  await until("the bus to be back", () => one.connected);
  assert.ok(await one.roundTripMs() >= 0);
});

tls("connectBus() wants the server to prove the name or address it was given", async () => {
  await server.stop();
  await start("named");
  const verified = { tls: { caFile: file("ca.pem"), ...identity } };
  assert.is(await codeOf(connectBus(options({ ...verified, ...once }))), "UNREACHABLE");
  const byName = { ...verified, servers: [`nats://localhost:${port}`] };
  opened.push(await connectBus(options(byName)));
});

tls.run();
