// Connecting to servers: a numeric address, or the directory of a unix socket (/dir, @name). Over TCP the connection
// is encrypted, where server_tls_sslmode says so, before its owner hears of it: sessions, listeners, tunnels and
// cancels all come through here.
// Invariant: what a server says in clear before the handshake is not believed, apart from the one byte S or N.

import {
  connectTcp,
  connectUnix,
  Errno,
  setNoDelay,
  Stream,
  type StreamOwner,
  TlsError,
} from "../../../shared/sys/mod.ts";
import { sslRequest } from "../../../shared/wire/mod.ts";
import { IN_AT } from "./arena.ts";
import type { Plane } from "./plane.ts";
import type { Refusal } from "./refusals.ts";

export interface ServerTarget {
  /** As the configuration has it: what a certificate is checked for. */
  readonly host: string;
  /** Numeric, or the directory of a unix socket. */
  readonly address: string;
  readonly port: number;
}

/** Hears onConnected(0) when the connection is as it is to be, and nothing before. */
export interface DialOwner extends StreamOwner {
  /** The server is there, and TLS has not come about. No words of the server's are in it. */
  onRefused(failure: Refusal): void;
}

const yes = 0x53;
const no = 0x4e;
const closed = "server closed the connection";
// Everybody else would be told the same: who waits need not wait on.
const noTls: Refusal = {
  code: "28000",
  message: "server refused SSL",
  hint: "server_tls_sslmode wants TLS, which the server does not have: turn it on there (ssl = on)",
};
const disagreement = "Check server_tls_sslmode, server_tls_ca_file, and whom the server's " +
  "certificate is for";

/** More than the answer to SSLRequest. */
const answerMax = 16;

export function isSocketDir(address: string): boolean {
  return address.startsWith("/") || address.startsWith("@");
}

/** Begins to connect; the descriptor, or -errno if that fails at once. */
export function connectTo(plane: Plane, address: string, port: number): number {
  return isSocketDir(address)
    ? connectUnix(`${address}/.s.PGSQL.${port}`)
    : connectTcp(address, port, plane.settings.tcpSocketBuffer);
}

/** Begins to connect; -errno if that fails at once. */
export function dial(
  plane: Plane,
  target: ServerTarget,
  owner: DialOwner,
  asksForTls = plane.tls.server !== null,
): Stream | number {
  const fd = connectTo(plane, target.address, target.port);
  return fd < 0 ? fd : takeUp(plane, target, owner, fd, asksForTls);
}

/** Goes on with a connection that is being made, or is made. */
export function takeUp(
  plane: Plane,
  target: ServerTarget,
  owner: DialOwner,
  fd: number,
  asksForTls = plane.tls.server !== null,
): Stream {
  if (isSocketDir(target.address)) return new Stream(plane.reactor, fd, owner, true);
  setNoDelay(fd);
  plane.keepAlive(fd);
  if (!asksForTls) return new Stream(plane.reactor, fd, owner, true);
  return new Negotiation(plane, target.host, fd, owner).stream;
}

/** Owns a connection until it is decided whether it is encrypted. */
class Negotiation implements StreamOwner {
  readonly stream: Stream;
  readonly #plane: Plane;
  readonly #host: string;
  readonly #owner: DialOwner;

  constructor(plane: Plane, host: string, fd: number, owner: DialOwner) {
    this.#plane = plane;
    this.#host = host;
    this.#owner = owner;
    this.stream = new Stream(plane.reactor, fd, this, true);
  }

  onConnected(errno: number): void {
    if (errno !== 0) this.#settle(errno);
    else if (this.stream.sendBytes(sslRequest()) < 0) this.#fail(closed);
  }

  onReadable(): void {
    const { memory, bytes } = this.#plane.arena;
    const received = this.stream.recv(memory, IN_AT, answerMax);
    if (received === -Errno.EAGAIN) return;
    if (received <= 0) {
      this.#fail(received === 0 ? closed : this.stream.reasonOf(-received));
    } else if (received > 1) {
      this.#fail("server sent more than an answer to the SSL request");
    } else if (bytes[IN_AT] === yes) {
      this.#secure();
    } else if (bytes[IN_AT] !== no) {
      this.#fail("server did not answer the SSL request");
    } else if (this.#plane.tls.serverRequired) {
      this.#refuse(noTls);
    } else {
      this.#settle(0);
    }
  }

  #secure(): void {
    const context = this.#plane.tls.server;
    if (context === null) return this.#fail("server_tls_sslmode has changed");
    try {
      this.stream.startTls(context, this.#host);
    } catch (error) {
      if (!(error instanceof TlsError)) throw error;
      this.#refuse({ code: "28000", message: error.message, hint: disagreement });
    }
  }

  onSecured(errno: number, problem: string): void {
    const message = `TLS handshake failed: ${problem}`;
    if (errno === 0) this.#settle(0);
    else if (errno === Errno.EPROTO) this.#refuse({ code: "28000", message, hint: disagreement });
    else this.#fail(message);
  }

  onDrained(): void {}

  onHangup(): void {
    this.#fail(closed);
  }

  #settle(errno: number): void {
    this.stream.handOver(this.#owner);
    this.#owner.onConnected(errno);
  }

  #fail(message: string): void {
    this.#refuse({ code: "08001", message });
  }

  #refuse(failure: Refusal): void {
    this.stream.handOver(this.#owner);
    this.#owner.onRefused(failure);
  }
}
