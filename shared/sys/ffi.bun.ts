// FFI on Bun. A pointer is a plain number, so an offset into a buffer is an addition.
// Invariant: receiveAt/sendAt allocate nothing.

import { createRequire } from "node:module";
import type * as BunFfi from "bun:ffi";
import {
  type ForeignBackend,
  type ForeignFunction,
  type ForeignSignature,
  type ForeignType,
  MSG_DONTWAIT,
  MSG_NOSIGNAL,
  type Pointer,
  type SocketIo,
  type SocketIoLibc,
} from "./foreign.ts";
import type { NativeBuffer } from "./native_buffer.ts";

function asPointer(address: number): Pointer {
  return address as unknown as Pointer;
}

function asAddress(pointer: Pointer): number {
  return pointer as unknown as number;
}

const HALF = 0x1_0000_0000;

function halves(address: number): [number, number] {
  return [address | 0, Math.floor(address / HALF) | 0];
}

function socketIo(libc: SocketIoLibc, errno: Int32Array): SocketIo {
  const { recv, send } = libc;
  return {
    receiveAt(fd: number, buffer: NativeBuffer, offset: number, length: number): number {
      const address = asAddress(buffer.pointer) + offset;
      const count = recv(fd, asPointer(address), length, MSG_DONTWAIT);
      return count >= 0 ? count : -errno[0]!;
    },
    sendAt(fd: number, buffer: NativeBuffer, offset: number, length: number): number {
      const address = asAddress(buffer.pointer) + offset;
      const count = send(fd, asPointer(address), length, MSG_DONTWAIT | MSG_NOSIGNAL);
      return count >= 0 ? count : -errno[0]!;
    },
  };
}

/** Kept from the garbage collector: C knows their addresses. */
const callbacks: unknown[] = [];

type BunType = "i32" | "i64" | "ptr";

function bunSignature({ parameters, result }: ForeignSignature) {
  const bunType = (type: ForeignType): BunType => type === "pointer" ? "ptr" : type;
  return { args: parameters.map(bunType), returns: bunType(result) };
}

export function makeBunBackend(): ForeignBackend {
  // Not an import: this file is loaded on every runtime, and only Bun has the module. Nor an awaited
  // import(): a module that waits while it loads makes all that import it wait.
  const { CString, dlopen, JSCallback, ptr, toArrayBuffer } = createRequire(import.meta.url)(
    "bun:ffi",
  ) as typeof BunFfi;
  return {
    open(
      library: string,
      symbols: Readonly<Record<string, ForeignSignature>>,
    ): Record<string, ForeignFunction> {
      const table: Record<string, ReturnType<typeof bunSignature>> = {};
      for (const [name, signature] of Object.entries(symbols)) {
        table[name] = bunSignature(signature);
      }
      return dlopen(library, table).symbols as unknown as Record<string, ForeignFunction>;
    },
    pointerOf(bytes: Uint8Array): Pointer {
      return asPointer(ptr(bytes));
    },
    pointerAt(buffer: NativeBuffer, offset: number): Pointer {
      return asPointer(asAddress(buffer.pointer) + offset);
    },
    textAt(pointer: Pointer): string {
      return new CString(asAddress(pointer) as never).toString();
    },
    callback(signature: ForeignSignature, body: (...values: never[]) => number): Pointer {
      const callback = new JSCallback(body, bunSignature(signature));
      callbacks.push(callback);
      return asPointer(callback.ptr as number);
    },
    addressOf(bytes: Uint8Array): [number, number] {
      return halves(ptr(bytes) as number);
    },
    halvesOf(pointer: Pointer | null): [number, number] {
      return halves(pointer === null ? 0 : asAddress(pointer));
    },
    pointerFrom(low: number, high: number): Pointer | null {
      const address = (high >>> 0) * HALF + (low >>> 0);
      return address === 0 ? null : asPointer(address);
    },
    int32At(pointer: Pointer): Int32Array {
      return new Int32Array(toArrayBuffer(asAddress(pointer) as never, 0, 4));
    },
    socketIo,
  };
}
