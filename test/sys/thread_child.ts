// The thread of thread_test.ts: a reactor with nothing but its wake-up descriptor and timers, which
// obeys the orders it gets by message.

import { readFileSync } from "node:fs";
import {
  createEventFd,
  EPOLLIN,
  Reactor,
  signalEventFd,
  threadPort,
} from "../../shared/sys/mod.ts";

export type Order =
  | { readonly kind: "echo"; readonly value: number }
  | { readonly kind: "post"; readonly count: number }
  | { readonly kind: "tick"; readonly count: number }
  | { readonly kind: "count" | "tellOnWake" | "name" | "close" }
  | { readonly kind: "fail"; readonly where: "message" | "timer" | "event" };

export type Report =
  | { readonly kind: "ready"; readonly wakeFd: number }
  | { readonly kind: "echo"; readonly value: number }
  | { readonly kind: "name"; readonly name: string };

const port = threadPort();
const reactor = new Reactor();
let counted = 0;
let mustTell = false;

function report(report: Report): void {
  port.post(report);
}

function fail(): never {
  throw new Error("a bug");
}

function obey(order: Order): void {
  switch (order.kind) {
    case "echo":
      report({ kind: "echo", value: order.value });
      break;
    case "post":
      for (let value = 0; value < order.count; value++) report({ kind: "echo", value });
      break;
    case "tick": {
      let value = 0;
      const timer = reactor.every(1, () => {
        report({ kind: "echo", value });
        if (++value === order.count) timer.cancel();
      });
      break;
    }
    case "count":
      counted++;
      break;
    case "tellOnWake":
      mustTell = true;
      break;
    case "name":
      report({ kind: "name", name: readFileSync("/proc/thread-self/comm", "latin1").trim() });
      break;
    case "close":
      reactor.close();
      report({ kind: "echo", value: 0 });
      break;
    case "fail": {
      if (order.where === "message") fail();
      if (order.where === "timer") reactor.after(1, fail);
      if (order.where === "event") {
        const fd = createEventFd();
        signalEventFd(fd);
        reactor.add(fd, EPOLLIN, { onEvents: fail });
      }
      break;
    }
  }
}

port.onMessage = (message) => obey(message as Order);
reactor.onWake = () => {
  if (!mustTell) return;
  mustTell = false;
  report({ kind: "echo", value: counted });
};
report({ kind: "ready", wakeFd: reactor.wakeFd });
await reactor.run();
