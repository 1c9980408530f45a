// A client of the admin console (database `pgbouncer`).

import {
  commandComplete,
  concatBytes,
  dataRow,
  Frontend,
  parameterStatus,
  readInt32,
  readyForQuery,
  rowDescription,
} from "../../../shared/wire/mod.ts";
import type { ClientSession } from "./client.ts";
import type { Plane } from "./plane.ts";

export class ConsoleSession {
  readonly #client: ClientSession;
  readonly admin: boolean;
  constructor(client: ClientSession, admin: boolean) {
    this.#client = client;
    this.admin = admin;
  }
  consume(bytes: Uint8Array, at: number, end: number): number {
    while (end - at >= 5) {
      const length = readInt32(bytes, at + 1);
      if (at + 1 + length > end) return at;
      if (bytes[at] === Frontend.terminate) {
        this.#client.close("client close request");
        return end;
      }
      this.#client.stream.sendBytes(
        concatBytes(
          rowDescription([{ name: "version", typeOid: 25, typeSize: -1 }]),
          dataRow([this.#client.plane.version]),
          commandComplete("SHOW"),
          readyForQuery("I"),
        ),
      );
      at += 1 + length;
    }
    return at;
  }
}

export function consoleGreeting(plane: Plane): Uint8Array {
  return concatBytes(
    parameterStatus("server_version", `${plane.version}/bouncer`),
    readyForQuery("I"),
  );
}
