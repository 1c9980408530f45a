// What the queries of a group have needed: the memory that nine of ten stay below, late queries counting more than
// early ones. A histogram of a fixed size with four steps to each doubling, so an estimate is at most a fifth too
// large, and one query is one sample whatever often it is measured.

import type { Ticket } from "./ticket.ts";

const SMALLEST = 64 * 1024;
const STEPS_PER_DOUBLING = 4;
/** up to 1 TB */
const STEPS = 24 * STEPS_PER_DOUBLING + 1;
const PERCENTILE = 0.9;
/** Each sample counts so much more than the one before: the last fifty make two thirds of the estimate. */
const GROWTH = 1.02;
const LARGEST_WEIGHT = 1e100;

export class MemoryHistory {
  #counts: Float64Array | null = null;
  #total = 0;
  #weight = 1;
  /** bytes */
  estimate = 0;

  get isEmpty(): boolean {
    return this.#counts === null;
  }

  /** A query has `bytes` now, or at its end. */
  observe(ticket: Ticket, bytes: number): void {
    const step = stepOf(bytes);
    if (step <= ticket.sample) return;
    const counts = this.#counts ??= new Float64Array(STEPS);
    if (ticket.sample >= 0) {
      // A query counts by its peak. What is left of a sample after a rescale may be less than it was.
      const weight = Math.min(ticket.sampleWeight, counts[ticket.sample]!);
      counts[ticket.sample]! -= weight;
      counts[step]! += weight;
    } else {
      this.#weight *= GROWTH;
      if (this.#weight > LARGEST_WEIGHT) this.#rescale(counts);
      ticket.sampleWeight = this.#weight;
      counts[step]! += this.#weight;
      this.#total += this.#weight;
    }
    ticket.sample = step;
    this.estimate = this.#percentile(counts);
  }

  #rescale(counts: Float64Array): void {
    for (let step = 0; step < STEPS; step++) counts[step]! /= this.#weight;
    this.#total /= this.#weight;
    this.#weight = 1;
  }

  #percentile(counts: Float64Array): number {
    let above = this.#total * (1 - PERCENTILE);
    for (let step = STEPS - 1; step > 0; step--) {
      above -= counts[step]!;
      if (above < 0) return bytesOf(step);
    }
    return bytesOf(0);
  }
}

function stepOf(bytes: number): number {
  const step = Math.ceil(Math.log2(Math.max(1, bytes) / SMALLEST) * STEPS_PER_DOUBLING);
  return Math.min(STEPS - 1, Math.max(0, step));
}

function bytesOf(step: number): number {
  return Math.round(SMALLEST * 2 ** (step / STEPS_PER_DOUBLING));
}
