// Columns and rows of console results, as text or in PostgreSQL's binary formats: drivers that ask for
// binary results (Npgsql, asyncpg) get them. Pure.

import { Backend, rowDescription, writeInt16, writeInt32 } from "../../../../shared/wire/mod.ts";

const types = {
  /** text */
  s: { typeOid: 25, typeSize: -1 },
  /** int4 */
  i: { typeOid: 23, typeSize: 4 },
  /** int8 */
  q: { typeOid: 20, typeSize: 8 },
  /** numeric; whole numbers only */
  N: { typeOid: 1700, typeSize: -1 },
  /** A point in time as text. */
  T: { typeOid: 25, typeSize: -1 },
} as const;

export type ColumnType = keyof typeof types;

export interface ConsoleColumn {
  readonly name: string;
  readonly type: ColumnType;
}

/** A whole number for the types i, q and N; null is NULL. */
export type Cell = string | number | null;
export type Row = readonly Cell[];

/** 0 = text, 1 = binary; by column, or one for all; empty = text. */
export type Formats = readonly number[];

/** Columns from a list like "database s, port i". */
export function columnsOf(list: string): readonly ConsoleColumn[] {
  return list.split(",").map((entry) => {
    const [name = "", type = ""] = entry.trim().split(" ");
    if (name === "" || !(type in types)) {
      throw new Error(`read columns: "${entry}", wanted name type`);
    }
    return { name, type: type as ColumnType };
  });
}

function formatAt(formats: Formats, index: number): number {
  return formats.length === 1 ? formats[0] as number : formats[index] ?? 0;
}

/** RowDescription. */
export function describeRows(columns: readonly ConsoleColumn[], formats: Formats): Uint8Array {
  const message = rowDescription(columns.map(({ name, type }) => ({ name, ...types[type] })));
  // Each column is its name, a zero and 18 bytes, the last two of which are the format.
  let at = 7;
  columns.forEach(({ name }, index) => {
    at += name.length + 1 + 18;
    writeInt16(message, at - 2, formatAt(formats, index));
  });
  return message;
}

const encoder = new TextEncoder();
const maxInt32 = 0x7fffffff;

/** Collects the messages of one turn. */
export class Output {
  #bytes = new Uint8Array(4096);
  #size = 0;

  get size(): number {
    return this.#size;
  }

  put(message: Uint8Array): void {
    this.#reserve(message.length);
    this.#bytes.set(message, this.#size);
    this.#size += message.length;
  }

  /** DataRow. */
  putRow(columns: readonly ConsoleColumn[], formats: Formats, row: Row): void {
    if (row.length !== columns.length) {
      throw new Error(`build row: ${row.length} values, wanted ${columns.length}`);
    }
    const start = this.#size;
    this.#reserve(7);
    this.#bytes[start] = Backend.dataRow;
    writeInt16(this.#bytes, start + 5, columns.length);
    this.#size += 7;
    for (let i = 0; i < columns.length; i++) {
      const { type } = columns[i] as ConsoleColumn;
      this.#putCell(type, formatAt(formats, i), row[i] as Cell);
    }
    writeInt32(this.#bytes, start + 1, this.#size - start - 1);
  }

  /** What was collected; the next turn begins empty. */
  take(): Uint8Array {
    const bytes = this.#bytes.slice(0, this.#size);
    this.#size = 0;
    return bytes;
  }

  #putCell(type: ColumnType, format: number, cell: Cell): void {
    if (cell === null) {
      this.#putInt32(-1);
      return;
    }
    if (typeof cell === "number" && type === "i") cell = Math.min(cell, maxInt32);
    if (format === 0 || typeof cell === "string") {
      const text = String(cell);
      this.#reserve(4 + 3 * text.length);
      const { written } = encoder.encodeInto(text, this.#bytes.subarray(this.#size + 4));
      writeInt32(this.#bytes, this.#size, written);
      this.#size += 4 + written;
      return;
    }
    const bytes = binary(type, cell);
    this.#putInt32(bytes.length);
    this.put(bytes);
  }

  #putInt32(value: number): void {
    this.#reserve(4);
    writeInt32(this.#bytes, this.#size, value);
    this.#size += 4;
  }

  #reserve(more: number): void {
    if (this.#size + more <= this.#bytes.length) return;
    const larger = new Uint8Array(Math.max(2 * this.#bytes.length, this.#size + more));
    larger.set(this.#bytes.subarray(0, this.#size));
    this.#bytes = larger;
  }
}

function binary(type: ColumnType, value: number): Uint8Array {
  switch (type) {
    case "i": {
      const bytes = new Uint8Array(4);
      writeInt32(bytes, 0, value);
      return bytes;
    }
    case "q": {
      const bytes = new Uint8Array(8);
      new DataView(bytes.buffer).setBigInt64(0, BigInt(value));
      return bytes;
    }
    case "N":
      return numeric(value);
    default:
      return encoder.encode(String(value));
  }
}

/** numeric_send: groups of four decimal digits, the first one worth 10000 to the power of `weight`. */
function numeric(value: number): Uint8Array {
  const groups: number[] = [];
  for (let left = Math.abs(value); left > 0; left = Math.floor(left / 10_000)) {
    groups.unshift(left % 10_000);
  }
  const weight = Math.max(0, groups.length - 1);
  while (groups[groups.length - 1] === 0) groups.pop();
  const bytes = new Uint8Array(8 + 2 * groups.length);
  writeInt16(bytes, 0, groups.length);
  writeInt16(bytes, 2, weight);
  writeInt16(bytes, 4, value < 0 ? 0x4000 : 0);
  groups.forEach((group, index) => writeInt16(bytes, 8 + 2 * index, group));
  return bytes;
}
