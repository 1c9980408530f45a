// FFI on Bun. A pointer is a plain number, so an offset into a buffer is an addition.
// Invariant: receiveAt/sendAt allocate nothing.

import { createRequire } from "node:module";
import type * as BunFfi from "bun:ffi";
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

function asPointer(address: number): Pointer {
  return address as unknown as Pointer;
}

function asAddress(pointer: Pointer): number {
  return pointer as unknown as number;
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

export function makeBunBackend(): ForeignBackend {
  // Not an import: this file is loaded on every runtime, and only Bun has the module. Nor an awaited
  // import(): a module that waits while it loads makes all that import it wait.
  const { dlopen, ptr, toArrayBuffer } = createRequire(import.meta.url)("bun:ffi") as typeof BunFfi;
  return {
    open(
      library: string,
      symbols: Readonly<Record<string, ForeignSignature>>,
    ): Record<string, ForeignFunction> {
      const table: Record<string, { args: ("i32" | "ptr")[]; returns: "i32" | "ptr" }> = {};
      for (const [name, { parameters, result }] of Object.entries(symbols)) {
        table[name] = {
          args: parameters.map((type) => type === "pointer" ? "ptr" : "i32"),
          returns: result === "pointer" ? "ptr" : "i32",
        };
      }
      return dlopen(library, table).symbols as unknown as Record<string, ForeignFunction>;
    },
    pointerOf(bytes: Uint8Array): Pointer {
      return asPointer(ptr(bytes));
    },
    addressOf(bytes: Uint8Array): [number, number] {
      const address = ptr(bytes) as number;
      return [address | 0, Math.floor(address / 0x1_0000_0000) | 0];
    },
    int32At(pointer: Pointer): Int32Array {
      return new Int32Array(toArrayBuffer(asAddress(pointer) as never, 0, 4));
    },
    socketIo,
  };
}
