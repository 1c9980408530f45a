// The reactor itself: events and generations, timers in the loop, wake-ups, start and stop.

import { assert, suite } from "../support/harness.ts";
import {
  closeFd,
  createEventFd,
  EPOLLERR,
  EPOLLHUP,
  EPOLLIN,
  EPOLLOUT,
  Reactor,
  signalEventFd,
  SysError,
} from "../../shared/sys/mod.ts";
import { encoder, withRig } from "./fixtures.ts";

const test = suite("sys: reactor");

test("Reactor.add() reports readiness until it is dealt with, and Reactor.remove() ends that", () =>
  withRig(async (rig) => {
    const fd = rig.own(createEventFd());
    signalEventFd(fd);
    let events = 0;
    rig.reactor.add(fd, EPOLLIN, {
      onEvents: (mask) => {
        assert.is(mask, EPOLLIN);
        events++;
      },
    });
    await rig.until("three reports", () => events >= 3);
    rig.reactor.remove(fd);
    rig.reactor.remove(fd);
    const before = events;
    await rig.batchesWithin(20);
    assert.is(events, before);
  }));

test("Reactor.modify() changes what is reported", () =>
  withRig(async (rig) => {
    const fd = rig.own(createEventFd());
    signalEventFd(fd);
    let mask = 0;
    rig.reactor.add(fd, 0, {
      onEvents: (ready) => {
        mask |= ready;
      },
    });
    await rig.batchesWithin(20);
    assert.is(mask, 0);
    rig.reactor.modify(fd, EPOLLOUT);
    await rig.until("writability", () => mask !== 0);
    assert.is(mask, EPOLLOUT);
    rig.reactor.modify(fd, EPOLLIN | EPOLLOUT);
    await rig.until("both", () => mask === (EPOLLIN | EPOLLOUT));
  }));

test("Reactor refuses descriptors that are watched already or cannot be watched", () => {
  const reactor = new Reactor();
  const fd = createEventFd();
  try {
    const source = { onEvents: () => {} };
    reactor.add(fd, EPOLLIN, source);
    assert.throws(() => reactor.add(fd, EPOLLIN, source), /is watched already/);
    assert.throws(
      () => reactor.add(1_000_000, EPOLLIN, source),
      (error: unknown) => error instanceof SysError && error.code === "EBADF",
    );
    assert.throws(
      () => reactor.modify(1_000_000, EPOLLIN),
      (error: unknown) => error instanceof SysError && error.code === "EBADF",
    );
    reactor.remove(1_000_000);
    reactor.remove(-1);
  } finally {
    reactor.close();
    closeFd(fd);
  }
});

// The kernel hands over a batch; the first callback closes a descriptor whose event is in the same
// batch and opens another, which gets the same number. The old event must not reach the new source.
test("Reactor keeps an event of a closed descriptor from the source that reuses its number", () =>
  withRig(async (rig) => {
    let stale = 0;
    let reused = 0;
    const rounds = 50;
    for (let round = 0; round < rounds; round++) {
      const fds = [createEventFd(), createEventFd()];
      const successors: number[] = [];
      let events = 0;
      const serve = (own: number, other: number) => () => {
        events++;
        rig.reactor.remove(own);
        rig.reactor.remove(other);
        closeFd(own);
        closeFd(other);
        // Two new ones, on the two numbers just released, without anything to read.
        for (let i = 0; i < 2; i++) {
          const fd = createEventFd();
          if (fds.includes(fd)) reused++;
          successors.push(fd);
          rig.reactor.add(fd, EPOLLIN, { onEvents: () => stale++ });
        }
      };
      rig.reactor.add(fds[0]!, EPOLLIN, { onEvents: serve(fds[0]!, fds[1]!) });
      rig.reactor.add(fds[1]!, EPOLLIN, { onEvents: serve(fds[1]!, fds[0]!) });
      for (const fd of fds) signalEventFd(fd);
      await rig.until("the events", () => events > 0);
      assert.is(events, 1);
      for (const fd of successors) {
        rig.reactor.remove(fd);
        closeFd(fd);
      }
    }
    assert.is(stale, 0);
    assert.ok(reused >= rounds, "the numbers were not reused: this test tests nothing");
  }));

test("Reactor.remove() within a batch silences an event that was already fetched", () =>
  withRig(async (rig) => {
    const fds = [rig.own(createEventFd()), rig.own(createEventFd())];
    let events = 0;
    for (const fd of fds) {
      signalEventFd(fd);
      rig.reactor.add(fd, EPOLLIN, {
        onEvents: () => {
          events++;
          for (const each of fds) rig.reactor.remove(each);
        },
      });
    }
    await rig.until("an event", () => events > 0);
    await rig.batchesWithin(20);
    assert.is(events, 1);
  }));

test("Reactor reports errors and hang-ups without being asked", () =>
  withRig(async (rig) => {
    const [near, far] = await rig.pair();
    const fd = near.stream.fd;
    rig.reactor.remove(fd);
    let mask = 0;
    rig.reactor.add(fd, 0, {
      onEvents: (ready) => {
        mask = ready;
        rig.reactor.remove(fd);
      },
    });
    far.reset();
    await rig.until("the reset", () => mask !== 0);
    assert.is(mask, EPOLLERR | EPOLLHUP);
  }));

