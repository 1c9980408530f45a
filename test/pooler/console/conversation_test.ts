// The console's protocol as bytes: both query protocols, errors and where they end, framing in pieces,
// bounds, binary results, and any garbage.

import type { Command } from "../../../shared/console/mod.ts";
import { Conversation } from "../../../services/pooler/plane/console/conversation.ts";
import { planQuery } from "../../../services/pooler/plane/console/plan.ts";
import {
  Backend,
  concatBytes,
  type Message,
  message,
  MessageReader,
  parseDataRow,
  parseErrorFields,
  parseRowDescription,
  writeInt16,
} from "../../../shared/wire/mod.ts";
import { assert, seededRandom, suite } from "../../support/harness.ts";
import { f, notation } from "../../support/notation.ts";
import type { GroupUse } from "../../../shared/groups/mod.ts";
import { configOf, iniWith } from "../../config/fixtures.ts";
import { noUse } from "../../groups/fixtures.ts";
import { fakeClient, type FakePlane, fakePlane, momentOf } from "./fake_plane.ts";

const tests = suite("console conversation");

const groupsConfig = configOf(
  `${
    iniWith("")
  }\n[groups]\nreports = max_concurrent_queries=4\n[group_rules]\nr = group=reports\n`,
);

class Session {
  readonly plane: FakePlane;
  readonly commands: Command[] = [];
  abandoned = 0;
  gathering = false;
  readonly refusals: string[] = [];
  readonly conversation: Conversation;
  readonly #reader = new MessageReader();

  constructor(admin = true) {
    this.plane = fakePlane();
    this.conversation = new Conversation({
      plan: (text) => planQuery(text, admin),
      moment: () => momentOf(this.plane),
      command: (command) => {
        this.commands.push(command);
        return () => this.abandoned++;
      },
      gather: () => {
        this.gathering = true;
        return () => this.gathering = false;
      },
      refused: (refusal) => this.refusals.push(refusal.message),
    });
  }

  push(bytes: Uint8Array): void {
    this.conversation.push(bytes, 0, bytes.length);
  }

