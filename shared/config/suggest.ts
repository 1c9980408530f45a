// "Did you mean": the known name nearest to a mistyped one, by edit distance (insert, delete, replace,
// swap of neighbours). Bounded: names longer than 64 characters get no suggestion.

const MAX_LENGTH = 64;

function distance(a: string, b: string): number {
  let beforePrevious: number[] = [];
  let previous = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const current = [i];
    for (let j = 1; j <= b.length; j++) {
      const cost = a[i - 1] === b[j - 1] ? 0 : 1;
      let best = Math.min(
        (previous[j] as number) + 1,
        (current[j - 1] as number) + 1,
        (previous[j - 1] as number) + cost,
      );
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) {
        best = Math.min(best, (beforePrevious[j - 2] as number) + 1);
      }
      current.push(best);
    }
    beforePrevious = previous;
    previous = current;
  }
  return previous[b.length] as number;
}

/** The nearest of `known`, or null when nothing is near (a third of the letters may be wrong). */
export function nearestName(name: string, known: Iterable<string>): string | null {
  if (name.length > MAX_LENGTH) return null;
  const lower = name.trim().toLowerCase();
  let best: string | null = null;
  let bestDistance = Math.floor(lower.length / 3) + 1;
  for (const candidate of known) {
    if (Math.abs(candidate.length - lower.length) >= bestDistance) continue;
    const d = distance(lower, candidate.toLowerCase());
    if (d < bestDistance) {
      best = candidate;
      bestDistance = d;
    }
  }
  return best;
}

/** `, did you mean "x"`, or nothing: the tail of a message. */
export function didYouMean(name: string, known: Iterable<string>): string {
  const nearest = nearestName(name, known);
  return nearest === null ? "" : `, did you mean "${nearest}"`;
}
