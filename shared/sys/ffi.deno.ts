// FFI on Deno. A pointer is an object and making one allocates, so an offset into a buffer goes
// through one iovec in native memory, whose iov_base is written as two 32-bit halves: readv() to
// receive (15 ns less than recvmsg()), sendmsg() to send, since writev() may raise SIGPIPE. A
// buffer's anchor has a pointer object of its own and takes the plain calls, which are 50 ns cheaper.
// Invariants: receiveAt/sendAt allocate nothing; the iovec belongs to one thread and means nothing
// between calls; little-endian 64-bit only, where glibc's and musl's layouts agree.

import {
  type ForeignBackend,
  type ForeignFunction,
  type ForeignSignature,
  MSG_DONTWAIT,
  MSG_NOSIGNAL,
  type Pointer,
  type SocketIo,
  type SocketIoLibc,
} from "./foreign.ts";
import type { NativeBuffer } from "./native_buffer.ts";

// struct msghdr, in 32-bit words: msg_name 0-1, msg_namelen 2, msg_iov 4-5, msg_iovlen 6-7,
// msg_control 8-9, msg_controllen 10-11, msg_flags 12. struct iovec: iov_base 0-1, iov_len 2-3.
const MSGHDR_WORDS = 14;
const MSG_IOV_WORD = 4;
const MSG_IOVLEN_WORD = 6;
/** Offsets of one buffer whose pointers are kept: messages begin at few. */
const POINTERS_MAX = 256;

/** Kept from the garbage collector: C knows their addresses. */
const callbacks: unknown[] = [];

function socketIo(libc: SocketIoLibc, errno: Int32Array): SocketIo {
  const { recv, send, readv, sendmsg } = libc;
  const vector = new Int32Array(new ArrayBuffer(16));
  const header = new Int32Array(new ArrayBuffer(4 * MSGHDR_WORDS));
  const [low, high] = addressOf(new Uint8Array(vector.buffer));
  header[MSG_IOV_WORD] = low;
  header[MSG_IOV_WORD + 1] = high;
  header[MSG_IOVLEN_WORD] = 1;
  const vectorPointer = pointerOf(new Uint8Array(vector.buffer));
  const message = pointerOf(new Uint8Array(header.buffer));
  return {
    receiveAt(fd: number, buffer: NativeBuffer, offset: number, length: number): number {
      let count: number;
      if (offset === buffer.anchor) {
        count = recv(fd, buffer.anchorPointer, length, MSG_DONTWAIT);
      } else {
        vector[0] = (buffer.addressLow + offset) | 0;
        vector[1] = buffer.addressHigh;
        vector[2] = length;
        count = readv(fd, vectorPointer, 1);
      }
      return count >= 0 ? count : -errno[0]!;
    },
    sendAt(fd: number, buffer: NativeBuffer, offset: number, length: number): number {
      let count: number;
      if (offset === buffer.anchor) {
        count = send(fd, buffer.anchorPointer, length, MSG_DONTWAIT | MSG_NOSIGNAL);
      } else {
        vector[0] = (buffer.addressLow + offset) | 0;
        vector[1] = buffer.addressHigh;
        vector[2] = length;
        count = sendmsg(fd, message, MSG_DONTWAIT | MSG_NOSIGNAL);
      }
      return count >= 0 ? count : -errno[0]!;
    },
  };
}

function pointerOf(bytes: Uint8Array): Pointer {
  return Deno.UnsafePointer.of(bytes as Uint8Array<ArrayBuffer>) as unknown as Pointer;
}

function pointerAt(buffer: NativeBuffer, offset: number): Pointer {
  if (offset === buffer.anchor) return buffer.anchorPointer;
  if (offset === 0) return buffer.pointer;
  const known = buffer.pointers.get(offset);
  if (known !== undefined) return known;
  const pointer = pointerOf(buffer.bytes.subarray(offset));
  // Not the first ones for ever: what is frequent comes back at once.
  if (buffer.pointers.size >= POINTERS_MAX) buffer.pointers.clear();
  buffer.pointers.set(offset, pointer);
  return pointer;
}

function addressOf(bytes: Uint8Array): [number, number] {
  return halvesOf(pointerOf(bytes));
}

function halvesOf(pointer: Pointer | null): [number, number] {
  const address = Deno.UnsafePointer.value(pointer as unknown as Deno.PointerValue);
  return [Number(BigInt.asIntN(32, address)), Number(BigInt.asIntN(32, address >> 32n))];
}

function pointerFrom(low: number, high: number): Pointer | null {
  const address = (BigInt.asUintN(32, BigInt(high)) << 32n) | BigInt.asUintN(32, BigInt(low));
  return Deno.UnsafePointer.create(address) as unknown as Pointer | null;
}

export function makeDenoBackend(): ForeignBackend {
  return {
    open(
      library: string,
      symbols: Readonly<Record<string, ForeignSignature>>,
    ): Record<string, ForeignFunction> {
      return Deno.dlopen(library, symbols).symbols as unknown as Record<string, ForeignFunction>;
    },
    pointerOf,
    pointerAt,
    textAt(pointer: Pointer): string {
      return Deno.UnsafePointerView.getCString(pointer as unknown as Deno.PointerObject);
    },
    callback(signature: ForeignSignature, body: (...values: never[]) => number): Pointer {
      const callback = new Deno.UnsafeCallback(signature, body as never);
      callbacks.push(callback);
      return callback.pointer as unknown as Pointer;
    },
    addressOf,
    halvesOf,
    pointerFrom,
    int32At(pointer: Pointer): Int32Array {
      const memory = Deno.UnsafePointerView.getArrayBuffer(
        pointer as unknown as Deno.PointerObject,
        4,
      );
      return new Int32Array(memory);
    },
    socketIo,
  };
}
