// The order in which addresses of one name are tried.

import { dialOrder } from "../../services/pooler/plane/address_order.ts";
import { assert, suite } from "../support/harness.ts";

const test = suite("order of addresses");
const nobody = () => false;

test("dialOrder() lets the families take turns, whatever order the system gives", () => {
  const rows: readonly (readonly [string[], string[]])[] = [
    [[], []],
    [["10.0.0.1"], ["10.0.0.1"]],
    [["10.0.0.2", "10.0.0.1"], ["10.0.0.1", "10.0.0.2"]],
    [["127.0.0.1", "::1"], ["::1", "127.0.0.1"]],
    [
      ["10.0.0.3", "fd00::2", "10.0.0.1", "fd00::1", "10.0.0.2"],
      ["fd00::1", "10.0.0.1", "fd00::2", "10.0.0.2", "10.0.0.3"],
    ],
  ];
  for (const [addresses, order] of rows) assert.equal(dialOrder(addresses, 0, nobody), order);
});

test("dialOrder() makes each address the first in its turn", () => {
  const addresses = ["10.0.0.1", "10.0.0.2", "fd00::1"];
  const firsts = [0, 1, 2, 3, 4, 5].map((turn) => dialOrder(addresses, turn, nobody)[0]);
  assert.equal(firsts, ["fd00::1", "10.0.0.1", "10.0.0.2", "fd00::1", "10.0.0.1", "10.0.0.2"]);
  for (let turn = 0; turn < 6; turn++) {
    assert.equal(dialOrder(addresses, turn, nobody).sort(), [...addresses].sort());
  }
});

test("dialOrder() puts addresses that were late behind the others, and leaves none out", () => {
  const addresses = ["10.0.0.1", "10.0.0.2", "10.0.0.3"];
  const late = (address: string) => address !== "10.0.0.3";
  assert.equal([0, 1, 2].map((turn) => dialOrder(addresses, turn, late)), [
    ["10.0.0.3", "10.0.0.1", "10.0.0.2"],
    ["10.0.0.3", "10.0.0.2", "10.0.0.1"],
    ["10.0.0.3", "10.0.0.1", "10.0.0.2"],
  ]);
  assert.equal(dialOrder(addresses, 1, () => true), ["10.0.0.2", "10.0.0.3", "10.0.0.1"]);
});

test.run();
