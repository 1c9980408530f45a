// In which order the addresses of one name are tried (RFC 8305, happy eyeballs). Pure.

/** The addresses with the families taking turns, as far as there are both; IPv6 first. */
function interleaved(addresses: readonly string[]): string[] {
  const sorted = [...addresses].sort();
  const sixes = sorted.filter((address) => address.includes(":"));
  const fours = sorted.filter((address) => !address.includes(":"));
  const order: string[] = [];
  for (let i = 0; i < Math.max(sixes.length, fours.length); i++) {
    order.push(...sixes.slice(i, i + 1), ...fours.slice(i, i + 1));
  }
  return order;
}

/**
 * The order for the connection number `turn`: each address is the first in its turn, so that connections are
 * spread over all of them; those that `isLate` come last, since they did not connect in time lately.
 */
export function dialOrder(
  addresses: readonly string[],
  turn: number,
  isLate: (address: string) => boolean,
): string[] {
  const all = interleaved(addresses);
  const prompt = all.filter((address) => !isLate(address));
  const late = all.filter(isLate);
  return [...rotated(prompt, turn), ...rotated(late, turn)];
}

function rotated(addresses: readonly string[], turn: number): string[] {
  const from = addresses.length === 0 ? 0 : turn % addresses.length;
  return [...addresses.slice(from), ...addresses.slice(0, from)];
}
