// Who sits where: one row for each seat of the fleet, and what its worker is doing. Pure: fleet.ts tells it
// what happened and asks it what is so. Invariant: a worker id sits in one seat at most.

/**
 * starting: its process runs and has not said that it is ready; leaves by `ready` or `died`.
 * ready:    it announced itself ready to take clients; leaves by `died`.
 * empty:    no process: before the first start, or after a death until the restart; leaves by `started`.
 */
export type SeatState = "empty" | "starting" | "ready";

interface Seat {
  state: SeatState;
  workerId: number | null;
}

export class FleetTable {
  readonly #seats: Seat[];

  constructor(count: number) {
    this.#seats = Array.from({ length: count }, () => ({ state: "empty", workerId: null }));
  }

  started(index: number, workerId: number): void {
    const seat = this.#seat(index, "empty");
    if (this.#seats.some((other) => other.workerId === workerId)) {
      throw new Error(`start worker ${workerId} in seat ${index}: it sits in another one`);
    }
    seat.state = "starting";
    seat.workerId = workerId;
  }

  /**
   * A worker announced itself ready. Returns the seat that became ready by it; null when it was so already,
   * or when the worker is none of ours (another host's, or one that died meanwhile).
   */
  announced(workerId: number): number | null {
    const index = this.#seats.findIndex((seat) => seat.workerId === workerId);
    const seat = this.#seats[index];
    if (seat === undefined || seat.state !== "starting") return null;
    seat.state = "ready";
    return index;
  }

  /** Returns the id that the worker had. */
  died(index: number): number {
    const seat = this.#seat(index, "starting", "ready");
    const workerId = seat.workerId!;
    seat.state = "empty";
    seat.workerId = null;
    return workerId;
  }

  stateOf(index: number): SeatState {
    return this.#seats[index]!.state;
  }

  get allReady(): boolean {
    return this.#seats.every((seat) => seat.state === "ready");
  }

  /** Seats that are not ready, in order. */
  get missing(): number[] {
    return this.#seats.flatMap((seat, index) => seat.state === "ready" ? [] : [index]);
  }

  #seat(index: number, ...states: SeatState[]): Seat {
    const seat = this.#seats[index];
    if (seat === undefined || !states.includes(seat.state)) {
      throw new Error(`seat ${index}: it is ${seat?.state}, wanted ${states.join(" or ")}`);
    }
    return seat;
  }
}
