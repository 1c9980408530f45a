// Which group a query is in: of ordered rules the first decides whose conditions all hold. Compiled once for each
// configuration. The caller keeps the answer for as long as what the rules look at stays the same: for a login, or
// until application_name changes; tags, which each query may have, are only looked at if a rule does.

import type { GroupCondition, GroupConfig, GroupRule } from "../config/mod.ts";
import { addressBytes, compilePattern, isInNetwork, parseNetwork } from "../config/mod.ts";

export interface QueryFacts {
  readonly user: string;
  /** as the client asked for it */
  readonly database: string;
  /** as the client has it now */
  readonly applicationName: string;
  /** numeric; null: a unix socket */
  readonly clientAddress: string | null;
  /** of the leading comment; "": none */
  readonly tag: string;
}

type Facts = QueryFacts & { readonly address: readonly number[] | null };

interface Rule {
  readonly tests: readonly ((facts: Facts) => boolean)[];
  readonly group: number;
}

export class RuleSet {
  readonly usesApplicationName: boolean;
  readonly usesTags: boolean;
  readonly #rules: readonly Rule[];
  readonly #unmatched: number;
  readonly #usesAddress: boolean;

  /** `unmatched`: the group of what no rule matches; "": none. */
  constructor(
    rules: readonly GroupRule[],
    groups: readonly GroupConfig[],
    unmatched: string,
  ) {
    const indexOf = (name: string) => groups.findIndex((group) => group.name === name);
    const uses = (key: GroupCondition["key"]) =>
      rules.some(({ conditions }) => conditions.some((condition) => condition.key === key));
    this.usesApplicationName = uses("application_name");
    this.usesTags = uses("tag");
    this.#usesAddress = uses("client_addr");
    this.#unmatched = unmatched === "" ? -1 : indexOf(unmatched);
    this.#rules = rules.map(({ conditions, group }) => {
      return { tests: conditions.map(testOf), group: indexOf(group) };
    });
  }

  /** Its index in the groups of the configuration; -1: in none. */
  match(query: QueryFacts): number {
    const { clientAddress } = query;
    const address = this.#usesAddress && clientAddress !== null
      ? addressBytes(clientAddress)
      : null;
    const facts = { ...query, address };
    const rule = this.#rules.find(({ tests }) => tests.every((test) => test(facts)));
    return rule?.group ?? this.#unmatched;
  }
}

function testOf({ key, value, isPattern }: GroupCondition): (facts: Facts) => boolean {
  if (key === "client_addr") return addressTest(value);
  const textOf = texts[key];
  if (!isPattern) return (facts) => textOf(facts) === value;
  const compiled = compilePattern(value);
  if ("failure" in compiled) throw new Error(`pattern "${value}": ${compiled.failure}`);
  const { pattern } = compiled;
  return (facts) => pattern.test(textOf(facts));
}

const texts = {
  user: ({ user }: Facts) => user,
  database: ({ database }: Facts) => database,
  application_name: ({ applicationName }: Facts) => applicationName,
  tag: ({ tag }: Facts) => tag,
};

function addressTest(value: string): (facts: Facts) => boolean {
  if (value === "unix") return ({ clientAddress }) => clientAddress === null;
  const network = parseNetwork(value);
  if (typeof network === "string") throw new Error(`network "${value}" ${network}`);
  return ({ address }) => address !== null && isInNetwork(network, address);
}
