// Valid bytes of every kind that the wire tests cut, mutate and feed to parsers. No assertions here.

import { Buffer } from "node:buffer";
import {
  authenticationCleartext,
  authenticationMd5,
  authenticationOk,
  authenticationSasl,
  authenticationSaslContinue,
  authenticationSaslFinal,
  Backend,
  backendKeyData,
  bindMessage,
  cancelRequest,
  closeMessage,
  commandComplete,
  copyDataMessage,
  copyDoneMessage,
  copyFailMessage,
  dataRow,
  describeMessage,
  emptyQueryResponse,
  errorResponse,
  executeMessage,
  flushMessage,
  gssRequest,
  message,
  negotiateProtocolVersion,
  noticeResponse,
  parameterStatus,
  parseMessage,
  passwordMessage,
  queryMessage,
  readyForQuery,
  rowDescription,
  saslInitialResponse,
  saslResponse,
  sslRequest,
  startupPacket,
  syncMessage,
  terminateMessage,
} from "../../shared/wire/mod.ts";

export function ascii(text: string): Uint8Array {
  return Uint8Array.from(text, (char) => char.charCodeAt(0));
}

export function hex(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString("hex");
}

export const backendSamples: readonly Uint8Array[] = [
  authenticationOk(),
  authenticationCleartext(),
  authenticationMd5(new Uint8Array([1, 0, 255, 4])),
  authenticationSasl(["SCRAM-SHA-256-PLUS", "SCRAM-SHA-256"]),
  authenticationSaslContinue(ascii("r=abcdef,s=QSXCR+Q6sek8bf92,i=4096")),
  authenticationSaslFinal(ascii("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")),
  negotiateProtocolVersion(2, ["_pq_.x", "_pq_.y"]),
  parameterStatus("TimeZone", "Europe/Rome"),
  parameterStatus("application_name", ""),
  backendKeyData(0x12345678, new Uint8Array([9, 8, 7, 6])),
  backendKeyData(7, new Uint8Array(32).fill(5)),
  readyForQuery("I"),
  readyForQuery("T"),
  readyForQuery("E"),
  errorResponse({ severity: "ERROR", code: "53300", message: "no", detail: "d", hint: "h\u00e9" }),
  noticeResponse({ severity: "NOTICE", code: "00000", message: "queued" }),
  rowDescription([
    { name: "database", typeOid: 25, typeSize: -1 },
    { name: "cl_active", typeOid: 23, typeSize: 4 },
  ]),
  dataRow(["a", null, "", "\u20ac"]),
  dataRow([]),
  commandComplete("INSERT 0 5"),
  emptyQueryResponse(),
  message(Backend.parseComplete),
  message(Backend.bindComplete),
  message(Backend.closeComplete),
  message(Backend.noData),
  message(Backend.portalSuspended),
  copyDataMessage(ascii("1\t2\n")),
  copyDoneMessage(),
];

export const frontendSamples: readonly Uint8Array[] = [
  queryMessage("SELECT 1"),
  queryMessage(""),
  parseMessage("s1", "SELECT $1::int", [23]),
  bindMessage("", "s1", ["7", null, new Uint8Array([1, 2])], [0, 1]),
  describeMessage("S", "s1"),
  executeMessage("", 0),
  closeMessage("P", "p"),
  syncMessage(),
  flushMessage(),
  copyDataMessage(new Uint8Array(300)),
  copyDoneMessage(),
  copyFailMessage("no"),
  passwordMessage("secret"),
  saslInitialResponse("SCRAM-SHA-256", ascii("n,,n=,r=abc")),
  saslInitialResponse("SCRAM-SHA-256", null),
  saslResponse(ascii("c=biws,r=abcdef,p=AAAA")),
  terminateMessage(),
];

export const initialSamples: readonly Uint8Array[] = [
  sslRequest(),
  gssRequest(),
  cancelRequest(77, new Uint8Array([1, 2, 3, 4])),
  cancelRequest(77, new Uint8Array(32).fill(200)),
  startupPacket({ user: "alice", database: "shop", application_name: "caf\u00e9" }),
  startupPacket({ user: "a" }, 2),
  startupPacket({ user: "a", "_pq_.new": "1", options: "-c search_path=a,b" }, 9999),
];
