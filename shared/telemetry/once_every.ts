// A gate for messages that may come in floods: opens at most once per interval.
// Not a token bucket and not shared between processes: it only keeps a log readable.

import { performance } from "node:perf_hooks";

/**
 * A gate that runs its argument at most once per `intervalMs` and tells it how many calls it
 * refused since the last run. `clock` is monotonic, in milliseconds.
 *
 *     const gate = onceEvery(60_000);
 *     gate((suppressed) => log.warning("payload dropped", { suppressed }));
 */
export function onceEvery(
  intervalMs: number,
  clock: () => number = () => performance.now(),
): (run: (suppressed: number) => void) => void {
  let openAt = -Infinity;
  let suppressed = 0;
  return (run) => {
    const now = clock();
    if (now < openAt) {
      suppressed += 1;
      return;
    }
    openAt = now + intervalMs;
    const count = suppressed;
    suppressed = 0;
    run(count);
  };
}
