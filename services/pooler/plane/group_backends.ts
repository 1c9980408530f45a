// What this worker says of its server connections to the monitors of database hosts: in which resource group each is, by
// the group of what it was given for last. Nothing of it happens per transaction: it is looked at once an
// overload_interval, and a server that has changed its group since is moved then.
// Bounds: those of the message; what is beyond them is left out, and counts as in no group.

import {
  type GroupBackend,
  type GroupRow,
  maxGroupBackends,
  maxGroupNameCharacters,
  maxGroupRows,
} from "../../../shared/bus/mod.ts";
import { boundsMemory, dividesCpu } from "../../../shared/groups/mod.ts";
import type { Plane } from "./plane.ts";
import type { ServerConnection } from "./server.ts";

/** A monitor may have been started since. */
const againMs = 2000;
/** Sweeps come a little late or early. */
const slackMs = 20;

interface Row {
  readonly database: string;
  readonly group: string;
  memory: number;
  readonly running: GroupBackend[];
  readonly idle: GroupBackend[];
}

export class GroupBackends {
  readonly #plane: Plane;
  #lookedAt = -Infinity;
  #toldAt = -Infinity;
  #told = "";

  constructor(plane: Plane) {
    this.#plane = plane;
  }

  /** Whoever listened may have forgotten it. */
  refresh(): void {
    this.#toldAt = -Infinity;
  }

  /** Called ten times a second. */
  sweep(now: number): void {
    const { groups, settings } = this.#plane.config;
    // An embedded bus has no monitor of a database host on it.
    if (settings.busUrl.length === 0) return;
    const wasTold = this.#told !== "" && this.#told !== "[]";
    if (!wasTold && !dividesCpu(groups) && !boundsMemory(groups)) return;
    if (now - this.#lookedAt < settings.overloadIntervalMs - slackMs) return;
    this.#lookedAt = now;
    const rows = this.#rows(now);
    const text = JSON.stringify(rows, (key, value) => key === "ageMs" ? undefined : value);
    if (text === this.#told && now - this.#toldAt < againMs) return;
    this.#told = text;
    this.#toldAt = now;
    this.#plane.control.post({ type: "groupBackends", rows });
  }

  #rows(now: number): GroupRow[] {
    const rows = new Map<string, Row>();
    let count = 0;
    for (const { database: { name }, servers } of this.#plane.pools.values()) {
      if (name.length > maxGroupNameCharacters) continue;
      for (const server of servers) {
        if (server.group === null || server.processId === 0) continue;
        if (++count > maxGroupBackends) break;
        this.#add(rows, name, server, now);
      }
    }
    return [...rows.values()].slice(0, maxGroupRows).map(({ running, idle, ...row }) => ({
      ...row,
      memory: Math.round(row.memory),
      running: running.length,
      backends: [...running, ...idle],
    }));
  }

  #add(rows: Map<string, Row>, database: string, server: ServerConnection, now: number): void {
    const { place, processId: pid, connectedAt } = server;
    const group = (server.group as NonNullable<typeof server.group>).name;
    const key = `${database}\0${group}`;
    let row = rows.get(key);
    if (row === undefined) {
      rows.set(key, row = { database, group, memory: 0, running: [], idle: [] });
    }
    const backend = { pid, ageMs: Math.max(0, Math.round(now - connectedAt)) };
    if (place === null) row.idle.push(backend);
    else {
      row.running.push(backend);
      row.memory += place.memory;
    }
  }
}
