// Linux-PAM by FFI: whether the system takes a password for a user's. A call blocks, for as long as the modules like, so it
// belongs on a thread of its own. The library is opened when the first one is asked for.
// PAM asks for the password by calling back from inside the call, on the same thread. What it is answered lies in
// memory of malloc(), which PAM frees.
// Invariants: one call at a time for each thread; nothing is thrown through C; memory that C is given is reachable from
// the session until it is over (an address keeps nothing from the garbage collector); it is wiped then.

import { foreign } from "./ffi.ts";
import type { ForeignSignature, ForeignType, Pointer } from "./foreign.ts";
import { NativeBuffer } from "./native_buffer.ts";

export interface PamQuestion {
  /** the file of that name says which modules are asked */
  readonly service: string;
  /** where that file is; "" = where the system has them */
  readonly folder: string;
  readonly user: string;
  readonly password: string;
  /** where the user comes from */
  readonly host: string;
}

export interface PamAnswer {
  /** why not, as PgBouncer says it; null = the password is right, and the account may be used */
  readonly refusal: string | null;
  /** the pause that the modules want before anybody is told of a failure */
  readonly delayMs: number;
  /** errors that the modules have reported */
  readonly errors: readonly string[];
}

interface Pam {
  pam_acct_mgmt(handle: Pointer, flags: number): number;
  pam_authenticate(handle: Pointer, flags: number): number;
  pam_end(handle: Pointer, status: number): number;
  pam_set_item(handle: Pointer, item: number, value: Pointer | null): number;
  pam_start(service: Pointer, user: Pointer, conversation: Pointer, handle: Pointer): number;
  pam_strerror(handle: Pointer | null, status: number): Pointer | null;
}

/** Of version 1.4 and later. */
interface PamFolders {
  pam_start_confdir(
    service: Pointer,
    user: Pointer,
    conversation: Pointer,
    folder: Pointer,
    handle: Pointer,
  ): number;
}

interface Memory {
  calloc(count: number, size: number): Pointer | null;
  memcpy(to: Pointer, from: Pointer, bytes: number): Pointer;
}

const PAM_SUCCESS = 0;
const PAM_BUF_ERR = 5;
const PAM_CONV_ERR = 19;
const PAM_RHOST = 4;
const PAM_FAIL_DELAY = 10;
const PAM_SILENT = 0x8000;
const PAM_PROMPT_ECHO_OFF = 1;
const PAM_ERROR_MSG = 3;
const POINTER_BYTES = 8;
/** struct pam_message: int style, const char *text; struct pam_response: char *text, int code. */
const PAIR_BYTES = 16;
const MESSAGES_MAX = 32;
const ERRORS_MAX = 10;

function signature(result: "i32" | "pointer", ...parameters: ForeignType[]): ForeignSignature {
  return { parameters, result };
}

const pamSignatures: Readonly<Record<keyof Pam, ForeignSignature>> = {
  pam_acct_mgmt: signature("i32", "pointer", "i32"),
  pam_authenticate: signature("i32", "pointer", "i32"),
  pam_end: signature("i32", "pointer", "i32"),
  pam_set_item: signature("i32", "pointer", "i32", "pointer"),
  pam_start: signature("i32", "pointer", "pointer", "pointer", "pointer"),
  pam_strerror: signature("pointer", "pointer", "i32"),
};

const folderSignatures: Readonly<Record<keyof PamFolders, ForeignSignature>> = {
  pam_start_confdir: signature("i32", "pointer", "pointer", "pointer", "pointer", "pointer"),
};

const memorySignatures: Readonly<Record<keyof Memory, ForeignSignature>> = {
  calloc: signature("pointer", "i64", "i64"),
  memcpy: signature("pointer", "pointer", "pointer", "i64"),
};

const LIBRARY = "libpam.so.0";

interface Library {
  readonly pam: Pam;
  /** null: it is too old for that. */
  readonly folders: PamFolders | null;
  /** Of the C library that PAM itself frees with. */
  readonly memory: Memory;
}

let opened: Library | null = null;

