// Hostile input for the readers: no exception, no hang, and results that keep their promises. Inputs are
// built from the characters and words the grammars turn on. PGWEIR_SEED replays a failure.

import { assert, seededRandom, suite } from "../support/harness.ts";
import {
  loadConfig,
  parseConnectionString,
  parseUserlist,
  readIni,
  settingsTable,
} from "../../shared/config/mod.ts";
import { filesOf, MAIN } from "./fixtures.ts";

const test = suite("fuzz");

const seed = Number(process.env["PGWEIR_SEED"] ?? Date.now() % 2 ** 32);
const INPUTS = 100_000;

const PIECES = [
  ..."'\"=[];#%*,. \t\r\n\0\\/@-_:$aZ09é\u00A0\uFFFD\uFEFF",
  "''",
  '""',
  "\n[databases]\n",
  "\n[pgbouncer]\n",
  "\n[users]\n",
  "%include ",
  "host=",
  "password='",
  "pool_mode = transaction\n",
  "listen_port = ",
  '"user" "secret"\n',
  "md5",
  "SCRAM-SHA-256$",
  "0x",
  "1e9",
  "-1",
  "😀",
];

/** Runs `check` on many inputs; a failure names the seed and the input. */
function fuzz(inputs: number, check: (text: string, random: () => number) => void): void {
  const random = seededRandom(seed);
  for (let i = 0; i < inputs; i++) {
    let text = "";
    for (let n = Math.floor(random() ** 2 * 40); n > 0; n--) {
      text += PIECES[Math.floor(random() * PIECES.length)];
    }
    try {
      check(text, random);
    } catch (error) {
      const replay = `PGWEIR_SEED=${seed}, input ${i}: ${JSON.stringify(text)}`;
      throw new Error(`${replay}: ${error instanceof Error ? error.stack : error}`);
    }
  }
}

test("readIni() survives any text", () => {
  fuzz(INPUTS, (text) => {
    const ini = readIni(MAIN, filesOf({ [MAIN]: text }));
    const last = text.split("\n").length;
    for (const { line, message } of ini.problems) {
      assert.ok(line >= 1 && line <= last && message !== "");
      assert.not.match(message, "\n");
    }
    for (const { line, key, value } of ini.entries) {
      assert.ok(line >= 1 && line <= last && key !== "");
      assert.ok(text.includes(value));
    }
  });
});

test("parseConnectionString() survives any text", () => {
  fuzz(INPUTS, (text) => {
    const parsed = parseConnectionString(text);
    if ("failure" in parsed) assert.ok(parsed.failure !== "");
    else for (const { key, value } of parsed.pairs) assert.ok(key !== "" && value !== "");
  });
});

test("parseConnectionString() reads back every value that is quoted as it asks", () => {
  fuzz(INPUTS / 10, (value) => {
    if (value === "") return;
    const parsed = parseConnectionString(`a=b password='${value.replaceAll("'", "''")}' c=d`);
    assert.ok("pairs" in parsed);
    assert.is(parsed.pairs.length, 3);
    assert.is(parsed.pairs[1]?.value, value);
  });
});

test("parseUserlist() survives any text", () => {
  fuzz(INPUTS, (text) => {
    const list = parseUserlist(text, "users.txt");
    const last = text.split("\n").length;
    for (const { line, message } of [...list.problems, ...list.warnings]) {
      assert.ok(line >= 1 && line <= last);
      assert.not.match(message, "\n");
    }
    for (const [name, { user, kind, secret }] of list.users) {
      assert.ok(name === user && user !== "");
      assert.is(kind === "none", secret === "");
    }
  });
});

test("parseUserlist() reads back every user and secret that is quoted as it asks", () => {
  fuzz(INPUTS / 10, (text, random) => {
    const plain = text.replaceAll(/[\n\0\uFFFD]/g, "");
    const at = Math.floor(random() * plain.length);
    const [user, secret] = [plain.slice(0, at).slice(0, 20), plain.slice(at)];
    if (user === "") return;
    const quote = (field: string) => `"${field.replaceAll('"', '""')}"`;
    const list = parseUserlist(`${quote(user)} ${quote(secret)}`, "users.txt");
    assert.is(list.users.get(user)?.secret, secret);
  });
});

test("loadConfig() survives any text, and has a configuration or a problem", () => {
  fuzz(INPUTS / 10, (text, random) => {
    const setting = settingsTable[Math.floor(random() * settingsTable.length)]?.name ?? "";
    const main = random() < 0.5 ? text : `[pgbouncer]\npool_mode=transaction\n${setting} = ${text}`;
    const { config, problems } = loadConfig(MAIN, filesOf({ [MAIN]: main, a: text }));
    assert.is(config === null, problems.length > 0);
  });
});

test.run();
