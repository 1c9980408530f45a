// Whom a command of the console reaches in a mesh, and what its answer says of those it did not reach.

import { type Bus, BusError, meshSubjects } from "../../shared/bus/mod.ts";
import { type Answer, type Command, done, refusedWith } from "../../shared/console/mod.ts";
import { combined, MeshAuthority } from "../../services/pooler/mesh_authority.ts";
import { assert, suite } from "../support/harness.ts";

const tests = suite("commands of a mesh");

const pause: Command = { kind: "pause", database: null };
const second = 1000;

/** A mesh as one worker of the supervisor `own` sees it. */
class Rig {
  now = 0;
  /** Supervisors that answer, and how; the others do not. */
  readonly answers = new Map<string, Answer>([["own", { ...done, left: 0 }]]);
  readonly asked: string[] = [];
  readonly patience: number[] = [];
  readonly authority: MeshAuthority;

  constructor() {
    const subjects = meshSubjects("mesh");
    const bus = {
      connected: true,
      subjects,
      request: (subject: { subject: string }, _request: unknown, timeoutMs: number) => {
        const name = subject.subject.split(".").at(-1)!;
        this.asked.push(name);
        this.patience.push(timeoutMs);
        const answer = this.answers.get(name);
        return answer === undefined
          ? Promise.reject(new BusError("TIMEOUT", "no answer"))
          : Promise.resolve(answer);
      },
    } as unknown as Bus;
    this.authority = new MeshAuthority("own", () => bus, () => this.now);
  }

  heard(id: number, supervisor: string, host = supervisor, state: "ready" | "gone" = "ready") {
    this.authority.heard({ id, supervisor, host, state });
  }

  /** Who was asked, and what the answer says. */
  async ask(command: Command = pause): Promise<[string, string | null]> {
    this.asked.length = this.patience.length = 0;
    const { notice, refusal } = await this.authority.execute(command);
    return [this.asked.sort().join(), refusal?.message ?? notice];
  }
}

tests("all hosts are asked, RELOAD concerns the own one", async () => {
  const rig = new Rig();
  for (const name of ["east", "west"]) rig.answers.set(name, { ...done, left: 0 });
  rig.heard(1, "own");
  rig.heard(2, "east");
  rig.heard(3, "east");
  rig.heard(4, "west");
  assert.equal(await rig.ask(), ["east,own,west", null]);
  assert.equal(await rig.ask({ kind: "reload" }), ["own", null]);
  rig.heard(4, "west", "west", "gone");
  assert.equal(await rig.ask(), ["east,own", null]);
});

// In the first second of a worker a PAUSE reached its own host alone, and nobody was told.
tests("a command that comes before all hosts were heard waits for them", async () => {
  const rig = new Rig();
  rig.answers.set("east", { ...done, left: 0 });
  rig.authority.listens();
  const asking = rig.ask();
  await new Promise((resolve) => setTimeout(resolve, 100));
  assert.equal(rig.asked, []);
  rig.heard(2, "east");
  assert.equal(await asking, ["east,own", null]);
});

// A host that had been cut off for more than ten seconds was not asked, and nobody was told that it went on.
tests("a host that can't be reached is named, however long ago it was heard", async () => {
  const rig = new Rig();
  rig.heard(2, "east");
  rig.heard(3, "east");
  const named = "no answer from: worker 2 of east, worker 3 of east";
  assert.equal(await rig.ask(), ["east,own", named]);
  rig.now += 60 * second;
  assert.equal(await rig.ask(), ["east,own", named]);
  assert.ok(Math.min(...rig.patience) <= second, "one that is silent is not waited for long");
  // It is back, and speaks again.
  rig.answers.set("east", { ...done, left: 0 });
  assert.equal(await rig.ask(), ["east,own", null]);
  rig.now += 600 * second;
  assert.equal(await rig.ask(), ["own", null]);
});

tests("a host that was started again after it had gone without a word is asked once", async () => {
  const rig = new Rig();
  rig.answers.set("east-2", { ...done, left: 0 });
  rig.heard(2, "east-1", "east");
  rig.now += 11 * second;
  rig.heard(7, "east-2", "east");
  assert.equal(await rig.ask(), ["east-2,own", null]);
  // Two on one host at the same time are two.
  const twins = new Rig();
  twins.answers.set("east-2", { ...done, left: 0 });
  twins.heard(2, "east-1", "east");
  twins.heard(7, "east-2", "east");
  twins.now += 11 * second;
  twins.heard(7, "east-2", "east");
  assert.equal(await twins.ask(), ["east-1,east-2,own", "no answer from: worker 2 of east"]);
});

const refusal: Answer = { ...refusedWith("already so"), left: 0 };
const yes: Answer = { ...done, left: 2 };
const rows: [Command["kind"], readonly Answer[], string | null, string | null, number][] = [
  ["pause", [yes, yes], null, null, 4],
  ["pause", [refusal, refusal], "already so", null, 0],
  ["pause", [yes, refusal], null, "not on all hosts: already so", 2],
  ["resume", [refusal, yes], null, "not on all hosts: already so", 2],
  ["suspend", [yes, refusal], null, "not on all hosts: already so", 2],
  ["disable", [yes, refusal], "already so", null, 2],
  ["kill_client", [yes, refusal], null, null, 2],
  ["kill_client", [refusal, refusal], "already so", null, 0],
  ["pause", [yes, { ...done, left: -1 }], null, null, -1],
  ["pause", [], null, null, 0],
  ["disable", [{ ...yes, notice: "a" }, { ...yes, notice: "b" }], null, "a; b", 4],
];

for (const [kind, answers, message, notice, left] of rows) {
  const said = answers.map(({ refusal, left }) => refusal === null ? left : "no").join();
  tests(`${kind} of hosts that say ${said}: ${message ?? notice ?? left}`, () => {
    const answer = combined({ kind, database: null } as Command, answers);
    assert.equal([answer.refusal?.message ?? null, answer.notice, answer.left], [
      message,
      notice,
      left,
    ]);
  });
}

tests.run();
