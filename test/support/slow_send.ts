// Sends bytes in pieces, as TCP may deliver them: cut at given places or one byte at a time.
// The pauses make it likely, not certain, that the other side reads the pieces apart.

import type { Socket } from "node:net";

const pause = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

function write(socket: Socket, bytes: Uint8Array): Promise<void> {
  return new Promise((resolve, reject) => {
    socket.write(bytes, (error) => error ? reject(error) : resolve());
  });
}

/** Writes `bytes` in pieces cut before each offset of `cuts`. */
export async function sendCut(
  socket: Socket,
  bytes: Uint8Array,
  cuts: readonly number[],
  pauseMs = 1,
): Promise<void> {
  let from = 0;
  for (const to of [...cuts, bytes.length]) {
    if (to <= from) continue;
    if (from > 0) await pause(pauseMs);
    await write(socket, bytes.subarray(from, to));
    from = to;
  }
}

/** Writes one byte at a time. */
export async function sendByteByByte(
  socket: Socket,
  bytes: Uint8Array,
  pauseMs = 0,
): Promise<void> {
  await sendCut(socket, bytes, Array.from(bytes, (_, at) => at), pauseMs);
}
