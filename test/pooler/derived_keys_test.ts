// Derived keys are made once for the same password, salt and iterations, and not kept without end.

import { DerivedKeys } from "../../services/pooler/plane/derived_keys.ts";
import { assert, suite } from "../support/harness.ts";

const salt = Uint8Array.of(1, 2, 3);

/** Keys whose derivations the test ends itself. */
function keysOf(max?: number) {
  const asked: { what: string; end: (salted: Uint8Array | null) => void }[] = [];
  const keys = new DerivedKeys((password, salt, iterations, end) => {
    asked.push({ what: `${password} ${salt.join()} ${iterations}`, end });
  }, max);
  const got: (number | null)[] = [];
  const get = (password: string | Uint8Array, from = salt, iterations = 4096) =>
    keys.get(password, from, iterations, (salted) => got.push(salted?.[0] ?? null));
  return { asked, got, get };
}

const test = suite("DerivedKeys");

test("get() derives once, also for those who ask meanwhile", () => {
  const { asked, got, get } = keysOf();
  get("a");
  get("a");
  get(new TextEncoder().encode("a"));
  assert.is(asked.length, 1);
  assert.equal(got, []);
  asked[0]!.end(Uint8Array.of(7));
  assert.equal(got, [7, 7, 7]);
  get("a");
  assert.equal(got, [7, 7, 7, 7]);
  assert.is(asked.length, 1);
});

test("get() derives anew for another password, salt or number of iterations", () => {
  const { asked, get } = keysOf();
  get("a");
  get("b");
  get("a", Uint8Array.of(1, 2));
  // The salt's end and the password's beginning are no matter of taste.
  get("\x03a", Uint8Array.of(1, 2));
  get("a", salt, 4097);
  assert.equal(asked.map(({ what }) => what), [
    "a 1,2,3 4096",
    "b 1,2,3 4096",
    "a 1,2 4096",
    "\x03a 1,2 4096",
    "a 1,2,3 4097",
  ]);
});

test("get() does not keep a failure", () => {
  const { asked, got, get } = keysOf();
  get("a");
  asked[0]!.end(null);
  get("a");
  assert.is(asked.length, 2);
  asked[1]!.end(Uint8Array.of(7));
  get("a");
  assert.equal(got, [null, 7, 7]);
});

test("get() forgets what was not asked for longest", () => {
  const { asked, get } = keysOf(2);
  for (const password of ["a", "b"]) {
    get(password);
    asked.at(-1)!.end(Uint8Array.of(7));
  }
  get("a");
  get("c");
  asked.at(-1)!.end(Uint8Array.of(7));
  assert.is(asked.length, 3);
  get("a");
  get("c");
  assert.is(asked.length, 3);
  get("b");
  assert.is(asked.length, 4);
});

test.run();
