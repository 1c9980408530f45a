// The TLS contexts of the data plane: one towards clients, one towards servers, and whether they must be used. They
// are made at the start, and anew when the configuration is read again: connections that come later have the new
// ones, those that are open keep theirs.
// Invariant: what is in use is whole. Where new settings can't be used the old ones stay, files and modes alike.

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import {
  clientTlsPlan,
  requiresTls,
  serverTlsPlan,
  type Settings,
  type TlsPlan,
} from "../../../shared/config/mod.ts";
import { openSslProblem, TlsContext, TlsError } from "../../../shared/sys/mod.ts";

interface Side {
  /** Null: no TLS. */
  readonly context: TlsContext | null;
  readonly required: boolean;
  /** Tells whether settings or files have changed. */
  readonly fingerprint: string;
}

/** What has come of making the contexts anew. */
export interface Renewal {
  /** Why the old ones stay; null = the new ones are in use. */
  readonly problem: string | null;
  /** Server connections that are open were made under other settings, or with other files. */
  readonly serversOutdated: boolean;
}

export class PlaneTls {
  #client: Side;
  #server: Side;
  readonly #warn: (message: string) => void;

  /** Throws TlsError. */
  constructor(settings: Settings, warn: (message: string) => void) {
    this.#warn = warn;
    this.#client = this.#makeClient(settings);
    this.#server = this.#makeServer(settings);
  }

  /** For clients that ask for TLS; null = none get it. */
  get client(): TlsContext | null {
    return this.#client.context;
  }

  readonly clientNow = (): TlsContext | null => this.#client.context;

  /** Clients without TLS are refused; not those of the unix socket. */
  get clientRequired(): boolean {
    return this.#client.required;
  }

  /** For connections to servers; null = they are never encrypted. */
  get server(): TlsContext | null {
    return this.#server.context;
  }

  /** A server that has no TLS is not used. */
  get serverRequired(): boolean {
    return this.#server.required;
  }

  /** Takes over new settings, and files that may have changed under the old ones. */
  renew(settings: Settings): Renewal {
    let client: Side | null = null;
    try {
      client = this.#makeClient(settings);
      const server = this.#makeServer(settings);
      const old = [this.#client, this.#server] as const;
      this.#client = client;
      this.#server = server;
      for (const { context } of old) context?.free();
      return { problem: null, serversOutdated: server.fingerprint !== old[1].fingerprint };
    } catch (error) {
      client?.context?.free();
      if (!(error instanceof TlsError)) throw error;
      return { problem: error.message, serversOutdated: false };
    }
  }

  #makeClient(settings: Settings): Side {
    return this.#make(clientTlsPlan(settings), requiresTls(settings.clientTlsSslmode));
  }

  #makeServer(settings: Settings): Side {
    const plan = serverTlsPlan(settings);
    const required = requiresTls(settings.serverTlsSslmode);
    const missing = plan === null || required ? null : openSslProblem();
    if (missing === null) return this.#make(plan, required);
    this.#warn(`no TLS towards servers: ${missing}`);
    return this.#make(null, false);
  }

  #make(plan: TlsPlan | null, required: boolean): Side {
    if (plan === null) return { context: null, required: false, fingerprint: "" };
    return { context: new TlsContext(plan), required, fingerprint: fingerprintOf(plan, required) };
  }
}

function fingerprintOf(plan: TlsPlan, required: boolean): string {
  const hash = createHash("sha256").update(JSON.stringify([plan, required]));
  for (const file of [plan.certFile, plan.keyFile, plan.caFile]) {
    if (file !== "") hash.update(readFileSync(file)).update("\0");
  }
  return hash.digest("hex");
}
