// From the text of a query to what is to be done for it, or the refusal. Nothing is done here.
// Invariant: the permission of every statement in the text is checked before anything else about it,
// its arguments included.

import { findSetting } from "../../../../shared/config/mod.ts";
import type { GroupUse } from "../../../../shared/groups/mod.ts";
import type { Command } from "../../../../shared/console/mod.ts";
import type { Refusal } from "../refusals.ts";
import { allows, commandTable, helpText, sessionSettings, showTable } from "./commands.ts";
import { columnsOf, type ConsoleColumn, type Row } from "./encode.ts";
import { statementsOf, type Token } from "./lexer.ts";
import type { Moment } from "./view.ts";

export interface Notice {
  readonly message: string;
  readonly detail?: string;
}

export type Effect =
  | { readonly kind: "none" }
  /** Prepared statements of this session are forgotten. */
  | { readonly kind: "forget" }
  /** Rows are made of what the other workers have as well, which is to be asked for first. */
  | { readonly kind: "gather" }
  /** Something that is not done here and may take its time. */
  | { readonly kind: "command"; readonly command: Command };

export interface Plan {
  /** null = no result, so no RowDescription either. */
  readonly columns: readonly ConsoleColumn[] | null;
  /** `others`: what other workers have in use of resource groups; only of the kind "gather". */
  rows(moment: Moment, others?: readonly GroupUse[]): Iterable<Row>;
  readonly notice: Notice | null;
  readonly effect: Effect;
  /** CommandComplete's text; null = the query was empty. */
  readonly tag: string | null;
}

/** PgBouncer's bounds, in bytes. */
const wordMax = 15;
const argumentMax = 63;
const valueMax = 255;
/** As much of a wrong command is repeated in its error. */
const echoMax = 256;

export const adminNeeded: Refusal = { code: "42501", message: "admin access needed" };
const badArguments: Refusal = { code: "08P01", message: "bad arguments" };

const none: Effect = { kind: "none" };
const noRows = () => [];

function plain(tag: string | null, notice: Notice | null, effect: Effect = none): Plan {
  return { columns: null, rows: noRows, notice, effect, tag };
}

/** Something that all workers do. */
function command(tag: string, command: Command): Plan {
  return plain(tag, null, { kind: "command", command });
}

function result(
  columns: readonly ConsoleColumn[],
  rows: Plan["rows"],
  tag: string,
  effect: Effect = none,
): Plan {
  return { columns, rows, notice: null, effect, tag };
}

function invalid(text: string, hint?: string): Refusal {
  const shown = text.trim();
  const echo = shown.length > echoMax ? `${shown.slice(0, echoMax)}...` : shown;
  const message = `invalid command '${echo}', use SHOW HELP;`;
  return hint === undefined ? { code: "08P01", message } : { code: "08P01", message, hint };
}

/** Its rows are worth something only with the descriptors that PgBouncer sends along, and hold passwords. */
const noDescriptors: Refusal = {
  code: "0A000",
  message: "SHOW FDS is not available: connections are not handed over to another process",
  hint: "SHOW SOCKETS lists the same connections",
};

const utf8 = new TextEncoder();
const tooLong = (text: string, most: number) => {
  return text.length > most || utf8.encode(text).length > most;
};

function isName(token: Token | undefined): token is Token {
  return token?.kind === "word" || token?.kind === "quoted";
}

function firstWord(statement: readonly Token[]): string {
  const token = statement[0];
  return isName(token) ? token.text.toLowerCase() : "";
}

/** The part of a SET behind SET, SET SESSION or SET LOCAL. */
function assignment(statement: readonly Token[]): readonly Token[] {
  const scope = firstWord(statement.slice(1));
  const scoped = (scope === "session" || scope === "local") && isName(statement[2]);
  return statement.slice(scoped && !isTo(statement[2]) ? 2 : 1);
}

function isTo(token: Token | undefined): boolean {
  return token?.kind === "word" && token.text.toLowerCase() === "to";
}

/** Whether the user may give this command, whatever its arguments are; unknown ones do nothing. */
function permitted(statement: readonly Token[], admin: boolean): boolean {
  const row = commandTable.get(firstWord(statement));
  if (row === undefined) return true;
  if (row.does === "show") {
    const name = firstWord(statement.slice(1));
    return allows(showTable.get(name)?.access ?? row.access, admin);
  }
  if (row.does === "set" && sessionSettings.has(firstWord(assignment(statement)))) return true;
  return allows(row.access, admin);
}

