// Resource groups as the file has them: `[groups]`, a tree, and `[group_rules]`, an ordered list. What cannot be
// meant is a problem; what does no harm but cannot have been wanted (a limit above the parent's, a rule that is
// never reached) is a warning, so that a limit can be lowered in a hurry without touching all the others.
//
//   group = name "=" key=value ...                      keys: `groupKeys`
//   rule  = name "=" *(key "=" text | key "=~" pattern) "group=" name

import type { GroupCondition, GroupConditionKey, GroupConfig, GroupRule } from "./config.ts";
import { defaultCpuShares, groupConditionKeys } from "./config.ts";
import { parseConditions } from "./connstr.ts";
import type { IniEntry } from "./ini.ts";
import { contains, type Network, parseNetwork } from "./network.ts";
import { readBounds } from "./overload_bounds.ts";
import { compilePattern } from "./pattern.ts";
import type { Findings, Place } from "./problem.ts";
import { quote, shown } from "./problem.ts";
import { didYouMean } from "./suggest.ts";
import type { Value } from "./values.ts";

const MAX_GROUPS = 1000;
const MAX_RULES = 500;
const MAX_DEPTH = 8;
/** It is part of a key of the ledger, and the name of a directory of the kernel's. */
const GROUP_NAME = /^(?!\.)[A-Za-z0-9_.-]{1,63}$/;
const NAME_WANTED = `letters, digits, "_", "-" and "." (not first), 63 characters at most`;
const RULE_KEYS: readonly string[] = [...groupConditionKeys, "group"];

interface Written<T> {
  readonly entry: IniEntry;
  readonly item: T;
}

export interface GroupSections {
  /** in the order of the file */
  readonly groups: readonly GroupConfig[];
  readonly rules: readonly GroupRule[];
}

export class GroupsReader {
  readonly #problems: Findings;
  readonly #warnings: Findings;
  readonly #groups = new Map<string, Written<GroupConfig>>();
  readonly #rules = new Map<string, Written<GroupRule>>();

  constructor(problems: Findings, warnings: Findings) {
    this.#problems = problems;
    this.#warnings = warnings;
  }

  /** `values`: of `groupKeys`. */
  addGroup(entry: IniEntry, values: ReadonlyMap<string, Value>): void {
    const name = entry.key;
    if (!GROUP_NAME.test(name)) {
      this.#problems.add(entry, `group ${quote(name)}: a name has ${NAME_WANTED}`);
      return;
    }
    if (!this.#groups.has(name) && this.#groups.size === MAX_GROUPS) {
      this.#problems.add(entry, `group ${quote(name)}: there are more than ${MAX_GROUPS} groups`);
      return;
    }
    const number = (key: string, without = 0) => (values.get(key) ?? without) as number;
    const item: GroupConfig = Object.freeze({
      name,
      parent: (values.get("parent") ?? null) as string | null,
      maxConcurrentQueries: number("max_concurrent_queries"),
      maxQueued: number("max_queued"),
      queueing: (values.get("queueing") ?? true) as boolean,
      queueTimeoutMs: number("queue_timeout", 5000),
      softMaxMemory: number("soft_max_memory"),
      minQueryMemory: number("min_query_memory", 64 * 1024 ** 2),
      cpuShares: number("cpu_shares", defaultCpuShares),
      priority: number("priority"),
      shed: (values.get("shed") ?? "normal") as GroupConfig["shed"],
      bounds: readBounds(values),
    });
    this.#groups.set(name, { entry, item });
  }

  addRule(entry: IniEntry): void {
    const what = `rule ${quote(entry.key)}`;
    const earlier = this.#rules.get(entry.key);
    if (earlier !== undefined) {
      this.#problems.add(entry, `${what} stood in line ${earlier.entry.line} already`);
      return;
    }
    if (this.#rules.size === MAX_RULES) {
      this.#problems.add(entry, `${what}: there are more than ${MAX_RULES} rules`);
      return;
    }
    const item = this.#readRule(entry, what);
    if (item !== null) this.#rules.set(entry.key, { entry, item });
  }

