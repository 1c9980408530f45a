// The messages by which a worker learns what the others have in use of resource groups. On the wire each kind of number
// is one run of bytes, for all groups in a row: a mesh may have a thousand of them. Pure.

import type { GroupUse } from "../groups/mod.ts";
import { checkItems, fieldsOf, isCount, isText } from "./checks.ts";
import type { Fields, Payload } from "./payload.ts";

/** What a worker has in use of each group of its configuration. */
export interface GroupUses {
  readonly groups: readonly GroupUse[];
}

const maxGroups = 1000;
const maxName = 63;
const maxBytes = 512 * 1024;
const numberBytes = 8;
const numbers = [
  "running",
  "queued",
  "memory",
  "granted",
  "admitted",
  "refused",
  "timedOut",
  "queuedMs",
  "runningMs",
  "lastUsed",
] as const satisfies readonly (keyof GroupUse)[];

export const groupUsesRequestPayload: Payload<Record<never, never>> = {
  name: "group uses request",
  version: 1,
  check: () => ({}),
};

export const groupUsesPayload: Payload<GroupUses> = {
  name: "group uses",
  version: 1,
  maxBytes,
  wire: { pack, unpack },
  check(raw) {
    const groups = checkItems(raw["groups"], maxGroups, checkUse);
    return groups === null ? null : { groups };
  },
};

function pack({ groups }: GroupUses): Fields {
  const runs = numbers.map((key) => {
    const view = new DataView(new ArrayBuffer(numberBytes * groups.length));
    for (const [at, group] of groups.entries()) view.setFloat64(numberBytes * at, group[key]);
    return [key, new Uint8Array(view.buffer)];
  });
  return { names: groups.map(({ name }) => name), ...Object.fromEntries(runs) };
}

function unpack({ names, ...runs }: Fields): Fields {
  if (!Array.isArray(names) || names.length > maxGroups) return {};
  const views = numbers.map((key) => {
    const run = runs[key];
    const isWhole = run instanceof Uint8Array && run.length === numberBytes * names.length;
    return isWhole ? new DataView(run.buffer, run.byteOffset, run.byteLength) : null;
  });
  const groups = names.map((name, at) => ({
    name,
    ...Object.fromEntries(
      numbers.map((key, run) => [key, views[run]?.getFloat64(numberBytes * at)]),
    ),
  }));
  return { groups };
}

function checkUse(raw: unknown): GroupUse | null {
  const { name, ...rest } = fieldsOf(raw);
  if (!isText(name, maxName) || !numbers.every((key) => isCount(rest[key]))) return null;
  const counts = Object.fromEntries(numbers.map((key) => [key, rest[key]]));
  return { name, ...counts as Omit<GroupUse, "name"> };
}
