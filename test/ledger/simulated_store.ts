// The store of the ledger's simulation: keys with revisions, compare-and-set, one operation at a time. What is
// unreliable is the network to it: an answer may be lost after the write took effect.

import { Node, type World } from "./simulated_world.ts";

export interface Entry {
  readonly key: string;
  readonly value: unknown;
  readonly revision: number;
}

export type StoreRequest =
  | { readonly kind: "get"; readonly key: string }
  | {
    readonly kind: "create";
    readonly key: string;
    readonly value: unknown;
    readonly note?: string;
  }
  | {
    readonly kind: "update";
    readonly key: string;
    readonly value: unknown;
    readonly revision: number;
    readonly note?: string;
  }
  | { readonly kind: "list"; readonly prefix: string };

export interface StoreAnswer {
  /** Of a get or list. */
  readonly entries: readonly Entry[];
  /** Of a write that took place; null if somebody else wrote before. */
  readonly revision: number | null;
}

export class StoreServer extends Node {
  readonly #entries = new Map<string, Entry>();
  #revision = 0;

  constructor(world: World) {
    super(world, "store", false);
  }

  apply(request: StoreRequest): StoreAnswer {
    switch (request.kind) {
      case "list":
        return {
          entries: [...this.#entries.values()].filter(({ key }) => key.startsWith(request.prefix)),
          revision: null,
        };
      case "get": {
        const entry = this.#entries.get(request.key);
        return { entries: entry === undefined ? [] : [entry], revision: null };
      }
      case "create":
        return this.#write(request.key, request.value, undefined);
      case "update":
        return this.#write(request.key, request.value, request.revision);
    }
  }

  #write(key: string, value: unknown, expected: number | undefined): StoreAnswer {
    if (this.#entries.get(key)?.revision !== expected) return { entries: [], revision: null };
    const revision = ++this.#revision;
    this.#entries.set(key, { key, value, revision });
    return { entries: [], revision };
  }
}

/** Asks over the network; null = no answer in time, which says nothing of whether the write took effect. */
export function askStore(
  client: Node,
  request: StoreRequest,
  timeoutMs: number,
  then: (answer: StoreAnswer | null) => void,
): void {
  const { world } = client;
  let open = true;
  const what = () => {
    const note = "note" in request ? ` ${request.note}` : "";
    return `${request.kind} ${"key" in request ? request.key : request.prefix}${note}`;
  };
  world.send(client, "store", what, (store) => {
    const answer = (store as StoreServer).apply(request);
    const outcome = () => `${what()}: ${answer.revision ?? answer.entries.length}`;
    world.send(store, client.name, outcome, (receiver) => {
      if (!open || receiver !== client) return;
      open = false;
      then(answer);
    });
  });
  client.after(timeoutMs, () => {
    if (!open) return;
    open = false;
    world.note(() => `${client.name} has no answer to ${what()}`);
    then(null);
  });
}