/** Throws when there is no PAM. */
function openLibrary(): Library {
  if (opened !== null) return opened;
  const open = (signatures: Readonly<Record<string, ForeignSignature>>): unknown =>
    foreign.open(LIBRARY, signatures);
  let folders: PamFolders | null = null;
  try {
    folders = open(folderSignatures) as PamFolders;
  } catch {
    // Either way the next one tells.
  }
  try {
    opened = { pam: open(pamSignatures) as Pam, memory: open(memorySignatures) as Memory, folders };
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new Error(`load PAM: ${reason}; wanted Linux-PAM (${LIBRARY})`);
  }
  return opened;
}

/** What is missing for PAM on this system; null = nothing. `withFolder`: for service files of one's own. */
export function pamProblem(withFolder: boolean): string | null {
  try {
    const { folders } = openLibrary();
    const isOld = withFolder && folders === null;
    return isOld ? "load PAM: this Linux-PAM takes no folder, wanted 1.4 or newer" : null;
  } catch (error) {
    return (error as Error).message;
  }
}

let current: PamSession | null = null;

/** Asks PAM; blocks until its modules are done. Throws when there is no PAM. */
export function askPam(question: PamQuestion): PamAnswer {
  const problem = pamProblem(question.folder !== "");
  if (problem !== null) throw new Error(problem);
  if (current !== null) throw new Error("ask PAM: it is being asked on this thread");
  const session = new PamSession(openLibrary(), question);
  current = session;
  try {
    return session.ask();
  } finally {
    session.wipe();
    current = null;
  }
}

class PamSession {
  readonly #library: Library;
  readonly #question: PamQuestion;
  readonly #buffers: NativeBuffer[] = [];
  readonly #password: NativeBuffer;
  readonly #errors: string[] = [];
  #delayMs = 0;

  constructor(library: Library, question: PamQuestion) {
    this.#library = library;
    this.#question = question;
    this.#password = this.#textBuffer(question.password);
  }

  wipe(): void {
    for (const { bytes } of this.#buffers) bytes.fill(0);
  }

  #buffer(bytes: number): NativeBuffer {
    const buffer = new NativeBuffer(bytes);
    this.#buffers.push(buffer);
    return buffer;
  }