  #readRule(entry: IniEntry, what: string): GroupRule | null {
    const parsed = parseConditions(entry.value);
    if ("failure" in parsed) {
      this.#problems.add(entry, `${what}: ${parsed.failure}`);
      return null;
    }
    let group: string | null = null;
    let isGood = true;
    const conditions: GroupCondition[] = [];
    const fail = (message: string) => {
      this.#problems.add(entry, `${what}: ${message}`);
      isGood = false;
    };
    for (const { key, value, isPattern } of parsed.conditions) {
      if (key === "group") {
        if (isPattern) fail("group is a name, not a pattern");
        else if (group !== null) fail("group stands twice");
        group = value;
        continue;
      }
      if (!isConditionKey(key)) {
        fail(`unrecognized condition: ${shown(key)}${didYouMean(key, RULE_KEYS)}`);
        continue;
      }
      const failure = failureOf(key, value, isPattern);
      if (failure !== null) fail(failure);
      conditions.push(Object.freeze({ key, value, isPattern }));
    }
    if (group === null) fail("it names no group, wanted group=name");
    if (!isGood || group === null) return null;
    return Object.freeze({ name: entry.key, conditions: Object.freeze(conditions), group });
  }

  /** After the last entry: what only shows when groups and rules are seen side by side. */
  finish(unmatchedGroup: string, unmatchedAt: Place): GroupSections {
    for (const [name, { entry, item }] of this.#groups) {
      const { parent } = item;
      if (parent === null || this.#groups.has(parent)) continue;
      this.#problems.add(entry, `group ${quote(name)}: parent ${this.#unknown(parent)}`);
    }
    this.#checkWays();
    for (const { entry, item } of this.#rules.values()) {
      if (this.#groups.has(item.group)) continue;
      this.#problems.add(entry, `rule ${quote(item.name)}: group ${this.#unknown(item.group)}`);
    }
    if (unmatchedGroup !== "" && !this.#groups.has(unmatchedGroup)) {
      this.#problems.add(unmatchedAt, `unmatched_group ${this.#unknown(unmatchedGroup)}`);
    }
    this.#checkReach(unmatchedGroup);
    return {
      groups: Object.freeze([...this.#groups.values()].map(({ item }) => item)),
      rules: Object.freeze([...this.#rules.values()].map(({ item }) => item)),
    };
  }

  #unknown(name: string): string {
    return `${quote(name)} is not in [groups]${didYouMean(name, this.#groups.keys())}`;
  }

  /** The ways from each group to the root: circles, depth, limits that are never reached. */
  #checkWays(): void {
    const inCircle = new Set<string>();
    for (const [name, { entry, item }] of this.#groups) {
      const way: GroupConfig[] = [];
      let above = this.#parentOf(item);
      while (above !== null && above !== item && !way.includes(above)) {
        way.push(above);
        above = this.#parentOf(above);
      }
      if (above === item && !inCircle.has(name)) {
        const names = [item, ...way, item].map((group) => quote(group.name));
        this.#problems.add(
          entry,
          `group ${quote(name)}: its parents go round in a circle: ${names.join(" -> ")}`,
        );
        for (const group of [item, ...way]) inCircle.add(group.name);
      }
      if (above !== null) continue;
      if (way.length >= MAX_DEPTH) {
        this.#problems.add(entry, `group ${quote(name)}: more than ${MAX_DEPTH} levels of groups`);
      }
      this.#checkLimits(entry, item, way);
    }
  }

  #parentOf({ parent }: GroupConfig): GroupConfig | null {
    return parent === null ? null : this.#groups.get(parent)?.item ?? null;
  }

  #checkLimits(entry: IniEntry, group: GroupConfig, way: readonly GroupConfig[]): void {
    const what = `group ${quote(group.name)}`;
    for (const [name, key] of LIMITS) {
      if (group[key] === 0) continue;
      const above = way.find((each) => each[key] > 0 && each[key] < group[key]);
      if (above === undefined) continue;
      this.#warnings.add(
        entry,
        `${what}: ${name} is above that of ${quote(above.name)}, and never reached`,
      );
    }
    const fullest = [group, ...way].find(({ softMaxMemory }) =>
      softMaxMemory > 0 && softMaxMemory <= group.minQueryMemory
    );
    if (fullest !== undefined) {
      this.#warnings.add(
        entry,
        `${what}: min_query_memory is not below soft_max_memory of ${quote(fullest.name)}: ` +
          "one query at a time runs, until it is known to need less",
      );
    }
  }

  #checkReach(unmatchedGroup: string): void {
    const rules = [...this.#rules.values()].map(({ entry, item }) => new Reach(entry, item));
    rules.forEach((rule, index) => {
      const before = rules.slice(0, index).find((earlier) => earlier.covers(rule));
      if (rule.contradictsItself) {
        this.#warnings.add(
          rule.entry,
          `rule ${quote(rule.entry.key)} matches nothing: its conditions exclude each other`,
        );
      } else if (before !== undefined) {
        this.#warnings.add(
          rule.entry,
          `rule ${quote(rule.entry.key)} is never reached: ` +
            `rule ${quote(before.entry.key)} takes all that it matches`,
        );
      }
    });
    const used = new Set([unmatchedGroup, ...rules.map(({ group }) => group)]);
    for (const { item } of this.#groups.values()) if (item.parent !== null) used.add(item.parent);
    for (const [name, { entry }] of this.#groups) {
      if (used.has(name)) continue;
      this.#warnings.add(entry, `group ${quote(name)}: no rule leads to it`);
    }
  }
}

