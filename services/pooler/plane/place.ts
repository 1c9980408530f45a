// A client's place in the resource groups, and which group what it begins is in: by rules on who it is, on its
// application_name as it is now, and, if any rule looks at tags, on the comment its text begins with. The answer is
// kept until something changes that it was found by: nothing is allocated for a transaction like the one before.

import { Buffer } from "node:buffer";
import {
  type Group,
  readTag,
  type RuleSet,
  Ticket,
  TicketState,
} from "../../../shared/groups/mod.ts";
import { Frontend } from "../../../shared/wire/mod.ts";
import type { ClientSession } from "./client.ts";
import type { ParameterSet } from "./parameters.ts";
import { zeroAt } from "./prepared.ts";

/** A tag is looked for in so many bytes. */
const headMax = 256;
const slash = 0x2f;
const blank = 0x20;
const nothing = new Uint8Array(0);

export class Place extends Ticket<ClientSession> {
  /** What it has let in is a server's: it ends with that, whatever becomes of its client. */
  isServers = false;
  #rules: RuleSet | null = null;
  #parameters: ParameterSet | null = null;
  #chosen: Group | null = null;
  #tag = "";
  /** What the tag was read from. */
  #head: Uint8Array = nothing;

  /** The group of what begins with the message at [at, end) of the arena, as much of it as is there; null: none. */
  choose(rules: RuleSet, groups: readonly Group[], at: number, end: number): Group | null {
    if (rules.usesTags && this.#readTag(at, end)) this.#rules = null;
    return this.chosen(rules, groups);
  }

  /** The same for what it has chosen a group for before, by the rules as they are now. */
  chosen(rules: RuleSet, groups: readonly Group[]): Group | null {
    const { owner: client } = this;
    if (this.#rules === rules && this.#parameters === client.parameters) return this.#chosen;
    this.#rules = rules;
    this.#parameters = client.parameters;
    const { host } = client.address;
    const index = rules.match({
      user: client.user,
      database: client.database,
      applicationName: client.parameters.values[client.plane.tracker.applicationName] ?? "",
      clientAddress: host === "unix" ? null : host,
      tag: rules.usesTags ? this.#tag : "",
    });
    return this.#chosen = groups[index] ?? null;
  }

  /** A server is linked to its client: what was let in, if anything was, is that server's. */
  moveToServer(): Place | null {
    if (this.state !== TicketState.running || this.isServers) return null;
    this.isServers = true;
    return this;
  }

  /** Others wait for room in its group, or in one above. */
  get isWanted(): boolean {
    for (let node = this.group; node !== null && node.parent !== null; node = node.parent) {
      if (node.queued > 0) return true;
    }
    return false;
  }

  /** The name of the group that it has chosen last. */
  get name(): string {
    return this.#chosen?.name ?? "";
  }

  /** Whether the tag may be another than before. */
  #readTag(at: number, end: number): boolean {
    const { bytes } = this.owner.plane.arena;
    switch (bytes[at]) {
      case Frontend.query:
        return this.#readText(bytes, at + 5, end);
      case Frontend.parse:
        return this.#readText(bytes, zeroAt(bytes, at + 5, end) + 1, end);
      case Frontend.bind: {
        const from = zeroAt(bytes, at + 5, end) + 1;
        const entry = this.owner.names?.get(bytes, from, zeroAt(bytes, from, end)) ?? null;
        if (entry === null) return this.#readText(nothing, 0, 0);
        const { parse, name } = entry.statement;
        return this.#readText(parse, 5 + name.length, parse.length);
      }
      default:
        return this.#readText(nothing, 0, 0);
    }
  }

  #readText(bytes: Uint8Array, from: number, end: number): boolean {
    let at = from;
    while (at < end && (bytes[at] as number) <= blank) at++;
    const hasComment = at < end && bytes[at] === slash;
    if (!hasComment) return this.#take(nothing, "");
    const to = Math.min(end, at + headMax);
    const head = this.#head;
    const isSame = head.length === to - at &&
      Buffer.compare(head, bytes.subarray(at, to)) === 0;
    return !isSame && this.#take(bytes.slice(at, to), readTag(bytes, at, to));
  }

  #take(head: Uint8Array, tag: string): boolean {
    this.#head = head;
    const isOther = tag !== this.#tag;
    this.#tag = tag;
    return isOther;
  }
}
