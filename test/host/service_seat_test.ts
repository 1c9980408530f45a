// The seat that a supervisor gives to a service beside its workers.

import { parseServiceSeat } from "../../shared/host/service_seat.ts";
import { assert, suite } from "../support/harness.ts";

const variable = "PGWEIR_BUDGET";
const tests = suite("parseServiceSeat");

tests("parseServiceSeat() reads what a supervisor gives", () => {
  const given = {
    busUrl: "nats://127.0.0.1:4333",
    busToken: "t",
    mesh: "default",
    supervisorPid: 12,
    embedded: true,
    name: "budget-1",
    supervisor: "supervisor-1",
  };
  assert.equal(parseServiceSeat(variable, JSON.stringify(given)), {
    name: "budget-1",
    mesh: "default",
    embedded: { servers: ["nats://127.0.0.1:4333"], token: "t" },
    supervisor: "supervisor-1",
    supervisorPid: 12,
    handed: false,
  });
  const without = { ...given, embedded: false, busToken: "" };
  assert.is(
    (parseServiceSeat(variable, JSON.stringify(without)) as { embedded: null }).embedded,
    null,
  );
});

tests("parseServiceSeat() says what is wrong, without the token", () => {
  const good = {
    busUrl: "",
    busToken: "secret",
    mesh: "m",
    supervisorPid: 1,
    embedded: true,
    name: "n",
  };
  const rows: [unknown, string][] = [
    [{ ...good, mesh: "a b" }, "mesh"],
    [{ ...good, name: 3 }, "name"],
    [{ ...good, supervisor: "a b" }, "supervisor,"],
    [{ ...good, busToken: null }, "busToken"],
    [{ ...good, embedded: 1 }, "embedded"],
    [{ ...good, supervisorPid: 0 }, "supervisorPid"],
    [null, "mesh"],
    [[], "mesh"],
  ];
  for (const [value, word] of rows) {
    const said = parseServiceSeat(variable, JSON.stringify(value));
    assert.type(said, "string");
    assert.ok((said as string).includes(word) && !(said as string).includes("secret"), word);
  }
  assert.is(parseServiceSeat(variable, "{"), "read PGWEIR_BUDGET: not JSON");
});

tests.run();
