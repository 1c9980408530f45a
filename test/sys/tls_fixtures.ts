// TLS contexts for tests of the system layer: an authority, a server and a client that trust it.
// A file that uses them, or asks a rig for a "tls" pair, says needs("openssl").

import { TlsContext, type TlsOptions } from "../../shared/sys/mod.ts";
import { CertificateAuthority } from "../support/certificates.ts";

let made: Certificates | null = null;

export interface Certificates {
  readonly authority: CertificateAuthority;
  readonly server: TlsOptions;
  readonly client: TlsOptions;
}

const common = {
  certFile: "",
  keyFile: "",
  caFile: "",
  peer: "unverified",
  checksHost: false,
  versions: ["tlsv1.2", "tlsv1.3"],
  ciphers: "",
  tls13Ciphers: "",
  groups: "",
  dh: "auto",
} as const;

/** Made once per process. */
export function certificates(): Certificates {
  if (made !== null) return made;
  const authority = new CertificateAuthority();
  const own = authority.issue("localhost", ["localhost", "127.0.0.1"]);
  made = {
    authority,
    server: { ...common, role: "server", name: "client_tls", ...own },
    client: { ...common, role: "client", name: "server_tls" },
  };
  return made;
}

let contexts: readonly [TlsContext, TlsContext] | null = null;

/** The contexts of a client and of a server that are content with each other. */
export function tlsContexts(): readonly [TlsContext, TlsContext] {
  const { client, server } = certificates();
  return contexts ??= [new TlsContext(client), new TlsContext(server)];
}
