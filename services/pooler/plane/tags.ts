// The command tags that tell the pooler what became of a session. Pure; nothing is allocated.

export const Tag = {
  other: 0,
  alter: 1,
  deallocateAll: 2,
  discardAll: 3,
  drop: 4,
  listen: 5,
  prepare: 6,
  reset: 7,
  set: 8,
  unlisten: 9,
  /** SELECT of one row. */
  oneRow: 10,
  /** To a savepoint as well. */
  rollback: 11,
  /** It may have replaced one. */
  createView: 12,
  /** Or it is prepared: what it has set holds. */
  commit: 13,
  savepoint: 14,
  release: 15,
  deallocate: 16,
} as const;
export type Tag = typeof Tag[keyof typeof Tag];

const encoder = new TextEncoder();
const alter = encoder.encode("ALTER ");
const commit = encoder.encode("COMMIT\0");
const createView = encoder.encode("CREATE VIEW\0");
const deallocate = encoder.encode("DEALLOCATE\0");
const deallocateAll = encoder.encode("DEALLOCATE ALL\0");
const discardAll = encoder.encode("DISCARD ALL\0");
const drop = encoder.encode("DROP ");
const listen = encoder.encode("LISTEN\0");
const prepare = encoder.encode("PREPARE\0");
const prepareTransaction = encoder.encode("PREPARE TRANSACTION\0");
const release = encoder.encode("RELEASE\0");
const reset = encoder.encode("RESET\0");
const rollback = encoder.encode("ROLLBACK\0");
const savepoint = encoder.encode("SAVEPOINT\0");
const set = encoder.encode("SET\0");
const unlisten = encoder.encode("UNLISTEN\0");
const oneRow = encoder.encode("SELECT 1\0");

/** The tag in the body [at, end) of a CommandComplete. */
export function tagOf(bytes: Uint8Array, at: number, end: number): Tag {
  switch (bytes[at]) {
    case 0x41: // A
      return startsWith(bytes, at, end, alter) ? Tag.alter : Tag.other;
    case 0x43: // C
      if (bytes[at + 1] === 0x4f) {
        return startsWith(bytes, at, end, commit) ? Tag.commit : Tag.other;
      }
      return startsWith(bytes, at, end, createView) ? Tag.createView : Tag.other;
    case 0x44: // D
      if (startsWith(bytes, at, end, drop)) return Tag.drop;
      if (startsWith(bytes, at, end, discardAll)) return Tag.discardAll;
      if (startsWith(bytes, at, end, deallocateAll)) return Tag.deallocateAll;
      return startsWith(bytes, at, end, deallocate) ? Tag.deallocate : Tag.other;
    case 0x4c: // L
      return startsWith(bytes, at, end, listen) ? Tag.listen : Tag.other;
    case 0x50: // P
      if (startsWith(bytes, at, end, prepareTransaction)) return Tag.commit;
      return startsWith(bytes, at, end, prepare) ? Tag.prepare : Tag.other;
    case 0x52: // R
      if (startsWith(bytes, at, end, rollback)) return Tag.rollback;
      if (startsWith(bytes, at, end, reset)) return Tag.reset;
      return startsWith(bytes, at, end, release) ? Tag.release : Tag.other;
    case 0x53: // S
      if (bytes[at + 1] === 0x41) {
        return startsWith(bytes, at, end, savepoint) ? Tag.savepoint : Tag.other;
      }
      if (startsWith(bytes, at, end, set)) return Tag.set;
      return startsWith(bytes, at, end, oneRow) ? Tag.oneRow : Tag.other;
    case 0x55: // U
      return startsWith(bytes, at, end, unlisten) ? Tag.unlisten : Tag.other;
  }
  return Tag.other;
}

/** Whether a command with this tag has dropped prepared statements. */
export function dropsStatements(tag: Tag): boolean {
  return tag === Tag.deallocate || tag === Tag.deallocateAll || tag === Tag.discardAll;
}

export function startsWith(
  bytes: Uint8Array,
  at: number,
  end: number,
  wanted: Uint8Array,
): boolean {
  if (end - at < wanted.length) return false;
  for (let i = 0; i < wanted.length; i++) if (bytes[at + i] !== wanted[i]) return false;
  return true;
}
