// How a worker follows a command of its console: one answer, waits that end, and a pause that nobody waits for.

import { type Answer, type Command, done } from "../../shared/console/mod.ts";
import { Commands } from "../../services/pooler/commands.ts";
import { createLogger } from "../../shared/telemetry/mod.ts";
import { assert, suite, until } from "../support/harness.ts";

const tests = suite("commands of the console");

class Rig {
  readonly given: string[] = [];
  readonly outcomes: string[] = [];
  /** What is left at each look; the last one stays. */
  readonly left: number[] = [0];
  readonly log: string[] = [];
  refusal: Answer["refusal"] = null;
  /** Somebody does not answer the look at which so much is left. */
  silentAt: number | null = null;
  readonly commands: Commands;

  constructor() {
    const logger = createLogger({
      component: "test",
      level: "info",
      format: "text",
      write: (line) => this.log.push(line),
    });
    this.commands = new Commands(
      {
        execute: (command) => {
          this.given.push(nameOf(command));
          return Promise.resolve({ ...done, refusal: this.refusal, left: this.#next() });
        },
        left: () => {
          const left = this.#next();
          const notice = left === this.silentAt ? "no answer from: worker 7 of east" : null;
          return Promise.resolve({ ...done, notice, left });
        },
      },
      logger,
      (id, { refusal, notice }) => {
        const said = [refusal?.message ?? "done", notice].filter((text) => text !== null);
        this.outcomes.push(`${id} ${said.join(" ")}`);
      },
    );
  }

  #next(): number {
    return this.left.length > 1 ? this.left.shift()! : this.left[0]!;
  }
}

function nameOf(command: Command): string {
  return Object.values(command).filter((value) => value !== null).join(" ");
}

const pause: Command = { kind: "pause", database: "shop" };

tests("give() answers once, and at once where nothing is waited for", async () => {
  const rig = new Rig();
  rig.commands.give(1, { kind: "disable", database: "shop" }, "admin");
  await until("the outcome", () => rig.outcomes.length === 1);
  assert.equal(rig.outcomes, ["1 done"]);
  rig.refusal = { code: "08P01", message: "no" };
  rig.left.splice(0, 1, 5);
  rig.commands.give(2, pause, "admin");
  await until("the outcome", () => rig.outcomes.length === 2);
  assert.equal(rig.outcomes, ["1 done", "2 no"]);
});

tests("a command that waits ends when nothing is left", async () => {
  const rig = new Rig();
  rig.left.splice(0, 1, 3, 2, 1, 0);
  rig.commands.give(1, pause, "admin");
  await until("the outcome", () => rig.outcomes.length === 1);
  assert.equal(rig.left, [0]);
  assert.equal(rig.given, ["pause shop"]);
});

tests("a pause that nobody waits for is undone, others are not", async () => {
  const rig = new Rig();
  rig.left.splice(0, 1, 3);
  rig.commands.give(1, pause, "admin");
  rig.commands.give(2, { kind: "wait_close", database: null }, "admin");
  rig.commands.abandon(1);
  rig.commands.abandon(2);
  await until("RESUME", () => rig.given.includes("resume shop"));
  rig.left.splice(0, 1, 0);
  rig.commands.give(3, pause, "admin");
  await until("the outcome", () => rig.outcomes.length === 1);
  assert.equal(rig.given, ["pause shop", "wait_close", "resume shop", "pause shop"]);
  assert.equal(rig.outcomes, ["3 done"]);
});

// A host was cut off while it was waited for, and the pause was called complete.
tests("who can't be asked for the rest is named at the end", async () => {
  const rig = new Rig();
  rig.left.splice(0, 1, 3, 1, 0);
  rig.silentAt = 1;
  rig.commands.give(1, pause, "admin");
  await until("the outcome", () => rig.outcomes.length === 1);
  assert.equal(rig.outcomes, ["1 done no answer from: worker 7 of east"]);
});

tests("a pause that somebody else ends is no success", async () => {
  const rig = new Rig();
  rig.left.splice(0, 1, 3, -1);
  rig.commands.give(1, pause, "admin");
  await until("the outcome", () => rig.outcomes.length === 1);
  assert.equal(rig.outcomes, ["1 PAUSE 'shop' was ended by RESUME"]);
});

tests("the log names commands and who gave them, and no value of a setting", async () => {
  const rig = new Rig();
  const given: Command[] = [
    { kind: "set", key: "console_admin", value: "hidden" },
    { kind: "kill_client", client: 7 },
    { kind: "shutdown", mode: "servers" },
    { kind: "reload" },
  ];
  for (const [id, command] of given.entries()) rig.commands.give(id, command, "boss");
  await until("the outcomes", () => rig.outcomes.length === given.length);
  const lines = rig.log.map((line) => line.replace(/^.*LOG /, "").trim());
  assert.equal(lines, [
    'SET console_admin command issued by "boss"',
    'KILL_CLIENT 7 command issued by "boss"',
    'SHUTDOWN WAIT_FOR_SERVERS command issued by "boss"',
    'RELOAD command issued by "boss"',
  ]);
});

tests.run();
