// The one error class of the wire folder. It is thrown only by MessageReader (a damaged stream) and
// by the message builders (a value that the protocol cannot carry, which is the caller's bug).
// Parsers of what a peer sent never throw: they return a union that the caller must look at.

/** A frame that cannot be read, or a message that cannot be written; the SQLSTATE is 08P01. */
export class WireError extends Error {
  override readonly name = "WireError";
  readonly sqlstate = "08P01";
}

/** What a parser returns instead of throwing: the text is fit for the client, the SQLSTATE too. */
export type WireProblem = { kind: "problem"; sqlstate: string; message: string };

export function wireProblem(sqlstate: string, message: string): WireProblem {
  return { kind: "problem", sqlstate, message };
}
