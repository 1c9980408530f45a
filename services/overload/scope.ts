// What a monitor looks at, and for whom; and whether a configuration lets it: a file that is read again has to have
// what it had been started for. Pure.

import { type Config, entryNameOf, lookupDatabase } from "../../shared/config/mod.ts";
import { isHinted, type PostmasterHints } from "./postmaster.ts";

export type Scope =
  | { readonly kind: "workers"; readonly supervisor: string }
  | {
    readonly kind: "databases";
    readonly names: readonly string[];
    readonly hints: PostmasterHints;
  };

/** A database by its name in [databases]; `*` is the entry of that name, any other may be reached through it. */
function entryOf(config: Config, name: string) {
  return name === "*" ? config.fallbackDatabase : lookupDatabase(config, name);
}

/** Whether a database is one of those that are watched: by its name, or as one that is reached through `*`. */
export function isWatched(config: Config, names: readonly string[], database: string): boolean {
  return names.includes(database) || names.includes(entryNameOf(config, database));
}

/** The port at which the entry of the first database leads to PostgreSQL. */
export function entryPortOf(config: Config, names: readonly string[]): number {
  return entryOf(config, names[0] ?? "")?.port ?? 5432;
}

/** Why databases cannot be watched by a configuration; null: they can. */
export function scopeProblem(config: Config, scope: Scope): string | null {
  if (scope.kind === "workers") return null;
  const { names, hints } = scope;
  const unknown = names.find((name) => entryOf(config, name) === null);
  if (unknown !== undefined) {
    return `database "${unknown}" is not in [databases] of "${config.path}"`;
  }
  if (isHinted(hints)) return null;
  const ports = names.map((name) => entryPortOf(config, [name]));
  if (new Set(ports).size < 2) return null;
  const list = names.map((name, at) => `"${name}" ${ports[at]}`).join(", ");
  return `the databases are at different ports (${list}), and a monitor watches one PostgreSQL: wanted one for each, ` +
    "or --port, --data-directory or --pid, which say which one these are in";
}
