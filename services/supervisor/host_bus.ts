// The bus of this host, and the store beside it: the embedded ones, which live in this process, or those of
// nats-servers. Who of this host may do what on the embedded bus is decided here; on nats-servers it is up
// to their configuration.

import { randomBytes } from "node:crypto";
import {
  type Bus,
  BusError,
  busOptions,
  connectBus,
  EmbeddedBus,
  MemoryStore,
  openStore,
  type Rights,
  serveStore,
  type Store,
} from "../../shared/bus/mod.ts";
import type { Settings } from "../../shared/config/mod.ts";
import type { Logger } from "../../shared/telemetry/mod.ts";
import { StartFailure } from "./failure.ts";

/** Until the log says that the start waits for the bus, and then between two such lines. */
const firstWaitMs = 2000;
const waitMs = 10_000;
/** Errors of the store that no waiting mends. */
const lasting: readonly string[] = ["NO_JETSTREAM", "REFUSED", "INVALID"];

export class HostBus {
  readonly bus: Bus;
  /** Of this supervisor on the bus. */
  readonly name: string;
  /** Servers for the processes of this host, as a list with commas. May hold a login. */
  readonly url: string;
  readonly #embedded: EmbeddedBus | null;
  readonly #logger: Logger;
  /** By name, so that what a successor gets voids its predecessor's. */
  readonly #tokens = new Map<string, string>();
  #reachedAt = performance.now();
  #stopServing: () => void = () => {};

  /** With nats-servers it resolves at once, whether they can be reached or not. */
  static async start(settings: Settings, logger: Logger): Promise<HostBus> {
    const name = `supervisor-${randomBytes(6).toString("hex")}`;
    const { mesh, busUrl } = settings;
    let embedded: EmbeddedBus | null = null;
    try {
      if (busUrl.length > 0) {
        const bus = await connectBus({ ...busOptions(settings), name, logger, background: true });
        return new HostBus(bus, name, busUrl.join(","), null, logger);
      }
      embedded = new EmbeddedBus({ logger });
      const token = newToken();
      const { url } = await embedded.start({ token });
      const bus = await connectBus({ servers: [url], token, name, mesh, logger });
      return new HostBus(bus, name, url, embedded, logger);
    } catch (error) {
      await embedded?.close();
      const code = (error as NodeJS.ErrnoException).code;
      if (error instanceof BusError) throw new StartFailure(error.message);
      if (code !== undefined) throw new StartFailure(`start the embedded bus: ${code}`);
      throw error;
    }
  }

  private constructor(
    bus: Bus,
    name: string,
    url: string,
    embedded: EmbeddedBus | null,
    logger: Logger,
  ) {
    this.bus = bus;
    this.name = name;
    this.url = url;
    this.#embedded = embedded;
    this.#logger = logger;
    bus.onReconnect(() => this.#reachedAt = performance.now());
  }

  get isEmbedded(): boolean {
    return this.#embedded !== null;
  }

  /** How long the bus has been reaching us without a break. */
  listeningMs(): number {
    return this.bus.connected ? performance.now() - this.#reachedAt : 0;
  }

  /** The store of the mesh; waits for nats-servers until they answer. Rejects when `signal` is aborted. */
  async openStore(signal: AbortSignal): Promise<Store> {
    if (this.#embedded !== null) {
      const store = new MemoryStore();
      this.#stopServing = serveStore(this.bus, store);
      return store;
    }
    const aborted = new Promise<never>((_, reject) => {
      signal.addEventListener("abort", () => reject(signal.reason));
    });
    for (let ms = firstWaitMs;; ms = waitMs) {
      signal.throwIfAborted();
      try {
        return await Promise.race([openStore(this.bus, { waitMs: ms }), aborted]);
      } catch (error) {
        if (!(error instanceof BusError)) throw error;
        if (lasting.includes(error.code)) throw new StartFailure(error.message);
        this.#logger.warning(
          "waiting for the bus before the workers are started, which get their slots through it: " +
            error.message,
        );
      }
    }
  }

  /**
   * A token that gives `rights` on the embedded bus; the one that was given for the same `purpose` before
   * is void. With nats-servers the login is in the configuration: an empty token.
   */
  token(purpose: string, rights: Rights): string {
    if (this.#embedded === null) return "";
    const previous = this.#tokens.get(purpose);
    if (previous !== undefined) this.#embedded.forget(previous);
    const token = newToken();
    this.#tokens.set(purpose, token);
    this.#embedded.allow(token, rights);
    return token;
  }

  async close(): Promise<void> {
    this.#stopServing();
    await this.bus.close();
    await this.#embedded?.close();
  }
}

export function newToken(): string {
  return randomBytes(32).toString("base64url");
}
