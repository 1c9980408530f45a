// The settings as people read them: rows of SHOW CONFIG, the printed reference, and the report of
// `pgweir check`. Secrets are masked.

import type { Config } from "./config.ts";
import type { Loaded } from "./load.ts";
import { problemText } from "./problem.ts";
import type { EntryKey, Extra, Setting } from "./settings.ts";
import { databaseKeys, groupKeys, settingsTable, settingValue, userKeys } from "./settings.ts";
import { formatValue, kindName } from "./values.ts";

export interface ConfigRow {
  readonly key: string;
  readonly value: string;
  readonly default: string;
  /** RELOAD or SET may change it */
  readonly changeable: "yes" | "no";
}

const MASK = "********";

function sorted(): readonly Setting[] {
  return [...(settingsTable as readonly Setting[])].sort((a, b) => a.name < b.name ? -1 : 1);
}

export function showConfigRows(config: Config): ConfigRow[] {
  return sorted().map((setting) => {
    // As in PgBouncer, conffile shows the file in use.
    const text = setting.name === "conffile"
      ? config.path
      : formatValue(setting.kind, settingValue(config.settings, setting));
    return {
      key: setting.name,
      value: setting.secret && text !== "" ? MASK : text,
      default: setting.default,
      changeable: setting.when === "reload" ? "yes" : "no",
    };
  });
}

function supportText({ support, working, instead }: Pick<Setting, "support"> & Extra): string {
  if (support === "works") return support;
  const only = working === undefined ? "default only" : `only ${working.join(", ")}`;
  const text = support === "ignored" ? support : only;
  return instead === undefined ? text : `${text}: ${instead}`;
}

function cell(text: string): string {
  return text.replaceAll("|", "\\|");
}

function code(text: string): string {
  return text === "" ? "" : `\`${text}\``;
}

function settingLines(settings: readonly Setting[]): string[] {
  const lines = [
    "| Setting | Type | Default | Where | Changes by | This version | Meaning |",
    "|---|---|---|---|---|---|---|",
  ];
  for (const s of settings) {
    const where = [...s.scope].map((letter) => letter === "G" ? "global" : WHERE[letter]).join(
      ", ",
    );
    const cells = [
      code(s.name),
      kindName(s.kind),
      code(s.default),
      where,
      s.when === "reload" ? "RELOAD" : "restart",
      supportText(s),
      s.help,
    ];
    lines.push(`| ${cells.map(cell).join(" | ")} |`);
  }
  return lines;
}

const WHERE: Readonly<Record<string, string>> = { D: "database", U: "user", R: "group" };

function keyLines(keys: readonly EntryKey[]): string[] {
  const lines = ["| Key | Type | This version | Meaning |", "|---|---|---|---|"];
  for (const key of keys) {
    const cells = [code(key.name), kindName(key.kind), supportText(key), key.help];
    lines.push(`| ${cells.map(cell).join(" | ")} |`);
  }
  return lines;
}

/** deploy/config.md: every setting and key, in tables. */
export function renderReference(): string {
  const settings = sorted();
  return [
    "# Settings",
    "",
    "Made from the table of settings by `bun deploy/write_config.ts`; changes made here are lost. What is `ignored` is",
    "accepted and changes nothing, with a warning; what has `default only` is refused with another value: `pgweir check`",
    "names both, and why. Times are in seconds, with fractions where PgBouncer has them, unless the type says otherwise.",
    "",
    "## Settings of PgBouncer: `[pgbouncer]`",
    "",
    ...settingLines(settings.filter(({ pgbouncer }) => pgbouncer)),
    "",
    "## Settings of pgweir: `[pgbouncer]` or `[pgweir]`",
    "",
    ...settingLines(settings.filter(({ pgbouncer }) => !pgbouncer)),
    "",
    "## Keys of a database: `[databases]`",
    "",
    ...keyLines(databaseKeys),
    "",
    "## Keys of a user: `[users]`",
    "",
    ...keyLines(userKeys),
    "",
    "## Keys of a resource group: `[groups]`",
    "",
    ...keyLines(groupKeys),
    "",
  ].join("\n");
}

const count = (n: number, what: string) => `${n} ${what}${n === 1 ? "" : "s"}`;

/**
 * What `pgweir check` prints, and a start that finds problems: every problem and warning, and a summary as
 * its last line.
 */
export function reportLines(path: string, { config, problems, warnings }: Loaded): string[] {
  const lines = [
    ...problems.map((problem) => `error: ${problemText(problem)}`),
    ...warnings.map((warning) => `warning: ${problemText(warning)}`),
  ];
  const found = `${count(problems.length, "error")}, ${count(warnings.length, "warning")}`;
  if (config === null) return [...lines, `${path}: ${found}`];
  const fallback = config.fallbackDatabase === null ? "" : " and the fallback";
  const holds = `${count(config.databases.size, "database")}${fallback}, ${
    count(config.userlist.size, "user")
  } in auth_file`;
  return [...lines, `${path}: ok, ${holds}, ${found}`];
}
