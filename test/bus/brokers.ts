// The brokers that conformance tests run against: each in a process of its own, on a port that
// outlives its restarts, and of one face.

import { randomUUID } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { runtimeCommand } from "../../shared/sys/mod.ts";
import { ManagedProcess } from "../support/managed_process.ts";
import { startNats } from "../support/nats.ts";
import { freeze } from "../support/processes.ts";
import { freePort, tempDir } from "../support/temp.ts";

export interface Broker {
  readonly url: string;
  readonly port: number;
  readonly token: string;
  start(): Promise<void>;
  /** As a crash does. */
  kill(): Promise<void>;
  /** Stops it where it is, until `resume()`. */
  pause(): Promise<void>;
  resume(): void;
  stop(): Promise<void>;
}

export interface BrokerSettings {
  /** Output that may wait for one client; the broker's own default when not given. */
  readonly maxPendingBytes?: number;
}

export type StartBroker = (settings: BrokerSettings) => Promise<Broker>;

/** A test that was held up in the middle of a login is none that does not log in: not two seconds, as by default. */
const authTimeoutMs = 60_000;
const program = resolve(import.meta.dirname!, "embedded_process.ts");

export const startEmbedded: StartBroker = async (settings) => {
  const options = JSON.stringify({ ...settings, authTimeoutMs });
  const port = await freePort();
  const token = randomUUID();
  let running: ManagedProcess | null = null;
  const broker: Broker = {
    port,
    token,
    url: `nats://127.0.0.1:${port}`,
    async start() {
      const started = await ManagedProcess.launch({
        command: [...runtimeCommand(), program, String(port), token, options],
      });
      running = started;
      await started.ready("the embedded bus", () => started.stdout().includes("ready nats://"));
    },
    async kill() {
      await running?.stop("SIGKILL");
    },
    async pause() {
      if (running !== null) await freeze(running.pid);
    },
    resume() {
      running?.signal("SIGCONT");
    },
    async stop() {
      await running?.stop("SIGTERM");
    },
  };
  await broker.start();
  return broker;
};

export const startNatsServer: StartBroker = async ({ maxPendingBytes }) => {
  const config = join(tempDir("nats"), "nats.conf");
  const bound = maxPendingBytes === undefined
    ? []
    : [`max_pending: ${maxPendingBytes}`, 'write_deadline: "1s"'];
  const lines = [`authorization { timeout: ${authTimeoutMs / 1000} }`, ...bound, ""];
  writeFileSync(config, lines.join("\n"));
  return await startNats({ extraArguments: ["--config", config] });
};
