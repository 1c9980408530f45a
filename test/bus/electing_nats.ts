// A nats-server as it is in a cluster whose members have yet to elect who leads JetStream, for as long as a test
// wants: which one of a real cluster leads, and when, is up to its members. Nothing else of a cluster.

import type { NatsConnection } from "nats";
import { connectNats } from "../../shared/bus/transport.ts";
import { type NatsServer, startNats } from "../support/nats.ts";

/** It says so to whoever asks, until `elect()` puts one that leads in its place, at the same address. */
export class ElectingNats {
  #server: NatsServer;
  #jetstream: NatsConnection | null;

  static async start(): Promise<ElectingNats> {
    const server = await startNats();
    const jetstream = await connectNats({ servers: server.url, token: server.token });
    const description = "JetStream system temporarily unavailable";
    const answer = JSON.stringify({ error: { code: 503, err_code: 10008, description } });
    jetstream.subscribe("$JS.API.>", { callback: (_, message) => void message.respond(answer) });
    await jetstream.flush();
    return new ElectingNats(server, jetstream);
  }

  private constructor(server: NatsServer, jetstream: NatsConnection) {
    this.#server = server;
    this.#jetstream = jetstream;
  }

  get server(): NatsServer {
    return this.#server;
  }

  async elect(): Promise<void> {
    const { port, token } = this.#server;
    await this.stop();
    this.#server = await startNats({ port, token, jetstream: true });
  }

  async stop(): Promise<void> {
    await this.#jetstream?.close();
    this.#jetstream = null;
    await this.#server.stop();
  }
}
