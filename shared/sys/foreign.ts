// What a runtime's foreign function interface must offer here: the contract of the back-ends
// (ffi.bun.ts, ffi.deno.ts). Types, and the constants that the back-ends share; nothing runs.
// Apart from ffi.ts, which chooses a back-end and so imports both: they must not import it back.

import type { NativeBuffer } from "./native_buffer.ts";

/** An address. A number on one runtime, an object on the other: only back-ends look inside. */
export interface Pointer {
  readonly kind: "pointer";
}

/**
 * i32 also stands for sizes and ssize_t: 64-bit arguments double the cost of a call on Deno. i64 is for
 * cold calls whose long or uint64_t must have no stray upper half; it is no result.
 */
export type ForeignType = "i32" | "i64" | "pointer";
export interface ForeignSignature {
  readonly parameters: readonly ForeignType[];
  readonly result: "i32" | "pointer";
}
export type ForeignFunction = (...values: (number | Pointer | null)[]) => number | Pointer | null;

/** The calls of the hot path, bound to a libc; both return a count of bytes or -errno. */
export interface SocketIo {
  /** recv(fd, buffer + offset, length) on a non-blocking socket; 0 is end of file. */
  receiveAt(fd: number, buffer: NativeBuffer, offset: number, length: number): number;
  /** send(fd, buffer + offset, length, MSG_DONTWAIT | MSG_NOSIGNAL). */
  sendAt(fd: number, buffer: NativeBuffer, offset: number, length: number): number;
}

export interface SocketIoLibc {
  recv(fd: number, buffer: Pointer, length: number, flags: number): number;
  send(fd: number, buffer: Pointer, length: number, flags: number): number;
  sendmsg(fd: number, message: Pointer, flags: number): number;
  readv(fd: number, vector: Pointer, count: number): number;
}

export interface ForeignBackend {
  /** Opens a shared library; throws when it, or one of the symbols, is not there. */
  open(
    library: string,
    symbols: Readonly<Record<string, ForeignSignature>>,
  ): Record<string, ForeignFunction>;
  /** The address of memory that does not move; the caller keeps `bytes` alive. */
  pointerOf(bytes: Uint8Array): Pointer;
  /** The address of a buffer's byte; allocates only for offsets that were not asked for before. */
  pointerAt(buffer: NativeBuffer, offset: number): Pointer;
  /** A C string, decoded as UTF-8. */
  textAt(pointer: Pointer): string;
  /**
   * A function for C to call, from inside a call on this thread. It is never released: for the few that
   * live as long as the thread.
   */
  callback(signature: ForeignSignature, body: (...values: never[]) => number): Pointer;
  /** The same address as [low, high] halves, each a signed 32-bit number. */
  addressOf(bytes: Uint8Array): [low: number, high: number];
  /** The halves of a pointer, and the pointer that they make; null is (0, 0). */
  halvesOf(pointer: Pointer | null): [low: number, high: number];
  pointerFrom(low: number, high: number): Pointer | null;
  /** Foreign memory as one signed 32-bit number, such as errno. */
  int32At(pointer: Pointer): Int32Array;
  /** `errno` is the calling thread's, as int32At() gives it. */
  socketIo(libc: SocketIoLibc, errno: Int32Array): SocketIo;
}

export const MSG_DONTWAIT = 0x40;
export const MSG_NOSIGNAL = 0x4000;
