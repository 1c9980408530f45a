// Look-ups of names on the control thread: with look-ups of the tests' own, and one of the system's.

import { Resolver } from "../../shared/host/mod.ts";
import { assert, suite, until } from "../support/harness.ts";

const test = suite("resolver");

/** Look-ups that end when the test says so. */
class Lookups {
  readonly open: { host: string; end: (result: string[] | Error) => void }[] = [];
  readonly asked: string[] = [];

  readonly lookup = (host: string) =>
    new Promise<string[]>((resolve, reject) => {
      this.asked.push(host);
      const end = (result: string[] | Error) => {
        if (result instanceof Error) reject(result);
        else resolve(result);
      };
      this.open.push({ host, end });
    });
}

test("resolve() gives addresses, or why there are none", async () => {
  const coded = (code: string) => Object.assign(new Error(code), { code });
  const rows: readonly (readonly [string[] | Error, string, boolean])[] = [
    [["10.0.0.1", "::1"], "", false],
    [[], "the name has no address", false],
    [coded("ENOTFOUND"), "no such name", false],
    [coded("EAI_AGAIN"), "the name servers do not answer", true],
    [coded("EMFILE"), "EMFILE", true],
    [new Error("odd"), "failed", true],
  ];
  for (const [result, reason, isTemporary] of rows) {
    const lookups = new Lookups();
    const answer = new Resolver(lookups.lookup).resolve("db");
    lookups.open[0]!.end(result);
    const list = result instanceof Error ? [] : result;
    assert.equal(await answer, { addresses: list, reason, isTemporary });
  }
});

test("a look-up that hangs ends in time for who waits, and the next one is another", async () => {
  const lookups = new Lookups();
  const resolver = new Resolver(lookups.lookup, 20);
  const late = { addresses: [], reason: "timeout", isTemporary: true };
  assert.equal(await Promise.all([resolver.resolve("db"), resolver.resolve("db")]), [late, late]);
  assert.equal(lookups.asked, ["db"]);
  const next = resolver.resolve("db");
  assert.equal(lookups.asked, ["db", "db"]);
  lookups.open[0]!.end(["10.0.0.1"]);
  lookups.open[1]!.end(["10.0.0.2"]);
  assert.equal((await next).addresses, ["10.0.0.2"]);
});

test("look-ups that hang are not more than eight, whoever asks", async () => {
  const lookups = new Lookups();
  const resolver = new Resolver(lookups.lookup, 5);
  for (let i = 0; i < 20; i++) assert.is((await resolver.resolve("db")).reason, "timeout");
  assert.is(lookups.asked.length, 8);
});

test("at most eight run at once, the others follow in their order", async () => {
  const lookups = new Lookups();
  const resolver = new Resolver(lookups.lookup, 60_000);
  const names = Array.from({ length: 12 }, (_, i) => `db${i}`);
  const answers = names.map((name) => resolver.resolve(name));
  assert.equal(lookups.asked, names.slice(0, 8));
  for (const [index, name] of names.entries()) {
    await until(`${name} to be asked`, () => lookups.open[index]?.host === name);
    assert.ok(lookups.asked.length <= index + 8);
    lookups.open[index]!.end([`10.0.0.${index}`]);
  }
  const found = (await Promise.all(answers)).map(({ addresses }) => addresses[0]);
  assert.equal(found, names.map((_, i) => `10.0.0.${i}`));
});

test("the system knows localhost, and no name that can't be", async () => {
  const resolver = new Resolver(undefined, 60_000);
  const { addresses } = await resolver.resolve("localhost");
  assert.ok(addresses.includes("127.0.0.1") || addresses.includes("::1"), addresses.join());
  const { addresses: none, reason } = await resolver.resolve("no-such-host.invalid");
  assert.is(none.length, 0);
  assert.ok(reason.length > 0);
});

test.run();
