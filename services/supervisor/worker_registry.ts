// Identities that are unique in the mesh, by a store that all hosts share: each is a key, made when a worker
// is started and removed when the coordinator knows that it is gone. Before that the key stays: should we
// end without having said it, the next supervisor of this host finds the key, sees that the worker is
// gone, and says it then. A store that lost its keys gets those of our workers again.
// Invariant: nothing is reported gone that may still run. What can't be said now is said again until it is.

import { setTimeout as delay } from "node:timers/promises";
import { BusError, type Store } from "../../shared/bus/mod.ts";
import { type Logger, onceEvery } from "../../shared/telemetry/mod.ts";
import { type Identities, type Identity, Incarnations } from "./identities.ts";
import { WorkerIds } from "./worker_ids.ts";
import {
  decodeRecord,
  encodeRecord,
  type Evidence,
  fateOf,
  type HostMark,
  workerKey,
  workerKeyPrefix,
} from "./worker_record.ts";

export interface RegistryOptions {
  readonly store: Store;
  readonly mark: HostMark;
  readonly evidence: Evidence;
  /** Tells the coordinator that leads; rejects with a BusError while none answers. */
  readonly reportGone: (identity: Identity) => Promise<void>;
  /** Ids that the bus has heard of lately. */
  readonly seenOnBus: (id: number) => boolean;
  /** How long the bus has been reaching us without a break, in ms. */
  readonly listeningMs: () => number;
  readonly random: () => number;
  readonly logger: Logger;
  readonly times?: RegistryTimes;
}

export interface RegistryTimes {
  /** Between two attempts at what the bus or the store did not do. */
  readonly retryMs: number;
  /** Between two looks at workers that may be gone. */
  readonly sweepMs: number;
  /** Between two looks whether the keys of our workers are still there. */
  readonly guardMs: number;
  /** A worker that was not heard for so long while we listened does not run. */
  readonly silentMs: number;
}

const defaultTimes: RegistryTimes = {
  retryMs: 500,
  sweepMs: 2000,
  guardMs: 5000,
  silentMs: 5000,
};
/** Goodbyes that wait; each further one is left to the next start on this host. */
const maxGoodbyes = 1000;
const reportIntervalMs = 10_000;

export class WorkerRegistry implements Identities {
  readonly #options: RegistryOptions;
  readonly #times: RegistryTimes;
  readonly #ids: WorkerIds;
  readonly #incarnations = new Incarnations();
  /** Workers that run or are about to, by id. */
  readonly #held = new Map<number, Identity>();
  readonly #goodbyes = new Map<string, Promise<void>>();
  readonly #closed = new AbortController();
  readonly #reportStore = onceEvery(reportIntervalMs);
  readonly #reportGoodbye = onceEvery(reportIntervalMs);
  readonly #reportTwin = onceEvery(60_000);
  readonly #namesakes = new Set<string>();
  #sweeping: Promise<void> = Promise.resolve();
  #guarding: Promise<void> = Promise.resolve();

  constructor(options: RegistryOptions) {
    this.#options = options;
    this.#times = options.times ?? defaultTimes;
    this.#ids = new WorkerIds(options.random);
  }

  /**
   * Looks for workers of this host that were left behind, until the fate of all is known, and after the keys
   * of those that run, until close().
   */
  start(): void {
    this.#sweeping = this.#sweepUntilKnown();
    this.#guarding = this.#guard();
  }

  async take(signal: AbortSignal): Promise<Identity | null> {
    const incarnation = this.#incarnations.next();
    for (;;) {
      const identity = { id: this.#ids.take(this.#options.seenOnBus), incarnation };
      const outcome = await this.#claim(identity, signal);
      if (outcome === "ours") {
        this.#held.set(identity.id, identity);
        return identity;
      }
      this.#ids.release(identity.id);
      if (outcome === "aborted") return null;
    }
  }

  release(identity: Identity): void {
    this.#held.delete(identity.id);
    this.#ids.release(identity.id);
    this.#sayGoodbye(identity);
  }

  /** Waits until all goodbyes are said, but no longer than `flushMs`. */
  async close(flushMs: number): Promise<void> {
    const flushed = Promise.all(this.#goodbyes.values());
    const late = new AbortController();
    await Promise.race([flushed, pause(flushMs, late.signal)]);
    late.abort();
    this.#closed.abort();
    await Promise.all([this.#sweeping, this.#guarding, ...this.#goodbyes.values()]);
  }

  async #claim(identity: Identity, signal: AbortSignal): Promise<"ours" | "taken" | "aborted"> {
    const { store, mark, logger } = this.#options;
    const key = workerKey(identity.id);
    const value = encodeRecord({ ...mark, incarnation: identity.incarnation });
    for (let tried = false; !signal.aborted; tried = true) {
      try {
        if (await store.create(key, value) !== null) return "ours";
        // An attempt that got no answer may have been done all the same.
        return tried && await this.#isOurs(identity) ? "ours" : "taken";
      } catch (error) {
        const { code } = asBusError(error);
        this.#reportStore(() =>
          logger.warning(`start a worker: the store of the mesh gives it no id (${code}), waiting`)
        );
        await pause(this.#times.retryMs, signal);
      }
      if (signal.aborted) this.#sayGoodbye(identity);
    }
    return "aborted";
  }

  async #isOurs({ id, incarnation }: Identity): Promise<boolean> {
    const { store, mark } = this.#options;
    const found = await store.get(workerKey(id));
    const record = found === null ? null : decodeRecord(workerKey(id), found.value)?.record;
    return record?.incarnation === incarnation && record.host === mark.host &&
      record.supervisorPid === mark.supervisorPid &&
      record.supervisorStart === mark.supervisorStart;
  }

  /** A worker is gone for good: tells the coordinator, then forgets it. */
  #sayGoodbye(identity: Identity): void {
    const name = `${identity.id}.${identity.incarnation}`;
    if (this.#goodbyes.has(name) || this.#closed.signal.aborted) return;
    if (this.#goodbyes.size >= maxGoodbyes) {
      this.#options.logger.warning(
        `tell the coordinator that worker ${identity.id} is gone: ${maxGoodbyes} others wait, ` +
          "leaving it to the next start on this host",
      );
      return;
    }
    const said = this.#repeat(identity, () => this.#options.reportGone(identity))
      .then(() => this.#repeat(identity, () => this.#forget(identity)))
      .finally(() => this.#goodbyes.delete(name));
    this.#goodbyes.set(name, said);
  }

  async #repeat({ id }: Identity, attempt: () => Promise<void>): Promise<void> {
    const { signal } = this.#closed;
    const since = performance.now();
    while (!signal.aborted) {
      try {
        return await attempt();
      } catch (error) {
        const { code } = asBusError(error);
        // While coordinators choose who leads, none answers.
        if (performance.now() - since > reportIntervalMs) {
          this.#reportGoodbye((suppressed) =>
            this.#options.logger.warning(
              `tell the coordinator that worker ${id} is gone: no answer (${code}), trying again`,
              { suppressed },
            )
          );
        }
        await pause(this.#times.retryMs, signal);
      }
    }
  }

  async #forget({ id, incarnation }: Identity): Promise<void> {
    const { store } = this.#options;
    const key = workerKey(id);
    const found = await store.get(key);
    if (found === null) return;
    if (decodeRecord(key, found.value)?.identity.incarnation !== incarnation) return;
    await store.remove(key, found.revision);
  }

