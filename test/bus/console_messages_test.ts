// Commands of the console on the bus: what is whole passes unchanged, what is not is refused.

import {
  consoleAnswerPayload,
  consoleRequestPayload,
  workerTaskPayload,
  workerTaskReplyPayload,
} from "../../shared/bus/console_messages.ts";
import type { Payload } from "../../shared/bus/payload.ts";
import { assert, suite } from "../support/harness.ts";

const tests = suite("console messages");

const state = {
  revision: 3,
  paused: true,
  suspended: false,
  pausedDatabases: ["shop"],
  disabledDatabases: [],
};

const whole: [Payload<unknown>, Record<string, unknown>][] = [
  ...[
    { kind: "reload" },
    { kind: "suspend" },
    { kind: "set", key: "pool_mode", value: "session" },
    { kind: "shutdown", mode: "servers" },
    { kind: "kill_client", client: 2 ** 40 },
    { kind: "pause", database: null },
    { kind: "wait_close", database: "shop" },
  ].map((command): [Payload<unknown>, Record<string, unknown>] => [
    consoleRequestPayload,
    { command, again: false },
  ]),
  [consoleAnswerPayload, { refusal: null, notice: null, left: -1 }],
  [consoleAnswerPayload, { refusal: null, notice: "x", left: 5 }],
  [consoleAnswerPayload, { refusal: { code: "08P01", message: "no" }, notice: null, left: 0 }],
  [consoleAnswerPayload, {
    refusal: { code: "08P01", message: "no", hint: "h" },
    notice: null,
    left: 0,
  }],
  [workerTaskPayload, { command: { kind: "resume", database: null }, again: true, state }],
  [workerTaskReplyPayload, { left: 0, found: true }],
];

tests("what is whole passes, and leaves behind what nobody knows", () => {
  for (const [payload, message] of whole) {
    assert.equal(payload.check(message), message);
    assert.equal(payload.check({ ...message, newer: 1 }), message);
  }
});

tests("a field that is missing or of another kind is refused", () => {
  for (const [payload, message] of whole) {
    for (const key of Object.keys(message)) {
      for (const bad of [undefined, 1.5, {}, [], "x".repeat(10_000)]) {
        assert.is(payload.check({ ...message, [key]: bad }), null, `${payload.name}.${key}`);
      }
    }
  }
  const command = (raw: unknown) => consoleRequestPayload.check({ command: raw, again: false });
  for (
    const raw of [
      { kind: "nope" },
      { kind: "set", key: "a" },
      { kind: "set", key: "a", value: "b".repeat(600) },
      { kind: "shutdown", mode: "never" },
      { kind: "kill_client", client: -1 },
      { kind: "pause" },
      { kind: "pause", database: 7 },
    ]
  ) assert.is(command(raw), null, JSON.stringify(raw));
  for (
    const bad of [
      { ...state, revision: -1 },
      { ...state, paused: 1 },
      { ...state, suspended: undefined },
      { ...state, pausedDatabases: "shop" },
      { ...state, disabledDatabases: [7] },
      { ...state, pausedDatabases: new Array(3000).fill("x") },
    ]
  ) {
    const task = { command: { kind: "reload" }, again: false, state: bad };
    assert.is(workerTaskPayload.check(task), null, JSON.stringify(bad).slice(0, 100));
  }
});

tests.run();
