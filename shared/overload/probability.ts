// The one rule of shedding, as in ClickHouse: nothing is refused below a lower bound, everything above an
// upper one, and between them the probability rises linearly. Pure.

export interface Bounds {
  readonly min: number;
  readonly max: number;
}

/** Bounds with what they make of a value. */
export interface Shedding extends Bounds {
  /** How much of all attempts is refused, 0 to 1; 0 when the bounds are turned off. */
  readonly probability: number;
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
