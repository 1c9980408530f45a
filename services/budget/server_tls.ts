// TLS for the coordinator's own look at PostgreSQL, by the settings that workers follow (server_tls_*): the
// coordinator has an event loop of the runtime, so it has the runtime's TLS as well.
// Invariant: what a server says in clear before the handshake is not believed, apart from the one byte S or N.

import { readFileSync } from "node:fs";
import type { Socket } from "node:net";
import { checkServerIdentity, connect, type ConnectionOptions } from "node:tls";
import type { TlsPlan } from "../../shared/config/mod.ts";
import { sslRequest } from "../../shared/wire/mod.ts";

export interface ServerTls {
  readonly plan: TlsPlan;
  /** A server without TLS is not asked. */
  readonly required: boolean;
}

/** Asks a server that was connected to for TLS; gives the socket to go on with. */
export async function secured(socket: Socket, host: string, tls: ServerTls): Promise<Socket> {
  socket.write(sslRequest());
  const answer = await new Promise<Uint8Array>((resolve, reject) => {
    socket.once("data", resolve);
    socket.once("close", () => reject(new Error("connection was closed")));
  });
  const word = answer.length === 1 ? String.fromCharCode(answer[0]!) : "";
  if (word === "N" && !tls.required) return socket;
  if (word === "N") throw new Error("server refused SSL");
  if (word !== "S") throw new Error("server did not answer the SSL request");
  return await handshake(socket, host, tls.plan);
}

async function handshake(socket: Socket, host: string, plan: TlsPlan): Promise<Socket> {
  const secure = connect({ ...optionsOf(plan), socket });
  await new Promise<void>((resolve, reject) => {
    secure.once("secureConnect", resolve);
    secure.once("error", (error: Error) => reject(new Error(`TLS: ${error.message}`)));
    secure.once("close", () => reject(new Error("TLS: connection was closed")));
  });
  const mismatch = plan.checksHost
    ? checkServerIdentity(host, secure.getPeerCertificate())
    : undefined;
  if (mismatch === undefined) return secure;
  secure.destroy();
  throw new Error(`TLS: ${mismatch.message}`);
}

function optionsOf(plan: TlsPlan): ConnectionOptions {
  const version = (at: number) =>
    plan.versions.at(at)!.replace("tlsv1.0", "tlsv1").replace("tlsv", "TLSv");
  const ciphers = [plan.tls13Ciphers, plan.ciphers].filter((list) => list !== "").join(":");
  return {
    ALPNProtocols: ["postgresql"],
    rejectUnauthorized: plan.peer === "verified",
    // The name is looked at when the handshake is over: by the one rule on every runtime.
    checkServerIdentity: () => undefined,
    minVersion: version(0) as "TLSv1.2",
    maxVersion: version(-1) as "TLSv1.3",
    ...(ciphers === "" ? {} : { ciphers }),
    ...(plan.caFile === "" ? {} : { ca: readFileSync(plan.caFile) }),
    ...(plan.certFile === "" ? {} : {
      cert: readFileSync(plan.certFile),
      key: readFileSync(plan.keyFile),
    }),
  };
}
