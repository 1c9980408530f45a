// The door of the system layer: the only code that names a runtime or the C library.
// Linux (glibc or musl), x86-64 and arm64, on Bun and Deno; anything else fails while loading, with a
// message that says what is wanted.

export {
  ownCommand,
  runtimeCommand,
  type RuntimeName,
  runtimeName,
  runtimeVersion,
} from "./runtime.ts";
export { Errno, errnoName, errnoText, SysError } from "./errno.ts";
export { NativeBuffer } from "./native_buffer.ts";
export { monotonicMicros } from "./clock.ts";
export { closeFd } from "./libc.ts";
export { collectGarbage } from "./garbage.ts";
export { createEventFd, signalEventFd } from "./event_fd.ts";
export {
  EPOLLERR,
  EPOLLHUP,
  EPOLLIN,
  EPOLLOUT,
  EPOLLRDHUP,
  type EventSource,
  Reactor,
} from "./reactor.ts";
export { type Timer } from "./timers.ts";
export { Stream, type StreamOwner } from "./stream.ts";
export { TlsContext, type TlsOptions, TlsSession, type TlsVersion } from "./tls.ts";
export { openSslProblem, TlsError } from "./openssl.ts";
export { hostPort, type SocketAddress } from "./address.ts";
export {
  accept,
  isMissingAddress,
  listenTcp,
  listenUnix,
  type TcpListenOptions,
  type UnixListenOptions,
  unlinkUnix,
} from "./listen.ts";
export { connectTcp, connectUnix } from "./connect.ts";
export { becomeUser, findGroup, findUser, type SystemUser } from "./accounts.ts";
export { UnixDatagram } from "./datagram.ts";
export { askPam, type PamAnswer, pamProblem, type PamQuestion } from "./pam.ts";
export {
  type KeepAlive,
  localAddress,
  peerAddress,
  type PeerCredentials,
  peerCredentials,
  setBuffers,
  setDeferAccept,
  setKeepAlive,
  setNoDelay,
  socketError,
} from "./options.ts";
export { spawnThread, type Thread, type ThreadPort, threadPort } from "./thread.ts";
export {
  bootId,
  type FileLimit,
  type ProcessUsage,
  processUsage,
  raiseFileLimit,
  redirect,
  setProcessName,
} from "./process.ts";
export { pgweirVersion } from "./version.ts";
