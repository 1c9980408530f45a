// Reads files for the configuration: the only code of this folder that touches the disk. Bounded, so
// that a wrong path (a device, a dump) is an error and not the end of the process.

import { closeSync, openSync, readSync } from "node:fs";
import { Buffer } from "node:buffer";
import { isAbsolute } from "node:path";
import process from "node:process";

/** Reads a whole file or throws an Error; text is decoded from bytes as UTF-8. */
export type ReadFile = (path: string) => string | Uint8Array;

const MAX_FILE_BYTES = 64 * 1024 * 1024;
const CHUNK_BYTES = 256 * 1024;

const decoder = new TextDecoder("utf-8");

export function readFromDisk(path: string): Uint8Array {
  const fd = openSync(path, "r");
  try {
    const chunks: Uint8Array[] = [];
    let total = 0;
    for (;;) {
      const chunk = new Uint8Array(CHUNK_BYTES);
      const length = readSync(fd, chunk, 0, CHUNK_BYTES, null);
      if (length === 0) return Buffer.concat(chunks);
      total += length;
      if (total > MAX_FILE_BYTES) {
        throw new Error(`the file is larger than ${MAX_FILE_BYTES} bytes`);
      }
      chunks.push(chunk.subarray(0, length));
    }
  } finally {
    closeSync(fd);
  }
}

/** Text of a file, without a byte order mark; bytes that are not UTF-8 become U+FFFD. */
export function readText(
  path: string,
  readFile: ReadFile,
): { readonly text: string } | { readonly failure: string } {
  let content: string | Uint8Array;
  try {
    content = readFile(path);
  } catch (error) {
    // The working directory counts, not that of the file which names this one: say where it was sought.
    const where = readFile === readFromDisk && !isAbsolute(path) ? ` (in "${process.cwd()}")` : "";
    return { failure: failureText(error) + where };
  }
  const text = typeof content === "string" ? content : decoder.decode(content);
  return { text: text.startsWith("\uFEFF") ? text.slice(1) : text };
}

const REASONS: Readonly<Record<string, string>> = {
  ENOENT: "no such file",
  EACCES: "permission denied",
  EPERM: "permission denied",
  EISDIR: "it is a directory",
  ENOTDIR: "a part of the path is not a directory",
  EMFILE: "too many open files",
  ELOOP: "too many symbolic links",
};

/** The runtimes word the same failure differently; the code is the same on all. */
export function failureText(error: unknown): string {
  const code = (error as { code?: unknown }).code;
  if (typeof code === "string" && REASONS[code] !== undefined) return REASONS[code];
  return error instanceof Error ? error.message : String(error);
}
