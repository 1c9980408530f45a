// Networks of addresses, as access rules and group rules name them: text to bytes, and which addresses are in one.
// IPv4 addresses that are mapped into IPv6 count as IPv4. Pure.

export interface Network {
  /** 4 or 16 */
  readonly bytes: readonly number[];
  readonly bits: number;
}

const IPV4 = /^(?:(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])(?:\.(?!$)|$)){4}$/;

/** The bytes of a numeric address: 4, or 16; of an IPv4 address that is mapped into IPv6 4. */
export function addressBytes(text: string): readonly number[] | null {
  if (IPV4.test(text)) return text.split(".").map(Number);
  const [address = ""] = text.split("%");
  // The URL parser checks it, and writes out what it stands for.
  if (!/^[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*$/.test(address)) return null;
  const host = URL.parse(`http://[${address}]/`)?.hostname.slice(1, -1);
  if (host === undefined) return null;
  const [head = "", tail] = host.split("::");
  const groups = (part: string | undefined) =>
    (part ?? "").split(":").filter((group) => group !== "").map((group) => parseInt(group, 16));
  const left = groups(head);
  const right = groups(tail);
  const zeros = new Array<number>(8 - left.length - right.length).fill(0);
  const bytes = [...left, ...zeros, ...right].flatMap((group) => [group >> 8, group & 0xff]);
  return isMapped(bytes) ? bytes.slice(12) : bytes;
}

/** Whether a text is a numeric address or could be the name of a host, which only the network knows. */
export function mayBeHost(text: string): boolean {
  if (text.includes(":")) return addressBytes(text) !== null;
  // Like the system's resolver it takes what ends in a number for an address, which it has to be: 127.1 is one.
  return /^[^\s/?#@%\\]+$/.test(text) && URL.canParse(`http://${text}/`);
}

function isMapped(bytes: readonly number[]): boolean {
  return bytes.slice(0, 10).every((byte) => byte === 0) && bytes[10] === 0xff && bytes[11] === 0xff;
}

/** "10.0.0.0/8", or an address alone, which is a network of itself; or what is wrong with it, as it follows the text. */
export function parseNetwork(text: string): Network | string {
  const [host = "", length, ...more] = text.split("/");
  const bytes = addressBytes(host);
  if (bytes === null || more.length > 0) return "is no address";
  if (length === undefined) return { bytes, bits: bytes.length * 8 };
  // Written as IPv6, it counts as such.
  const isMappedHere = bytes.length === 4 && host.includes(":");
  const least = isMappedHere ? 96 : 0;
  const most = isMappedHere ? 128 : bytes.length * 8;
  const bits = /^[0-9]{1,3}$/.test(length) ? Number(length) : Infinity;
  if (bits > most || bits < least) {
    return `has bits behind the address that are not from ${least} to ${most}`;
  }
  return { bytes, bits: bits - least };
}

export function isInNetwork({ bytes, bits }: Network, address: readonly number[]): boolean {
  if (bytes.length !== address.length) return false;
  return bytes.every((byte, index) => {
    const counted = Math.min(8, Math.max(0, bits - index * 8));
    const mask = (0xff00 >> counted) & 0xff;
    return (byte & mask) === ((address[index] as number) & mask);
  });
}

/** Whether every address of `inner` is in `outer`. */
export function contains(outer: Network, inner: Network): boolean {
  return outer.bits <= inner.bits && isInNetwork(outer, inner.bytes);
}