  /** Takes turns until there is nothing left to do. */
  messages(): Message[] {
    const found: Message[] = [];
    do {
      this.#reader.push(this.conversation.turn());
      for (let next = this.#reader.next(); next !== null; next = this.#reader.next()) {
        found.push(next);
      }
    } while (
      this.conversation.end === null && !this.conversation.needsInput &&
      !this.conversation.isWaiting
    );
    assert.is(this.#reader.buffered, 0);
    return found;
  }

  /** Sends messages in one piece; the replies in the short notation. */
  ask(...parts: readonly Uint8Array[]): string {
    this.push(concatBytes(...parts));
    return this.messages().map((reply) => notation(reply, { values: true })).join(" ");
  }
}

const state = 'D("active","yes") D("paused","no") D("suspended","no")';
const shown = `T ${state} C"SHOW" Z(I)`;

tests("a simple query gets its rows, a tag and one ReadyForQuery", () => {
  const session = new Session();
  assert.is(session.ask(f.Q("SHOW STATE")), shown);
  assert.is(session.ask(f.Q("show state;")), shown);
  assert.is(session.ask(f.Q("SHOW PEERS")), 'T C"SHOW" Z(I)');
  assert.is(session.ask(f.Q("SHOW HELP")), 'N C"SHOW" Z(I)');
  assert.is(session.ask(f.Q("SET datestyle TO ISO")), 'N C"SET" Z(I)');
  assert.is(session.ask(f.Q("SELECT 1")), 'T D("1") C"SELECT 1" Z(I)');
  assert.is(session.ask(f.Q("BEGIN")), 'N C"BEGIN" Z(I)');
  assert.is(session.ask(f.Q("COMMIT")), 'N C"COMMIT" Z(I)');
  assert.is(session.ask(f.Q("")), "I Z(I)");
  assert.is(session.ask(f.Q(";;;;;;;;")), "I Z(I)");
  assert.is(session.ask(f.Q("SHOW NOPE")), "E(08P01) Z(I)");
  assert.is(session.ask(f.Q("SHOW POOLS; SHOW STATS")), "E(08P01) Z(I)");
  assert.is(session.ask(f.Q("SHOW FDS")), "E(0A000) Z(I)");
  assert.is(
    session.ask(f.Q("SHOW STATE"), f.Q("nope"), f.Q("SHOW PEERS")),
    [
      shown,
      "E(08P01) Z(I)",
      'T C"SHOW" Z(I)',
    ].join(" "),
  );
  assert.is(session.conversation.end, null);
});

tests("an extended query gets the same rows", () => {
  const session = new Session();
  assert.is(
    session.ask(f.P("", "SHOW STATE"), f.B(), f.D("P"), f.E(), f.S()),
    `1 2 T ${state} C"SHOW" Z(I)`,
  );
  assert.is(
    session.ask(f.P("s", "SHOW STATE"), f.D("S", "s"), f.H(), f.S()),
    "1 t(0) T Z(I)",
  );
  assert.is(
    session.ask(f.B("p", "s"), f.E("p"), f.C("P", "p"), f.S()),
    `2 ${state} C"SHOW" 3 Z(I)`,
  );
  // The unnamed statement lasts until the next one.
  assert.is(session.ask(f.B(), f.E(), f.S()), `2 ${state} C"SHOW" Z(I)`);
  assert.is(
    session.ask(f.P("", "SET timezone = UTC"), f.B(), f.D("S"), f.D("P"), f.E(), f.S()),
    '1 2 t(0) n n N C"SET" Z(I)',
  );
  assert.is(session.ask(f.P("", ""), f.B(), f.D("P"), f.E(), f.S()), "1 2 n I Z(I)");
  assert.is(session.ask(f.S(), f.S()), "Z(I) Z(I)");
  assert.is(session.ask(f.C("S", "s"), f.C("S", "never"), f.S()), "3 3 Z(I)");
  assert.is(session.ask(f.B("", "s"), f.S()), "E(26000) Z(I)");
});

tests("an error in the extended protocol skips everything up to Sync", () => {
  const session = new Session();
  const rest = [f.B(), f.D("P"), f.E(), f.Q("SHOW STATE"), f.F(2026), f.H()];
  assert.is(session.ask(f.P("", "SHOW NOPE"), ...rest), "E(08P01)");
  assert.is(session.ask(f.P("", "SHOW STATE")), "");
  assert.is(session.ask(f.S(), f.Q("SHOW STATE")), `Z(I) ${shown}`);
  // For the log; what is skipped is no error.
  assert.is(session.refusals.length, 1);
  session.ask(f.Q("SHOW NOPE"));
  assert.is(session.refusals.length, 2);
  const failing: [string, readonly Uint8Array[]][] = [
    ["E(08P01)", [f.P("", "SHOW NOPE")]],
    ["E(0A000)", [f.P("", "SHOW FDS")]],
    ["E(08P01)", [f.P("", "SHOW $1")]],
    ["E(0A000)", [f.P("", "SHOW STATE", [25])]],
    ["E(26000)", [f.B("", "missing")]],
    ["1 E(0A000)", [f.P("", "SHOW STATE"), f.B("", "", ["x"])]],
    ["1 E(08P01)", [f.P("", "SHOW STATE"), f.B("", "", [], [0, 0, 0])]],
    ["1 E(42P05)", [f.P("twice", "SHOW STATE"), f.P("twice", "SHOW STATE")]],
    ["1 2 E(42P03)", [f.P("", "SHOW STATE"), f.B("p"), f.B("p")]],
    ["E(34000)", [f.D("P", "missing")]],
    ["E(26000)", [f.D("S", "missing")]],
    ["E(34000)", [f.E("missing")]],
    ["E(08P01)", [message(0x50, new Uint8Array(3))]],
    ["E(08P01)", [message(0x42, new Uint8Array(3))]],
    ["E(08P01)", [message(0x44, new Uint8Array([0x53, 1]))]],
    ["E(08P01)", [message(0x44, new Uint8Array([0x58, 0]))]],
    ["E(08P01)", [message(0x45, new Uint8Array(2))]],
    ["E(08P01)", [message(0x43, new Uint8Array(0))]],
  ];
  for (const [wanted, parts] of failing) {
    const fresh = new Session();
    assert.is(fresh.ask(...parts, f.B(), f.E()), wanted);
    assert.is(fresh.ask(f.S()), "Z(I)");
    assert.is(fresh.ask(f.Q("SHOW STATE")), shown);
  }
});

tests("a statistics user is refused in the extended protocol too, with no effect", () => {
  const session = new Session(false);
  assert.is(session.ask(f.P("", "SHUTDOWN"), f.B(), f.E(), f.S()), "E(42501) Z(I)");
  assert.is(session.ask(f.Q("SHUTDOWN")), "E(42501) Z(I)");
  assert.is(session.ask(f.Q("SHOW STATE; SHUTDOWN")), "E(42501) Z(I)");
  assert.equal(session.commands, []);
});

tests("a command that takes its time: nothing more is done before its outcome", () => {
  const session = new Session();
  assert.is(session.ask(f.Q("RELOAD"), f.Q("SHOW STATE")), "");
  assert.equal(session.commands, [{ kind: "reload" }]);
  assert.ok(session.conversation.isWaiting);
  assert.is(session.ask(f.Q("SHOW PEERS")), "");
  session.conversation.settle({ refusal: null, notice: null });
  assert.is(session.ask(), `C"RELOAD" Z(I) ${shown} T C"SHOW" Z(I)`);
  assert.is(session.commands.length, 1);
});

tests(
  "what all workers have is shown when they have said it, by either protocol, and names who has not",
  () => {
    const session = new Session();
    session.plane.config = groupsConfig;
    const use = (running: number): GroupUse => ({ ...noUse, name: "reports", running });
    assert.is(session.ask(f.Q("SHOW GROUPS"), f.Q("SHOW STATE")), "T");
    assert.ok(session.conversation.isWaiting);
    session.conversation.show({ uses: [use(2), use(3)], silent: ["worker 7 of north"] });
    const reply = session.ask();
    assert.match(reply, /^N D\("reports".*"5".*\) C"SHOW" Z\(I\) T D/);
    session.ask(f.P("", "SHOW GROUPS"), f.B(), f.D("P"), f.E(), f.S());
    session.conversation.show({ uses: [use(4)], silent: [] });
    assert.match(session.ask(), /^D\("reports".*"4".*\) C"SHOW" Z\(I\)$/);
    // Its client cancels it, or leaves.
    session.ask(f.Q("SHOW GROUPS"));
    session.conversation.abandon();
    assert.is(session.gathering, false);
    session.conversation.settle({ refusal: { code: "57014", message: "no" }, notice: null });
    assert.is(session.ask(), "E(57014) Z(I)");
  },
);

tests("a command that is refused, or done with a notice", () => {
  const session = new Session();
  const refusal = { code: "F0000", message: "no" };
  session.ask(f.Q("RELOAD"));
  session.conversation.settle({ refusal, notice: null });
  assert.is(session.ask(), "E(F0000) Z(I)");
  session.ask(f.Q("RELOAD"));
  session.conversation.settle({ refusal: null, notice: "mind" });
  assert.is(session.ask(), 'N C"RELOAD" Z(I)');
  session.ask(f.P("", "RELOAD"), f.B(), f.E(), f.E(), f.S());
  session.conversation.settle({ refusal, notice: null });
  assert.is(session.ask(), "E(F0000) Z(I)");
  assert.is(session.commands.length, 3);
});

tests("a command whose client leaves is given up, once", () => {
  const session = new Session();
  session.ask(f.Q("SHOW STATE"));
  session.conversation.abandon();
  assert.is(session.abandoned, 0);
  session.ask(f.Q("RELOAD"));
  session.conversation.abandon();
  session.conversation.abandon();
  assert.is(session.abandoned, 1);
});

tests("a command is given once for each time it is executed", () => {
  const session = new Session();
  assert.is(session.ask(f.P("s", "SHUTDOWN WAIT_FOR_CLIENTS"), f.B("", "s"), f.S()), "1 2 Z(I)");
  assert.equal(session.commands, []);
  session.ask(f.B("", "s"), f.E(), f.E(), f.S());
  session.conversation.settle({ refusal: null, notice: null });
  assert.is(session.ask(), 'C"SHUTDOWN" C"SHUTDOWN" Z(I)');
  assert.equal(session.commands, [{ kind: "shutdown", mode: "clients" }]);
});

tests("Execute with a row limit suspends the portal, and Sync ends it", () => {
  const session = new Session();
  assert.is(
    session.ask(
      f.P("", "SHOW STATE"),
      f.B(),
      f.E("", 2),
      f.E("", 1),
      f.E("", 1),
      f.E("", 1),
      f.S(),
    ),
    '1 2 D("active","yes") D("paused","no") s D("suspended","no") s C"SHOW" C"SHOW" Z(I)',
  );
  assert.is(
    session.ask(f.B("p"), f.E("p", 2), f.S()),
    '2 D("active","yes") D("paused","no") s Z(I)',
  );
  assert.is(session.ask(f.E("p"), f.S()), "E(34000) Z(I)");
});

tests("a simple query and DISCARD ALL forget what PostgreSQL would forget", () => {
  const session = new Session();
  session.ask(f.P("", "SHOW STATE"), f.P("s", "SHOW STATE"), f.S());
  session.ask(f.Q("SHOW PEERS"));
  assert.is(session.ask(f.B(), f.S()), "E(26000) Z(I)");
  assert.is(session.ask(f.B("", "s"), f.S()), "2 Z(I)");
  assert.is(session.ask(f.Q("DISCARD ALL")), 'C"DISCARD ALL" Z(I)');
  assert.is(session.ask(f.B("", "s"), f.S()), "E(26000) Z(I)");
});

tests("messages that are no query leave the connection usable", () => {
  const session = new Session();
  assert.is(session.ask(f.F(2026)), "E(0A000) Z(I)");
  assert.is(session.ask(f.d("x"), f.c(), f.f("no"), f.H()), "");
  assert.is(session.ask(message(0x51, new TextEncoder().encode("SHOW STATE"))), "E(08P01) Z(I)");
  assert.is(session.ask(message(0x51)), "E(08P01) Z(I)");
  const nul = new TextEncoder().encode("SHOW\0STATE\0");
  assert.is(session.ask(message(0x51, nul)), "E(08P01) Z(I)");
  assert.is(session.ask(message(0x51, new Uint8Array([0xff, 0xfe, 0]))), "E(08P01) Z(I)");
  assert.is(session.ask(f.Q("SHOW STATE")), shown);
});

tests("a message over the bound is skipped, and the connection stays in step", () => {
  const session = new Session();
  const long = "x".repeat(1024 * 1024);
  assert.is(session.ask(f.Q(long), f.Q("SHOW STATE")), `E(08P01) Z(I) ${shown}`);
  assert.is(session.ask(f.P("", long), f.B(), f.E(), f.S()), "E(08P01) Z(I)");
  assert.is(session.ask(f.P("", "nope"), f.Q(long), f.S()), "E(08P01) Z(I)");
  assert.is(session.ask(f.d(long), f.S()), "E(08P01) Z(I)");
  const inPieces = f.Q(long);
  for (let at = 0; at < inPieces.length; at += 50_000) {
    session.push(inPieces.subarray(at, at + 50_000));
    const replies = session.messages().map((reply) => notation(reply)).join(" ");
    assert.is(replies, at + 50_000 < inPieces.length ? "" : "E(08P01) Z(I)");
  }
  const atBound = `show state${" ".repeat(64 * 1024 - 11)}`;
  assert.is(session.ask(f.Q(atBound)), shown);
  assert.is(session.ask(f.Q(`${atBound} `)), "E(08P01) Z(I)");
});

tests("a broken frame or an unknown message ends the connection", () => {
  for (
    const [bytes, text] of [
      [new Uint8Array([0x51, 0, 0, 0, 3]), "bad packet header: "],
      [new Uint8Array([0x51, 0xff, 0xff, 0xff, 0xff]), "bad packet header: "],
      [new Uint8Array([0x7a, 0, 0, 0, 4]), "bad packet header: "],
      [new Uint8Array([0x53, 0, 0, 0, 5, 0]), "bad packet header: "],
      [message(0x70, new Uint8Array(1)), "unsupported packet type for admin console: 112"],
    ] as const
  ) {
    const session = new Session();
    assert.is(session.ask(f.Q("SHOW STATE"), bytes, f.Q("SHOW STATE")), shown);
    const { end } = session.conversation;
    assert.is(end?.kind, "fatal");
    if (end?.kind === "fatal") {
      assert.is(end.refusal.code, "08P01");
      assert.match(end.refusal.message, text);
    }
    assert.is(session.ask(f.Q("SHOW STATE")), "");
  }
  const session = new Session();
  assert.is(session.ask(f.Q("SHOW STATE"), f.X()), shown);
  assert.equal(session.conversation.end, { kind: "terminate" });
});

tests("messages mean the same whole, byte by byte and cut at every point", () => {
  const bytes = concatBytes(
    f.Q("SHOW STATE"),
    f.P("s", "SHOW VERSION"),
    f.B("", "s"),
    f.E(),
    f.P("", "SHOW NOPE"),
    f.E(),
    f.S(),
    f.Q(""),
  );
  const wanted = `${shown} 1 2 D("pgweir 1.2.3") C"SHOW" E(08P01) Z(I) I Z(I)`;
  assert.is(new Session().ask(bytes), wanted);
  const inParts = (parts: readonly Uint8Array[]) => {
    const session = new Session();
    return parts.map((part) => session.ask(part)).filter((text) => text !== "").join(" ");
  };
  assert.is(inParts([...bytes].map((byte) => Uint8Array.of(byte))), wanted);
  for (let cut = 1; cut < bytes.length; cut++) {
    assert.is(inParts([bytes.subarray(0, cut), bytes.subarray(cut)]), wanted);
  }
});

tests("a large result is made in turns, each of bounded size", () => {
  const session = new Session();
  for (let id = 1; id <= 5_000; id++) session.plane.clients.add(fakeClient({ id }));
  const query = concatBytes(f.Q("SHOW CLIENTS"), f.Q("SHOW STATE"));
  session.push(query);
  let turns = 0;
  let rows = 0;
  let largest = 0;
  const reader = new MessageReader();
  let tail = "";
  do {
    const bytes = session.conversation.turn();
    turns++;
    largest = Math.max(largest, bytes.length);
    reader.push(bytes);
    for (let next = reader.next(); next !== null; next = reader.next()) {
      if (next.type !== Backend.dataRow) tail += ` ${notation(next)}`;
      else rows++;
    }
  } while (!session.conversation.needsInput);
  assert.is(rows, 5_003);
  assert.is(tail, ' T C"SHOW" Z(I) T C"SHOW" Z(I)');
  assert.ok(turns >= 25, `${turns} turns`);
  assert.ok(largest < 36 * 1024, `${largest} bytes in a turn`);
});

tests("many small messages are answered in turns, too", () => {
  const session = new Session();
  session.push(concatBytes(...new Array(1_000).fill(f.S())));
  const first = session.conversation.turn();
  assert.ok(first.length < 1_000, `${first.length} bytes`);
  assert.not.ok(session.conversation.needsInput);
  assert.is(session.messages().length + first.length / 6, 1_000);
});

tests("statements and portals are bounded", () => {
  const session = new Session();
  for (let i = 0; i < 256; i++) assert.is(session.ask(f.P(`s${i}`, "SHOW STATE")), "1");
  assert.is(session.ask(f.P("one more", "SHOW STATE"), f.S()), "E(54000) Z(I)");
  for (let i = 0; i < 64; i++) assert.is(session.ask(f.B(`p${i}`, "s0")), "2");
  assert.is(session.ask(f.B("one more", "s0"), f.S()), "E(54000) Z(I)");
  assert.is(session.ask(f.P("n".repeat(257), "SHOW STATE"), f.S()), "E(54000) Z(I)");
});

// --- results in binary

function binaryRow(sql: string, formats: readonly (0 | 1)[], plane?: (plane: FakePlane) => void) {
  const session = new Session();
  plane?.(session.plane);
  session.push(concatBytes(f.P("", sql), f.B("", "", [], formats), f.D("P"), f.E(), f.S()));
  const messages = session.messages();
  const header = messages.find(({ type }) => type === Backend.rowDescription)!;
  const row = messages.find(({ type }) => type === Backend.dataRow)!;
  return { columns: parseRowDescription(header.body)!, values: parseDataRow(row.body)! };
}

tests("results come in binary where a driver asks for it", () => {
  const { columns, values } = binaryRow("SHOW WORKER", [1]);
  assert.ok(columns.every(({ format }) => format === 1));
  assert.is(columns[0]!.typeOid, 23);
  assert.equal([...values[0]!], [0, 0, 0, 17]);
  const incarnation = values[1]!;
  assert.is(new DataView(incarnation.buffer).getBigInt64(0), 1_700_000_000_000n);
  assert.is(new TextDecoder().decode(values[5]!), "bun 1");
  const mixed = binaryRow("SELECT 7", [1]);
  assert.equal([...mixed.values[0]!], [0, 0, 0, 7]);
  const text = binaryRow("SHOW LISTS", [0, 1]);
  assert.equal(text.columns.map(({ format }) => format), [0, 1]);
  assert.equal([...text.values[1]!], [0, 0, 0, 2]);
});

tests("a numeric in binary has PostgreSQL's groups of four digits", () => {
  const numeric = (value: number) => {
    const { values } = binaryRow("SHOW STATS_TOTALS", [1], (plane) => {
      plane.consoleStats.totals[0] = value;
    });
    const view = new DataView(values[1]!.buffer);
    const words: number[] = [];
    for (let at = 0; at < view.byteLength; at += 2) words.push(view.getInt16(at));
    return words.join(" ");
  };
  // Digits, weight of the first, sign, scale, then the digits.
  assert.is(numeric(0), "0 0 0 0");
  assert.is(numeric(7), "1 0 0 0 7");
  assert.is(numeric(9_999), "1 0 0 0 9999");
  assert.is(numeric(10_000), "1 1 0 0 1");
  assert.is(numeric(120_003), "2 1 0 0 12 3");
  assert.is(numeric(Number.MAX_SAFE_INTEGER), "4 3 0 0 9007 1992 5474 991");
});

tests("an unknown result format is refused", () => {
  const session = new Session();
  const bind = f.B("", "", [], [1]);
  writeInt16(bind, bind.length - 2, 2);
  assert.is(session.ask(f.P("", "SHOW STATE"), bind, f.S()), "1 E(08P01) Z(I)");
});

// --- anything else

tests("names with any text in them give well-formed rows", () => {
  const session = new Session();
  const names = ['a"b', "%s%n", "\x1b[31m", "line\nbreak", "tab\t;", "ü€😀", "\ud800", "'; --"];
  for (const [index, user] of names.entries()) {
    session.plane.clients.add(fakeClient({ id: index, user, database: user }));
  }
  session.push(f.Q("SHOW CLIENTS"));
  const rows = session.messages().filter(({ type }) => type === Backend.dataRow);
  const seen = rows.map((row) => new TextDecoder().decode(parseDataRow(row.body)![1]!));
  assert.equal(seen, names.map((name) => name === "\ud800" ? "\ufffd" : name));
});

tests("an error repeats a wrong command only in part", () => {
  const session = new Session();
  session.push(f.Q(`nope ${"y".repeat(60_000)}`));
  const [reply] = session.messages();
  const fields = parseErrorFields(reply!.body);
  assert.ok(fields.message.length < 400, `${fields.message.length} characters`);
  assert.is(fields.severity, "ERROR");
});

tests("any sequence of messages is answered in step, and never throws", () => {
  const seed = Math.floor(Math.random() * 2 ** 31);
  const random = seededRandom(seed);
  const any = (limit: number) => Math.floor(random() * limit);
  const texts = [
    "SHOW STATE",
    "SHOW POOLS",
    "nope",
    "",
    "SHOW HELP",
    "DISCARD ALL",
    "SHOW CLIENTS",
  ];
  const names = ["", "a", "b"];
  const text = () => texts[any(texts.length)]!;
  const name = () => names[any(names.length)]!;
  const makers = [
    () => f.Q(text()),
    () => f.P(name(), text()),
    () => f.B(name(), name(), any(4) === 0 ? ["x"] : [], any(4) === 0 ? [1] : []),
    () => f.D(any(2) === 0 ? "S" : "P", name()),
    () => f.E(name(), any(3)),
    () => f.C(any(2) === 0 ? "S" : "P", name()),
    () => f.F(1),
    () => f.d("x"),
    () => f.H(),
    () => {
      const letters = [0x51, 0x50, 0x42, 0x44, 0x45, 0x43];
      const body = Uint8Array.from({ length: any(12) }, () => any(3) === 0 ? 0 : any(256));
      return message(letters[any(letters.length)]!, body);
    },
  ];
  for (let round = 0; round < 300; round++) {
    const session = new Session();
    session.plane.clients.add(fakeClient());
    for (let step = 0; step < 20; step++) {
      const messages: Uint8Array[] = [];
      for (let i = any(6); i > 0; i--) messages.push(makers[any(makers.length)]!());
      session.ask(...messages);
      // Whatever came before: a Sync is answered last, and what follows works.
      const synced = session.ask(f.S());
      assert.match(synced, /^Z\(I\)$/, `seed ${seed}: ${synced}`);
      assert.is(session.ask(f.Q("SHOW STATE")), shown, `seed ${seed}`);
    }
  }
});

tests.run();
