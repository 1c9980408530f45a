// The lines pgweir prints on standard output when clients may connect. Pure text. A password is printed
// only where it is the well-known one of the demo database.

import { hostPort } from "../../shared/sys/mod.ts";

export interface ListenAddress {
  /** A numeric address, a name, "*" for every interface, or the directory of a unix socket ("/...", "@..."). */
  readonly host: string;
  readonly port: number;
}

export interface Banner {
  readonly workers: number;
  /** In the order they are configured; the first is the one to connect to. */
  readonly addresses: readonly ListenAddress[];
  /** e.g. "bun 1.4.5". */
  readonly runtime: string;
  readonly database: string;
  /** null: psql's own default. */
  readonly user: string | null;
  readonly consoleUser: string | null;
  readonly password: string | null;
}

export function readyText(banner: Banner): string {
  const { workers, addresses, runtime } = banner;
  const count = workers === 1 ? "1 worker" : `${workers} workers`;
  return [
    `pgweir is ready: ${count} on ${addresses.map(addressText).join(", ")} (${runtime})`,
    `  connect   psql ${uri(banner, banner.user, banner.database)}`,
    `  console   psql ${uri(banner, banner.consoleUser, "pgbouncer")} -c "SHOW POOLS"`,
    "  read on   README.md, services/README.md",
    "  stop      Ctrl-C",
    "",
  ].join("\n");
}

/** host:port; [host]:port for IPv6; the socket's path for a directory. */
export function addressText({ host, port }: ListenAddress): string {
  if (isSocketDirectory(host)) return `${host}/.s.PGSQL.${port}`;
  return hostPort(host, port);
}

function uri(banner: Banner, user: string | null, database: string): string {
  const { addresses: [first], password } = banner;
  const login = user === null
    ? ""
    : `${encodeURIComponent(user)}${password === null ? "" : `:${encodeURIComponent(password)}`}@`;
  const authority = first === undefined ? "" : reachable(first);
  return `postgres://${login}${authority}/${encodeURIComponent(database)}`;
}

/** Where to connect to what listens there: every interface is reached through the loopback one. */
function reachable({ host, port }: ListenAddress): string {
  if (isSocketDirectory(host)) return `${encodeURIComponent(host)}:${port}`;
  if (host === "*" || host === "0.0.0.0") return `127.0.0.1:${port}`;
  return addressText({ host: host === "::" ? "::1" : host, port });
}

function isSocketDirectory(host: string): boolean {
  return host.startsWith("/") || host.startsWith("@");
}
