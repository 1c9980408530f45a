// A bus and a store as tests use them where nothing is measured: the machine may stand still for seconds at any
// moment, and what the product gives up by then is no failure of it.

import { type Bus, BusError, type Subject } from "../../shared/bus/mod.ts";
import { until } from "../support/harness.ts";

const answerMs = 10_000;

/** Options of `connectBus()`: it dials again for so long. */
export const patientBus = { waitOnFirstConnectMs: 60_000 } as const;

/** Options of `openStore()`: every answer is waited for so long. */
export const patientStore = { waitMs: 60_000, requestMs: 60_000 } as const;

/** Waits until the brokers have all that these sent: their subscriptions count from now on. */
export async function settled(...buses: readonly Bus[]): Promise<void> {
  const isBack = (bus: Bus) =>
    bus.roundTripMs().then(() => true, (error) => {
      if (error instanceof BusError && error.code === "TIMEOUT") return false;
      throw error;
    });
  await Promise.all(buses.map((bus) => until("a round trip", () => isBack(bus))));
}

/**
 * The answer to a request that its owner drops when it was under way for seconds, as it should: it is asked again
 * then, and only then.
 */
export async function answerOf<M extends object, R extends object>(
  asker: Bus,
  owner: Bus,
  subject: Subject<M, R>,
  request: M,
): Promise<R> {
  for (;;) {
    const { stale } = owner.counters;
    try {
      return await asker.request(subject, request, answerMs);
    } catch (error) {
      const isTimeout = error instanceof BusError && error.code === "TIMEOUT";
      if (!isTimeout || owner.counters.stale === stale) throw error;
    }
  }
}
