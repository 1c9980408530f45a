// What a kind of payload is. Types only; the codec turns messages of a kind into bytes and back.

/** Fields of a payload as they are on the wire, before or after MessagePack. */
export type Fields = Readonly<Record<string, unknown>>;

/** A kind of payload. The wire form is a map with `v`, the version, beside the message's fields. */
export interface Payload<M> {
  readonly name: string;
  /** Raised when old readers would misread the payload; they drop what is newer than they know. */
  readonly version: number;
  /** The message in a clean copy, or null when a field is missing, of another type or out of range. */
  readonly check: (raw: Fields) => M | null;
  /** Of the payload; default `maxPayloadBytes`. */
  readonly maxBytes?: number;
  /** For a wire form that is not the message itself, such as rows without the names of columns. */
  readonly wire?: {
    pack(message: M): Fields;
    /** Something for `check`, of whatever came; never throws, and adds nothing to its size. */
    unpack(raw: Fields): Fields;
  };
}
