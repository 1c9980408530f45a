// Tickets, by a clock that the test moves.

import { isTicket, Tickets } from "../../shared/bus/tickets.ts";
import { assert, suite } from "../support/harness.ts";

const test = suite("Tickets");

test("isFresh() is true up to the age that is allowed, by the clock of who made the ticket", () => {
  let now = 1000.7;
  const tickets = new Tickets(() => now);
  const ticket = tickets.issue();
  assert.ok(isTicket(ticket));
  assert.is(tickets.isFresh(ticket, 2000), true);
  now += 1999;
  assert.is(tickets.isFresh(ticket, 2000), true);
  now += 2;
  assert.is(tickets.isFresh(ticket, 2000), false);
});

test("isFresh() refuses what another process made, and what nobody made", () => {
  const tickets = new Tickets(() => 1000);
  assert.is(tickets.isFresh(new Tickets(() => 1000).issue(), 2000), false);
  const [id] = tickets.issue().split(".");
  for (const text of ["", ".", "1000", `${id}`, `${id}.`, `${id}.x`, `${id}.1e9`, `${id}.1.1`]) {
    assert.is(tickets.isFresh(text, 2000), false, text);
  }
  assert.is(isTicket(`${id}.1\r\nA: b`), false);
});

test.run();
