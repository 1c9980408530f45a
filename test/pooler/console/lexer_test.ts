// Tokens and statements of console queries.

import { statementsOf } from "../../../services/pooler/plane/console/lexer.ts";
import { assert, seededRandom, suite } from "../../support/harness.ts";

const tests = suite("console lexer");

/** Statements as `kind:text kind:text | kind:text`. */
function shown(text: string): string {
  return statementsOf(text).map((statement) =>
    statement.map((token) => `${token.kind}:${token.text}`).join(" ")
  ).join(" | ");
}

tests("statementsOf() cuts words, quotes, symbols and statements", () => {
  const rows: [string, string][] = [
    ["", ""],
    [";", ""],
    [";;;;;;;;", ""],
    ["  \t\r\n\f ", ""],
    ["SHOW POOLS", "word:SHOW word:POOLS"],
    ["\n show\tpools ; ", "word:show word:pools"],
    ["show pools;;", "word:show word:pools"],
    ["a; b ;c", "word:a | word:b | word:c"],
    ['PAUSE "My ""db"""', 'word:PAUSE quoted:My "db"'],
    ['""', "quoted:"],
    ["SET a='x''y'", "word:SET word:a symbol:= string:x'y"],
    ["SET a = -1.5", "word:SET word:a symbol:= symbol:- word:1 symbol:. word:5"],
    ["a-- b ; c\nd", "word:a word:d"],
    ["-- only", ""],
    ["/* a /* nested */ b */ show/**/pools", "word:show word:pools"],
    ["show /* no end", "word:show bad:/*"],
    ["/*/ show", "bad:/*"],
    ["'no end; show", "bad:' word:no word:end | word:show"],
    ['"no end', 'bad:" word:no word:end'],
    ["a$1", "word:a bad:$ word:1"],
    ["a:b", "word:a bad:: word:b"],
    ["a\u00a0b", "word:a bad:\u00a0 word:b"],
    ["';--/*'", "string:;--/*"],
  ];
  for (const [text, wanted] of rows) assert.is(shown(text), wanted, text);
});

tests("statementsOf() takes any text in linear time and never throws", () => {
  const random = seededRandom(42);
  const alphabet = `abz019_ \t\n;'"=,-/*$\\\u00e9\ud83d\ude00\u0000`;
  for (let round = 0; round < 2_000; round++) {
    let text = "";
    const length = Math.floor(random() * 40);
    for (let i = 0; i < length; i++) text += alphabet[Math.floor(random() * alphabet.length)];
    for (const statement of statementsOf(text)) assert.ok(statement.length > 0, text);
  }
  for (const part of ["/*", "'", '"', "a ", ";", "*/", "--", "é"]) {
    statementsOf(part.repeat(32 * 1024));
  }
});

tests.run();