  #textBuffer(text: string): NativeBuffer {
    const bytes = new TextEncoder().encode(text);
    if (bytes.includes(0)) throw new Error("ask PAM: a text holds a NUL character");
    const buffer = this.#buffer(bytes.length + 1);
    buffer.bytes.set(bytes);
    return buffer;
  }

  ask(): PamAnswer {
    const { pam } = this.#library;
    const cell = this.#buffer(POINTER_BYTES);
    const started = this.#start(cell);
    const handle = pointerIn(cell.view, 0);
    if (started !== PAM_SUCCESS || handle === null) {
      return this.#answer(`pam_start() failed: ${this.#text(null, started)}`);
    }
    const steps: readonly [string, () => number][] = [
      ["pam_set_item()", () => this.#setItems(handle)],
      ["pam_authenticate()", () => pam.pam_authenticate(handle, PAM_SILENT)],
      // Whether the account is expired, has to do with hours, and so on.
      ["pam_acct_mgmt()", () => pam.pam_acct_mgmt(handle, PAM_SILENT)],
    ];
    let status = PAM_SUCCESS;
    let refusal: string | null = null;
    for (const [name, step] of steps) {
      status = step();
      if (status === PAM_SUCCESS) continue;
      refusal = `${name} failed: ${this.#text(handle, status)}`;
      break;
    }
    pam.pam_end(handle, status);
    return this.#answer(refusal);
  }

  #answer(refusal: string | null): PamAnswer {
    return { refusal, delayMs: refusal === null ? 0 : this.#delayMs, errors: this.#errors };
  }

  #start(handle: NativeBuffer): number {
    const { service, folder, user } = this.#question;
    const conversation = this.#buffer(2 * POINTER_BYTES);
    setPointer(conversation.view, 0, callbacks().converse);
    const own = { service: this.#textBuffer(service), user: this.#textBuffer(user) };
    if (folder === "") {
      return this.#library.pam.pam_start(
        own.service.pointer,
        own.user.pointer,
        conversation.pointer,
        handle.pointer,
      );
    }
    return (this.#library.folders as PamFolders).pam_start_confdir(
      own.service.pointer,
      own.user.pointer,
      conversation.pointer,
      this.#textBuffer(folder).pointer,
      handle.pointer,
    );
  }

  #setItems(handle: Pointer): number {
    const { pam } = this.#library;
    const host = this.#textBuffer(this.#question.host);
    const status = pam.pam_set_item(handle, PAM_RHOST, host.pointer);
    if (status !== PAM_SUCCESS) return status;
    // Else it would sleep here, and all others would wait for that as well.
    return pam.pam_set_item(handle, PAM_FAIL_DELAY, callbacks().delay);
  }

  #text(handle: Pointer | null, status: number): string {
    const text = this.#library.pam.pam_strerror(handle, status);
    return text === null ? `error ${status}` : foreign.textAt(text);
  }

  delay(microseconds: number): void {
    this.#delayMs = Math.max(this.#delayMs, (microseconds >>> 0) / 1000);
  }

  /** Answers each prompt for a secret with the password. */
  converse(count: number, messages: Pointer, answers: Pointer): number {
    if (count < 1 || count > MESSAGES_MAX) return PAM_CONV_ERR;
    const list = this.#copy(messages, count * POINTER_BYTES);
    const replies = this.#buffer(count * PAIR_BYTES);
    for (let i = 0; i < count; i++) {
      const at = pointerIn(list, i * POINTER_BYTES);
      if (at === null) return PAM_CONV_ERR;
      const message = this.#copy(at, PAIR_BYTES);
      const style = message.getInt32(0, true);
      if (style === PAM_PROMPT_ECHO_OFF) {
        const text = this.#inMalloc(this.#password.bytes);
        if (text === null) return PAM_BUF_ERR;
        setPointer(replies.view, i * PAIR_BYTES, text);
      } else if (style === PAM_ERROR_MSG && this.#errors.length < ERRORS_MAX) {
        const text = pointerIn(message, POINTER_BYTES);
        if (text !== null) this.#errors.push(foreign.textAt(text));
      }
    }
    const given = this.#inMalloc(replies.bytes);
    if (given === null) return PAM_BUF_ERR;
    const cell = this.#buffer(POINTER_BYTES);
    setPointer(cell.view, 0, given);
    this.#library.memory.memcpy(answers, cell.pointer, POINTER_BYTES);
    return PAM_SUCCESS;
  }

  #copy(from: Pointer, bytes: number): DataView {
    const copy = this.#buffer(bytes);
    this.#library.memory.memcpy(copy.pointer, from, bytes);
    return copy.view;
  }

  #inMalloc(bytes: Uint8Array): Pointer | null {
    const { calloc, memcpy } = this.#library.memory;
    const memory = calloc(1, bytes.length);
    if (memory !== null) memcpy(memory, foreign.pointerOf(bytes), bytes.length);
    return memory;
  }
}

let made: { readonly converse: Pointer; readonly delay: Pointer } | null = null;

/** What C calls: one of each for a thread, for whoever is being asked for. */
function callbacks(): NonNullable<typeof made> {
  made ??= {
    converse: foreign.callback(
      { parameters: ["i32", "pointer", "pointer", "pointer"], result: "i32" },
      (count: number, messages: Pointer, answers: Pointer): number => {
        try {
          return current?.converse(count, messages, answers) ?? PAM_CONV_ERR;
        } catch {
          return PAM_CONV_ERR;
        }
      },
    ),
    delay: foreign.callback(
      { parameters: ["i32", "i32", "pointer"], result: "i32" },
      (_status: number, microseconds: number): number => {
        current?.delay(microseconds);
        return 0;
      },
    ),
  };
  return made;
}

function pointerIn(view: DataView, at: number): Pointer | null {
  return foreign.pointerFrom(view.getInt32(at, true), view.getInt32(at + 4, true));
}

function setPointer(view: DataView, at: number, pointer: Pointer): void {
  const [low, high] = foreign.halvesOf(pointer);
  view.setInt32(at, low, true);
  view.setInt32(at + 4, high, true);
}
