// Which portals drop prepared statements when they are executed.

import { allStatements, Drops } from "../../services/pooler/plane/drops.ts";
import { assert, suite } from "../support/harness.ts";

const test = suite("portals that drop statements");
const bytes = new TextEncoder().encode("abc");
const name = Uint8Array.of(0x73);

test("a portal is what it was bound to last, up to the end of the transaction", () => {
  const drops = new Drops();
  assert.is(drops.any, false);
  drops.bind(bytes, 0, 1, allStatements);
  drops.bind(bytes, 1, 3, name);
  drops.bind(bytes, 0, 0, name);
  assert.equal([drops.of(bytes, 0, 1), drops.of(bytes, 1, 3)], [allStatements, name]);
  assert.equal([drops.of(bytes, 1, 2), drops.of(bytes, 2, 2)], [null, name]);
  drops.bind(bytes, 0, 1, name);
  drops.bind(bytes, 1, 3, null);
  assert.equal([drops.of(bytes, 0, 1), drops.of(bytes, 1, 3)], [name, null]);
  drops.forget();
  assert.equal([drops.any, drops.of(bytes, 0, 1)], [false, null]);
});

test("there are at most 256, and the oldest goes first", () => {
  const drops = new Drops();
  for (let portal = 0; portal <= 256; portal++) {
    const pair = Uint8Array.of(portal & 0xff, portal >> 8);
    drops.bind(pair, 0, 2, name);
  }
  assert.is(drops.of(Uint8Array.of(0, 0), 0, 2), null);
  assert.is(drops.of(Uint8Array.of(1, 0), 0, 2), name);
  assert.is(drops.of(Uint8Array.of(0, 1), 0, 2), name);
});

test.run();
