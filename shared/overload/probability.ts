// The one rule of shedding, as in ClickHouse: nothing is refused below a lower bound, everything above an
// upper one, and between them the probability rises linearly. Pure.

import type { OwnPair } from "../config/mod.ts";

/** What the watched processes did in an interval, all their threads together. */
export interface CpuTimes {
  /** Microseconds in which they could have run and had no CPU. */
  readonly waitUs: number;
  /** Microseconds in which they ran. */
  readonly busyUs: number;
}

export interface Bounds {
  readonly min: number;
  readonly max: number;
}

/** Bounds with what they make of a value. */
export interface Shedding extends Bounds {
  /** How much of all attempts is refused, 0 to 1; 0 when the bounds are turned off. */
  readonly probability: number;
}

/** Wait by work; 0 when there was less work than the threshold, which tells nothing. */
export function overloadRatio({ waitUs, busyUs }: CpuTimes, thresholdUs: number): number {
  if (!(busyUs > 0) || busyUs < thresholdUs || !(waitUs > 0)) return 0;
  return waitUs / busyUs;
}

/** Whether the bounds refuse anything at all; 0 and 0 is how they are turned off. */
export function isLimit({ min, max }: Bounds): boolean {
  return max > 0 && max > min;
}

/** 0 to 1: how many of all attempts are to be refused at this value. */
export function probabilityOf(value: number, bounds: Bounds): number {
  if (!isLimit(bounds) || !(value > bounds.min)) return 0;
  return Math.min(1, (value - bounds.min) / (bounds.max - bounds.min));
}

export function shedding(value: number, { min, max }: Bounds): Shedding {
  return { min, max, probability: probabilityOf(value, { min, max }) };
}

/** What holds where there are bounds of one's own. */
export function withOwn(own: OwnPair | undefined, { min, max }: Bounds): Bounds {
  return { min: own?.min ?? min, max: own?.max ?? max };
}
