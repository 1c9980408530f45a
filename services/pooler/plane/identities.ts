// Whether the name in a certificate, or that of a system user, is the user that is asked for, itself or by a map of
// auth_ident_file; if it is not, why, as PgBouncer logs it. Pure.

import { type IdentMaps, mapsToUser } from "../../../shared/config/mod.ts";

export interface Shown {
  readonly hasPeerCertificate: boolean;
  readonly peerName: string | null;
}

/** `tls`: what the client has shown; null without TLS. */
export function certificateProblem(
  tls: Shown | null,
  maps: IdentMaps,
  map: string | null,
  user: string,
): string | null {
  if (tls === null) return "TLS connection required";
  if (!tls.hasPeerCertificate) return "TLS client certificate required";
  const name = tls.peerName;
  if (name !== null && mapsToUser(maps, map, name, user)) return null;
  return map === null ? "TLS certificate name mismatch" : `ident map: ${map} does not have a match`;
}

/** `systemUser`: null if the system knows no name. "" is a problem as well, of which PgBouncer says no more. */
export function peerProblem(
  systemUser: string | null,
  maps: IdentMaps,
  map: string | null,
  user: string,
): string | null {
  if (systemUser !== null && mapsToUser(maps, map, systemUser, user)) return null;
  return map === null ? "" : `ident map ${map} cannot be matched`;
}
