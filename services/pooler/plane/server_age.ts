// When servers are too old, or have been idle for too long. Pure.
// Servers that were opened together, by all workers of a fleet after a restart, say, are not closed together:
// each has a limit of its own, spread evenly over the last tenth before the one of the file. Never later: what
// is out there (a firewall's memory, a password's end) may rely on it.

const spread = 0.1;
/** Multiples of it are as far from each other as can be, however many there are. */
const golden = (Math.sqrt(5) - 1) / 2;
const otherwise = Math.SQRT2 - 1;

/** The limit for one server, by its number in its worker. */
export function ownLimitMs(limitMs: number, server: number, worker: number): number {
  return limitMs * (1 - spread * ((server * golden + worker * otherwise) % 1));
}