test("Reactor.after() fires once and in order, and never early", () =>
  withRig(async (rig) => {
    const fired: string[] = [];
    let start = 0;
    const earliest = (name: string, ms: number) =>
      rig.reactor.after(ms, () => {
        assert.ok(performance.now() - start >= ms, `"${name}" was early`);
        fired.push(name);
      });
    // Made anew if the machine stood still in between: one that is made late is due late.
    for (let isMade = false; !isMade;) {
      start = performance.now();
      const timers = [earliest("c", 30), earliest("a", 3), earliest("b", 15)];
      earliest("never", 10).cancel();
      timers.push(rig.reactor.after(-5, () => fired.push("at once")));
      isMade = performance.now() - start < 3;
      if (!isMade) { for (const timer of timers) timer.cancel(); }
    }
    await rig.until("all", () => fired.includes("c"));
    assert.equal(fired, ["at once", "a", "b", "c"]);
  }));

test("Reactor.after() made inside callbacks does not starve events", () =>
  withRig(async (rig) => {
    let turns = 0;
    let isOver = false;
    const again = () => {
      turns++;
      if (!isOver) rig.reactor.after(0, again);
    };
    again();
    const [near, far] = await rig.pair();
    near.send(encoder.encode("x"));
    await rig.until("the byte", () => far.text() === "x");
    isOver = true;
    assert.ok(turns > 1);
  }));

test("Reactor.every() repeats until it is cancelled", () =>
  withRig(async (rig) => {
    let fired = 0;
    const timer = rig.reactor.every(2, () => {
      if (++fired === 3) timer.cancel();
    });
    await rig.until("three times", () => fired === 3);
    await rig.batchesWithin(20);
    assert.is(fired, 3);
    assert.throws(() => rig.reactor.every(0, () => {}), /wanted more than 0/);
  }));

test("Reactor.now is the time of the batch, and onBatchEnd comes after events and timers", async () => {
  const reactor = new Reactor();
  const fd = createEventFd();
  const order: string[] = [];
  const times: number[] = [];
  signalEventFd(fd);
  const before = performance.now();
  reactor.add(fd, EPOLLIN, {
    onEvents: () => {
      order.push("event");
      times.push(reactor.now);
      reactor.remove(fd);
    },
  });
  reactor.after(0, () => {
    order.push("timer");
    times.push(reactor.now);
  });
  reactor.onBatchEnd = () => {
    order.push("end");
    times.push(reactor.now);
    reactor.stop();
  };
  await reactor.run();
  reactor.close();
  closeFd(fd);
  assert.equal(order, ["event", "timer", "end"]);
  assert.is(new Set(times).size, 1);
  assert.ok(times[0]! >= before);
});

test("Reactor.onWake is awaited for a signal, once for signals that come together", async () => {
  const reactor = new Reactor();
  let wakes = 0;
  let isBusy = false;
  reactor.onWake = async () => {
    wakes++;
    isBusy = true;
    await new Promise((resolve) => setTimeout(resolve, 5));
    isBusy = false;
    if (wakes === 2) reactor.stop();
    else signalEventFd(reactor.wakeFd);
  };
  reactor.onBatchEnd = () => assert.not(isBusy);
  for (let i = 0; i < 5; i++) signalEventFd(reactor.wakeFd);
  await reactor.run();
  reactor.close();
  assert.is(wakes, 2);
});

test("Reactor.run() works again after stop(), not twice at a time, not after close()", async () => {
  const reactor = new Reactor();
  let timers = 0;
  for (let i = 0; i < 2; i++) {
    reactor.after(1, () => {
      timers++;
      reactor.stop();
    });
    const running = reactor.run();
    await running;
  }
  assert.is(timers, 2);
  let refusal: unknown = null;
  reactor.after(1, async () => {
    refusal = await reactor.run().catch((error: unknown) => error);
  });
  reactor.after(2, () => reactor.stop());
  await reactor.run();
  await Promise.resolve();
  assert.match(String(refusal), /it is running/);
  reactor.close();
  reactor.close();
  refusal = await reactor.run().catch((error: unknown) => error);
  assert.match(String(refusal), /it is closed/);
});

test("Reactor.run() rejects with what a callback threw", async () => {
  const reactor = new Reactor();
  reactor.after(1, () => {
    throw new Error("a bug");
  });
  const error: unknown = await reactor.run().catch((error: unknown) => error);
  reactor.close();
  assert.match(String(error), /a bug/);
});

test("Reactor serves more ready descriptors than one batch holds", () =>
  withRig(async (rig) => {
    const count = 1200;
    const seen = new Set<number>();
    for (let i = 0; i < count; i++) {
      const fd = rig.own(createEventFd());
      signalEventFd(fd);
      rig.reactor.add(fd, EPOLLIN, {
        onEvents: () => {
          seen.add(fd);
          rig.reactor.remove(fd);
        },
      });
    }
    await rig.until("all", () => seen.size === count);
  }));

test.run();
