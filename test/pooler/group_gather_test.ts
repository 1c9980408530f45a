// Whom a worker asks for what is in use of resource groups, and whom it names that did not answer.

import { type Bus, BusError, meshSubjects } from "../../shared/bus/mod.ts";
import { GroupGather } from "../../services/pooler/group_gather.ts";
import { MeshAuthority } from "../../services/pooler/mesh_authority.ts";
import { noUse } from "../groups/fixtures.ts";
import { assert, suite } from "../support/harness.ts";

const tests = suite("gathering of groups");

/** A mesh as worker 1 sees it; workers of even ids answer. */
class Rig {
  now = 0;
  readonly patience = new Map<number, number>();
  readonly authority: MeshAuthority;
  readonly gather: GroupGather;

  constructor(hasBus = true) {
    const bus = {
      subjects: meshSubjects("mesh"),
      request: ({ subject }: { subject: string }, _request: unknown, timeoutMs: number) => {
        const id = Number(subject.split(".").at(-1));
        this.patience.set(id, timeoutMs);
        return id % 2 === 0
          ? Promise.resolve({ groups: [{ ...noUse, name: "a", running: id }] })
          : Promise.reject(new BusError("TIMEOUT", "no answer"));
      },
    } as unknown as Bus;
    this.authority = new MeshAuthority("own", () => null, () => this.now);
    this.gather = new GroupGather(1, this.authority, () => hasBus ? bus : null);
  }

  heard(id: number, host = "here", state: "ready" | "gone" = "ready"): void {
    this.authority.heard({ id, supervisor: `of ${host}`, host, state });
  }

  async asked(): Promise<[number[], readonly string[]]> {
    this.patience.clear();
    const { uses, silent } = await this.gather.gather();
    return [uses.map(({ running }) => running), silent];
  }
}

tests("all other workers are asked, and those who do not answer are named", async () => {
  const rig = new Rig();
  assert.equal(await rig.asked(), [[], []]);
  for (const id of [1, 2, 4]) rig.heard(id);
  for (const id of [5, 6]) rig.heard(id, "there");
  assert.equal(await rig.asked(), [[2, 4, 6], ["worker 5 of there"]]);
  assert.not.ok(rig.patience.has(1), "it asked itself");
  rig.heard(6, "there", "gone");
  assert.equal(await rig.asked(), [[2, 4], ["worker 5 of there"]]);
});

tests(
  "who was not heard lately is not waited for long; one that was replaced is not asked",
  async () => {
    const rig = new Rig();
    rig.heard(3);
    rig.heard(2);
    rig.now += 2000;
    rig.heard(2);
    rig.now += 2000;
    assert.equal(await rig.asked(), [[2], ["worker 3 of here"]]);
    assert.ok(rig.patience.get(3)! < rig.patience.get(2)!);
    rig.heard(4);
    assert.equal(await rig.asked(), [[2, 4], []]);
  },
);

tests("without a bus all others are named", async () => {
  const rig = new Rig(false);
  rig.heard(2);
  assert.equal(await rig.asked(), [[], ["worker 2 of here"]]);
});

tests.run();