/** Decides what a query asks for. */
export function planQuery(text: string, admin: boolean): Plan | Refusal {
  const statements = statementsOf(text);
  const statement = statements[0];
  if (statement === undefined) return plain(null, null);
  if (!statements.every((each) => permitted(each, admin))) return adminNeeded;
  if (statements.length > 1) return invalid(text, "Send one command at a time");
  return planStatement(statement, text);
}

function planStatement(statement: readonly Token[], text: string): Plan | Refusal {
  const word = firstWord(statement);
  if (tooLong(word, wordMax)) return badArguments;
  const row = commandTable.get(word);
  if (row === undefined) return invalid(text);
  if (row.does === "set") return planSet(statement, text);
  if (row.does === "ignored") {
    // What follows is a transaction's mode, or the word TRANSACTION.
    return statement.every((token) => token.kind === "word" || token.text === ",")
      ? plain(row.tag, { message: `${word.toUpperCase()} ignored` })
      : invalid(text);
  }
  const argument = statement[1];
  if (statement.length > 2 || (argument !== undefined && !isName(argument))) return invalid(text);
  const name = argument?.text ?? "";
  if (tooLong(name, argumentMax)) return badArguments;
  switch (row.does) {
    case "show":
      return planShow(name, word, text);
    case "shutdown":
      return planShutdown(name.toUpperCase(), text);
    case "reload":
    case "suspend":
      return argument === undefined ? command(row.tag, { kind: row.does }) : invalid(text);
    case "killClient": {
      const client = /^[0-9]{1,15}$/.test(name) ? Number(name) : 0;
      return client === 0
        ? { code: "08P01", message: "invalid client pointer supplied" }
        : command(row.tag, { kind: "kill_client", client });
    }
    case "forgetsStatements":
      return name.toLowerCase() === "all"
        ? plain(row.tag, null, { kind: "forget" })
        : invalid(text);
    default:
      return command(row.tag, { kind: row.does, database: name === "" ? null : name });
  }
}

function planShow(argument: string, word: string, text: string): Plan | Refusal {
  const name = argument.toLowerCase();
  const setting = sessionSettings.get(name) ?? null;
  if (setting !== null) return result(columnsOf(`${name} s`), () => [[setting]], "SHOW");
  // Connection pools test a connection with SELECT 1.
  if (word === "select" && /^[0-9]{1,9}$/.test(name)) {
    return result(columnsOf("?column? i"), () => [[Number(name)]], "SELECT 1");
  }
  const show = showTable.get(name);
  if (show === undefined) return invalid(text);
  if (show.result === null) return noDescriptors;
  if (show.result === "help") {
    return plain("SHOW", { message: "Console usage", detail: helpText() });
  }
  const { columns, rows, gathers } = show.result;
  return result(columns, rows, "SHOW", gathers ? { kind: "gather" } : none);
}

/** SET [SESSION | LOCAL] key { = | TO } value */
function planSet(statement: readonly Token[], text: string): Plan | Refusal {
  const [key, sign, ...values] = assignment(statement);
  const isSign = sign?.text === "=" || isTo(sign);
  const isValue = ({ kind, text: value }: Token) => {
    return kind === "symbol" ? [",", ".", "+", "-"].includes(value) : kind !== "bad";
  };
  if (!isName(key) || !isSign || values.length === 0 || !values.every(isValue)) {
    return invalid(text);
  }
  const value = values.map((token) => token.text).join("");
  if (key.text === "" || tooLong(key.text, argumentMax) || tooLong(value, valueMax)) {
    return badArguments;
  }
  if (sessionSettings.has(key.text.toLowerCase())) return plain("SET", { message: "SET ignored" });
  const name = key.text.toLowerCase();
  // As PgBouncer's; what is secret is not repeated.
  const tag = findSetting(name)?.secret ? `SET ${name}` : `SET ${name}=${value}`;
  return command(tag, { kind: "set", key: name, value });
}

function planShutdown(mode: string, text: string): Plan | Refusal {
  switch (mode) {
    case "":
      return command("SHUTDOWN", { kind: "shutdown", mode: "now" });
    case "WAIT_FOR_SERVERS":
      return command("SHUTDOWN", { kind: "shutdown", mode: "servers" });
    case "WAIT_FOR_CLIENTS":
      return command("SHUTDOWN", { kind: "shutdown", mode: "clients" });
    default:
      return invalid(text);
  }
}