const LIMITS = [
  ["max_concurrent_queries", "maxConcurrentQueries"],
  ["max_queued", "maxQueued"],
  ["soft_max_memory", "softMaxMemory"],
] as const;

function isConditionKey(key: string): key is GroupConditionKey {
  return (groupConditionKeys as readonly string[]).includes(key);
}

/** What is wrong with a condition; null: nothing. */
function failureOf(key: GroupConditionKey, value: string, isPattern: boolean): string | null {
  if (isPattern) {
    if (key === "client_addr") {
      return "client_addr has no patterns, wanted client_addr=address/bits";
    }
    const compiled = compilePattern(value);
    return "failure" in compiled
      ? `${key}: the pattern ${quote(value)} cannot be read: ${compiled.failure}`
      : null;
  }
  if (key === "tag" && !/^[A-Za-z0-9_.-]{1,63}$/.test(value)) {
    return `tag: ${quote(value)} is no tag, which has letters, digits, "_", "-" and "."`;
  }
  if (key !== "client_addr" || value === "unix") return null;
  const network = parseNetwork(value);
  if (typeof network !== "string") return null;
  return `client_addr: ${quote(value)} ${network}, wanted address/bits, an address, or unix`;
}

/** What a rule matches, as far as rules can be compared. */
class Reach {
  readonly entry: IniEntry;
  readonly group: string;
  readonly #tests: readonly Test[];

  constructor(entry: IniEntry, { group, conditions }: GroupRule) {
    this.entry = entry;
    this.group = group;
    this.#tests = conditions.map((condition) => testOf(condition));
  }

  /** It matches all that the other one does. */
  covers(other: Reach): boolean {
    return this.#tests.every((own) => other.#tests.some((test) => implies(test, own)));
  }

  /** It wants one thing to be two others. */
  get contradictsItself(): boolean {
    return this.#tests.some((a) =>
      a.accepts === null && this.#tests.some((b) => b.key === a.key && excludes(a, b))
    );
  }
}

interface Test extends GroupCondition {
  readonly network: Network | null;
  /** of patterns */
  readonly accepts: ((text: string) => boolean) | null;
}

function testOf(condition: GroupCondition): Test {
  const { key, value, isPattern } = condition;
  const network = key === "client_addr" && value !== "unix" ? parseNetwork(value) : null;
  const compiled = isPattern ? compilePattern(value) : null;
  const pattern = compiled !== null && "pattern" in compiled ? compiled.pattern : null;
  return {
    ...condition,
    network: typeof network === "string" ? null : network,
    accepts: pattern === null ? null : (text) => pattern.test(text),
  };
}

/** Whether `b` holds wherever `a` does, as far as can be told. */
function implies(a: Test, b: Test): boolean {
  if (a.key !== b.key) return false;
  if (a.network !== null && b.network !== null) return contains(b.network, a.network);
  if (a.isPattern === b.isPattern) return a.value === b.value;
  return !a.isPattern && b.accepts !== null && b.accepts(a.value);
}

/** Whether no text is both; `a` is no pattern. */
function excludes(a: Test, b: Test): boolean {
  return !implies(a, b) && (a.network === null || b.network === null || !implies(b, a));
}
