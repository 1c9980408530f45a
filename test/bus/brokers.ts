// The brokers that conformance tests run against: each in a process of its own, on a port that
// outlives its restarts, and of one face.

import { randomUUID } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { runtimeCommand } from "../../shared/sys/mod.ts";
import { ManagedProcess } from "../support/managed_process.ts";
import { startNats } from "../support/nats.ts";
import { freePort, tempDir } from "../support/temp.ts";

export interface Broker {
  readonly url: string;
  readonly port: number;
  readonly token: string;
  start(): Promise<void>;
  /** As a crash does. */
  kill(): Promise<void>;
  pause(): void;
  resume(): void;
  stop(): Promise<void>;
}

export interface BrokerSettings {
  /** Output that may wait for one client; the broker's own default when not given. */
  readonly maxPendingBytes?: number;
}

export type StartBroker = (settings: BrokerSettings) => Promise<Broker>;

const program = resolve(import.meta.dirname!, "embedded_process.ts");

export const startEmbedded: StartBroker = async (settings) => {
  const port = await freePort();
  const token = randomUUID();
  let running: ManagedProcess | null = null;
  const broker: Broker = {
    port,
    token,
    url: `nats://127.0.0.1:${port}`,
    async start() {
      const started = await ManagedProcess.launch({
        command: [...runtimeCommand(), program, String(port), token, JSON.stringify(settings)],
      });
      running = started;
      await started.ready("the embedded bus", () => started.stdout().includes("ready nats://"));
    },
    async kill() {
      await running?.stop("SIGKILL");
    },
    pause() {
      running?.signal("SIGSTOP");
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
  if (maxPendingBytes === undefined) return await startNats();
  const config = join(tempDir("nats"), "nats.conf");
  writeFileSync(config, `max_pending: ${maxPendingBytes}\nwrite_deadline: "1s"\n`);
  return await startNats({ extraArguments: ["--config", config] });
};
