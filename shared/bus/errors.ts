// The errors a bus call can end with. Recognise them by `code`, never by text. Nothing secret is in
// them: no token, no credentials, no payload.

export type BusErrorCode =
  /** No broker was reached in the time allowed, at the first connect. */
  | "UNREACHABLE"
  /** The broker refused our credentials at the first connect, or does not allow us what we asked. */
  | "REFUSED"
  /** There is no connection now; it will be back by itself. */
  | "DISCONNECTED"
  /** `close()` was called. */
  | "CLOSED"
  /** Nobody answered in time. */
  | "TIMEOUT"
  /** Nobody listens on the subject of a request. */
  | "NO_RESPONDERS"
  /** The answer did not decode, or is of a newer version. */
  | "BAD_REPLY"
  /** The broker has no JetStream, which the store of a mesh needs. */
  | "NO_JETSTREAM"
  /** The broker could not do it now, such as a cluster without a majority. */
  | "UNAVAILABLE"
  /** What the caller gave is not a valid mesh, worker id, server or payload: a bug or a setting. */
  | "INVALID";

export class BusError extends Error {
  readonly code: BusErrorCode;

  constructor(code: BusErrorCode, message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.name = "BusError";
    this.code = code;
  }
}