  async #guard(): Promise<void> {
    const { signal } = this.#closed;
    for (;;) {
      await pause(this.#times.guardMs, signal);
      if (signal.aborted) return;
      for (const identity of [...this.#held.values()]) {
        try {
          await this.#keep(identity);
        } catch (error) {
          // It is looked after again; what the bus or the store can't do, others speak of.
          asBusError(error);
        }
      }
    }
  }

  /** Writes the key of a worker again that the store has lost. */
  async #keep(identity: Identity): Promise<void> {
    const { store, mark, logger } = this.#options;
    const { id, incarnation } = identity;
    const isHeld = () => this.#held.get(id) === identity && !this.#closed.signal.aborted;
    if (!isHeld()) return;
    const found = await store.get(workerKey(id));
    if (!isHeld()) return;
    if (found !== null) {
      const holder = decodeRecord(workerKey(id), found.value);
      if (holder === null || holder.identity.incarnation === incarnation) return;
      this.#reportTwin((suppressed) =>
        logger.error(
          `keep the id of worker ${id}: the store lost it, and host "${holder.record.host}" gave it to ` +
            "another worker; cancel requests may reach the wrong one until one of them is started again",
          { suppressed },
        )
      );
      return;
    }
    // Somebody else was faster: the next look shows who.
    if (await store.create(workerKey(id), encodeRecord({ ...mark, incarnation })) === null) return;
    logger.warning(`keep the id of worker ${id}: the store lost it, it is written again`);
    // Its goodbye may have been said meanwhile, and what was forgotten then is back.
    if (!isHeld()) await this.#repeat(identity, () => this.#forget(identity));
  }

  async #sweepUntilKnown(): Promise<void> {
    const { signal } = this.#closed;
    while (!signal.aborted) {
      try {
        if (await this.#sweep()) return;
      } catch (error) {
        // It is asked again: what is not known now is no reason to hold up the start.
        asBusError(error);
      }
      await pause(this.#times.sweepMs, signal);
    }
  }

  /** Returns whether the fate of every worker is known. */
  async #sweep(): Promise<boolean> {
    const { store, mark, evidence } = this.#options;
    let known = true;
    for (const { key, value } of await store.list(workerKeyPrefix)) {
      const found = decodeRecord(key, value);
      if (found === null) continue;
      const { identity, record } = found;
      const fate = fateOf(record, identity.id, mark, evidence);
      if (fate === "orphaned") known = false;
      if (fate === "gone") this.#bury(identity, "its supervisor ended without saying so");
      if (fate === "rebooted" && !this.#judgeRebooted(identity)) known = false;
    }
    return known;
  }

  /**
   * A worker of an earlier boot of this host, unless two hosts have the same name: then it is heard. Returns
   * whether its fate is known.
   */
  #judgeRebooted(identity: Identity): boolean {
    const { mark, seenOnBus, listeningMs, logger } = this.#options;
    const name = `${identity.id}.${identity.incarnation}`;
    if (seenOnBus(identity.id)) {
      if (!this.#namesakes.has(name)) {
        logger.error(
          `another host calls itself "${mark.host}", too, and runs worker ${identity.id}: ` +
            "every host of a mesh needs a name of its own",
        );
      }
      this.#namesakes.add(name);
      return true;
    }
    if (listeningMs() < this.#times.silentMs) return false;
    this.#bury(identity, "the host was started anew since");
    return true;
  }

  #bury(identity: Identity, why: string): void {
    this.#options.logger.info(`worker ${identity.id} of an earlier run is gone: ${why}`);
    this.#sayGoodbye(identity);
  }
}

/** Anything else that is thrown is a bug. */
function asBusError(error: unknown): BusError {
  if (error instanceof BusError) return error;
  throw error;
}

/** Resolves early when `signal` is aborted. */
async function pause(ms: number, signal: AbortSignal): Promise<void> {
  await delay(ms, undefined, { signal }).catch(() => {});
}
