// Which group what a client begins is in, and what a client is told that its group has no room for.

import type { ClientSession } from "../../services/pooler/plane/client.ts";
import { noRoom, waitedForRoom } from "../../services/pooler/plane/group_refusals.ts";
import { ParameterTracker } from "../../services/pooler/plane/parameters.ts";
import { Place } from "../../services/pooler/plane/place.ts";
import { AdmissionTree, RuleSet, Ticket } from "../../shared/groups/mod.ts";
import { loadConfig } from "../../shared/config/mod.ts";
import { assert, suite } from "../support/harness.ts";
import { f } from "../support/notation.ts";

const tests = suite("place");

function made(text: string) {
  const { config, problems } = loadConfig(
    "main.ini",
    () =>
      "[databases]\na = host=h user=u\n[pgbouncer]\npool_mode = transaction\nauth_type = any\n" +
      text,
  );
  assert.equal(problems, []);
  const { groups, groupRules, settings } = config!;
  const tree = new AdmissionTree({ groups, priorityAgingMs: 0 });
  return { groups, tree, rules: new RuleSet(groupRules, groups, settings.unmatchedGroup) };
}

const groups = "[groups]\ntagged =\nnamed =\nlocal =\n[group_rules]\n";
const all = made(
  `${groups}t = tag=x group=tagged\nn = application_name=app group=named\nl = client_addr=unix group=local\n`,
);

const tracker = new ParameterTracker([]);
const bytes = new Uint8Array(4096);

/** As much of a client as a place looks at. */
function client(host = "10.0.0.1") {
  return {
    user: "u",
    database: "a",
    address: { host, port: 1 },
    parameters: tracker.none,
    plane: { tracker, arena: { bytes } },
    names: {
      get: () => ({
        statement: { parse: f.P("S_1", "/* group=x */ SELECT 1"), name: new Uint8Array(4) },
      }),
    },
  };
}

function chosen(place: Place, message: Uint8Array, { tree, rules } = all): string | null {
  bytes.set(message, 7);
  return place.choose(rules, tree.groups, 7, 7 + message.length)?.name ?? null;
}

const placeOf = (of: ReturnType<typeof client>) => new Place(of as unknown as ClientSession);

for (
  const [what, message, group] of [
    ["a query without a tag", f.Q("SELECT 1"), null],
    ["a tagged query", f.Q("  /* group=x */ SELECT 1"), "tagged"],
    ["another tag", f.Q("/* group=y */ SELECT 1"), null],
    ["a tagged Parse", f.P("n", "/* group=x */ SELECT 1"), "tagged"],
    ["a Bind of a tagged statement", f.B("p", "s"), "tagged"],
    ["a Sync", f.S(), null],
    ["an empty query", f.Q(""), null],
    ["a comment that does not end", f.Q("/* group=x"), null],
    ["a tag behind the text", f.Q("SELECT 1 /* group=x */"), null],
  ] as const
) {
  tests(`Place.choose() finds the group of ${what}`, () => {
    assert.is(chosen(placeOf(client()), message), group);
  });
}

tests("Place.choose() looks again when something changes, and only then", () => {
  const of = client();
  const place = placeOf(of);
  assert.is(chosen(place, f.Q("SELECT 1")), null);
  of.parameters = tracker.with(of.parameters, tracker.applicationName, "app");
  assert.is(chosen(place, f.Q("SELECT 1")), "named");
  assert.is(chosen(place, f.Q("/* group=x */ SELECT 1")), "tagged");
  assert.is(chosen(place, f.Q("/* group=x */ SELECT 2")), "tagged");
  assert.is(chosen(place, f.Q("SELECT 1")), "named");
  assert.is(
    chosen(place, f.Q("SELECT 1"), made("[groups]\ng =\n[group_rules]\nr = group=g\n")),
    "g",
  );
});

tests("Place.choose() knows clients of a unix socket", () => {
  assert.is(chosen(placeOf(client("unix")), f.Q("SELECT 1")), "local");
});

tests("a refusal names the groups and the limits of the file", () => {
  const { tree, groups: configured } = made(
    "[groups]\ntop = max_concurrent_queries=1\nlow = parent=top max_queued=1\n" +
      "[group_rules]\nr = group=low\n",
  );
  const low = tree.group("low")!;
  const [first, second, third] = [new Ticket(1), new Ticket(2), new Ticket(3)];
  tree.request(first, low, 0);
  tree.request(second, low, 0);
  assert.is(tree.request(third, low, 0), "refused");
  assert.equal(noRoom("low", third, configured), {
    code: "53000",
    message: 'no room in resource group "low"',
    detail:
      'Group "top" (max_concurrent_queries = 1): no room to run; group "low" (max_queued = 1): no room to wait',
    hint: "Try again after a pause, and a longer one after each attempt; or raise the limits",
  });
  tree.expire(5000);
  const { code, message, detail } = waitedForRoom("low", second, 5000, configured);
  assert.is(code, "57014");
  assert.is(message, 'canceling statement due to queue_timeout of resource group "low"');
  assert.is(detail, 'It waited 5.0 s for room; group "top" (max_concurrent_queries = 1)');
});

tests.run();
