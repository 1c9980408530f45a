// SUSPEND: what is under way in this worker comes to rest, and nothing more is read until RESUME. Clients first, each
// as soon as nothing of what it has sent is left here; then servers, since who waits is served before that. The
// listeners close to newcomers, who wait in the kernel's queue; the console's clients are heard all along.
// Invariant: while it lasts it counts towards no time limit.

import type { ClientSession } from "./client.ts";
import type { Plane } from "./plane.ts";
import { refusals } from "./refusals.ts";
import type { ServerConnection } from "./server.ts";
import { ServerState } from "./server_state.ts";

export class Suspension {
  readonly #plane: Plane;
  /** When it began; null: nothing is suspended. */
  #since: number | null = null;

  constructor(plane: Plane) {
    this.#plane = plane;
  }

  get active(): boolean {
    return this.#since !== null;
  }

  begin(): void {
    if (this.active || this.#plane.stopping) return;
    this.#since = this.#plane.reactor.now;
    this.#plane.onSuspended();
    this.proceed();
  }

  end(): void {
    if (this.#since === null) return;
    const lasted = this.#plane.reactor.now - this.#since;
    this.#since = null;
    for (const client of this.#plane.clients) {
      client.waitingSince += lasted;
      client.idleSince += lasted;
      client.login?.postpone(lasted);
      client.stream.thaw();
    }
    for (const server of this.#plane.servers()) {
      server.requestAt += lasted;
      server.transactionAt += lasted;
      // One that looks for its host has no stream yet.
      (server.stream as ServerConnection["stream"] | undefined)?.thaw();
    }
  }

  /** Stops what has come to rest. Returns how many connections have not; 0 too when nothing is suspended. */
  proceed(): number {
    const { pools, settings: { suspendTimeoutMs }, reactor, clients } = this.#plane;
    if (this.#since === null) return 0;
    const isLate = suspendTimeoutMs > 0 && reactor.now - this.#since >= suspendTimeoutMs;
    let inputs = 0;
    let left = 0;
    for (const client of [...clients]) {
      if (client.console !== null) continue;
      const hasInput = holdsInput(client);
      if (!hasInput) client.stream.freeze();
      if (!hasInput && client.stream.pending === 0) continue;
      if (isLate) {
        client.fail(refusals.suspendTimeout);
      } else {
        left++;
        if (hasInput) inputs++;
      }
    }
    // Look-ups of users wait as well.
    for (const { waiting } of pools.values()) inputs += waiting;
    if (inputs > 0) return inputs;
    for (const server of [...this.#plane.servers()]) {
      // One that logs in has nothing of anybody's; it is stopped when it has done so.
      if (server.login !== null) continue;
      if (isBusy(server)) {
        left++;
      } else if (server.buffered === 0) {
        server.stream.freeze();
        if (server.stream.pending > 0) left += this.#wait(server, isLate);
      } else {
        left += this.#wait(server, isLate);
      }
    }
    return left;
  }

  /** Returns how many are left: it is waited for, or it is too late. */
  #wait(server: ServerConnection, isLate: boolean): number {
    if (!isLate) return 1;
    server.client?.fail(refusals.suspendTimeout);
    server.close(refusals.suspendTimeout.message);
    return 0;
  }
}

/** Something that it has sent, or is owed at once, is here still. Who logs in and is to say something itself is not. */
function holdsInput(client: ClientSession): boolean {
  const isServed = client.login?.paused === true;
  return isServed || client.queued || client.awaitsSync || client.buffered > 0;
}

/** The pooler itself is at work on it, which has an end of its own. */
function isBusy({ state }: ServerConnection): boolean {
  return state === ServerState.tested || state === ServerState.beingCanceled;
}
