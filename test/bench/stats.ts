// The few statistics the benchmark needs: medians, quantiles and ratios of small samples.
// Pure. Nothing here knows what is measured; an empty sample has no median and is a bug.

/** The middle value; of an even number of values, the mean of the two in the middle. */
export function median(values: readonly number[]): number {
  return quantile(values, 0.5);
}

/** The value below which the fraction `q` of the sample lies, interpolated between neighbours. */
export function quantile(values: readonly number[], q: number): number {
  return quantileOfSorted(Float64Array.from(values).sort(), q);
}

/** quantile() of values that are already in ascending order. */
export function quantileOfSorted(sorted: ArrayLike<number>, q: number): number {
  if (sorted.length === 0) throw new Error("take a quantile: the sample is empty");
  if (!(q >= 0 && q <= 1)) throw new Error(`take a quantile: "${q}" is not from 0 to 1`);
  const position = (sorted.length - 1) * q;
  const below = Math.floor(position);
  const low = sorted[below] as number;
  const high = sorted[Math.min(below + 1, sorted.length - 1)] as number;
  return low + (high - low) * (position - below);
}

/** Where the median of what the sample was taken of lies with 95 % certainty: by the order of the values alone. */
export function medianInterval(values: readonly number[]): { low: number; high: number } {
  const sorted = [...values].sort((a, b) => a - b);
  const { length } = sorted;
  const from = Math.max(0, Math.floor((length - 1.96 * Math.sqrt(length)) / 2) - 1);
  return { low: sorted[from] as number, high: sorted[length - 1 - from] as number };
}

/**
 * The median of the ratios taken round by round, and their range. A ratio of two medians would mix
 * rounds; neighbours of one round have seen the same noise of the machine, so it largely cancels.
 * Rounds that one side lacks, or in which the base is 0, are left out; null when none remains.
 */
export function medianRatio(
  values: readonly (number | null)[],
  bases: readonly (number | null)[],
): { median: number; low: number; high: number } | null {
  const ratios: number[] = [];
  values.forEach((value, round) => {
    const base = bases[round] ?? null;
    if (value !== null && base !== null && base !== 0) ratios.push(value / base);
  });
  if (ratios.length === 0) return null;
  return { median: median(ratios), low: Math.min(...ratios), high: Math.max(...ratios) };
}

/** The median of the values that exist, or null. */
export function medianOrNull(values: readonly (number | null)[]): number | null {
  const present = values.filter((value) => value !== null);
  return present.length === 0 ? null : median(present);
}
