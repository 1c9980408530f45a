// TLS by OpenSSL on a non-blocking socket. A TlsContext is what connections of one kind have in common (certificate,
// authorities, versions, ciphers), a TlsSession one connection's state; both are a Stream's affair, and its owner sees
// plain bytes. Session tickets and renegotiation are off, as in PostgreSQL. ALPN is always "postgresql".
// Invariants: the queue of errors is empty before each call; a write that the socket did not take is repeated with the
// same bytes first; read() and write() allocate nothing; a private key with a password is an error, never a question
// on the terminal.

import { parseIpv4, parseIpv6 } from "./address.ts";
import { Errno, errnoText } from "./errno.ts";
import { foreign } from "./ffi.ts";
import type { Pointer } from "./foreign.ts";
import { lastErrno } from "./libc.ts";
import { NativeBuffer } from "./native_buffer.ts";
import * as ossl from "./openssl.ts";
import { cString, type OpenSsl, openSsl, takeError, TlsError, type TlsProblem } from "./openssl.ts";
import { EPOLLIN, EPOLLOUT } from "./reactor.ts";

export const tlsVersions = ["tlsv1.0", "tlsv1.1", "tlsv1.2", "tlsv1.3"] as const;
export type TlsVersion = (typeof tlsVersions)[number];

export interface TlsOptions {
  readonly role: "server" | "client";
  /** What names of settings begin with in errors, such as "client_tls". */
  readonly name: string;
  /** PEM files; "" = none. */
  readonly certFile: string;
  readonly keyFile: string;
  /** The authorities that sign the peer's certificate; "" = the system's, where one is wanted. */
  readonly caFile: string;
  /** "offered": a server takes a client without a certificate, but none with a bad one. */
  readonly peer: "unverified" | "offered" | "verified";
  /** A client wants the server's certificate to be one for the host it connects to. */
  readonly checksHost: boolean;
  /** Not empty. */
  readonly versions: readonly TlsVersion[];
  /** In OpenSSL's syntax; "" = its own. */
  readonly ciphers: string;
  readonly tls13Ciphers: string;
  /** Curves for the key exchange, in OpenSSL's syntax; "" = its own. */
  readonly groups: string;
  /** Finite-field Diffie-Hellman: none, by the key's strength, 1024 bits. */
  readonly dh: "none" | "auto" | "legacy";
}

/** Steps of handshakes per batch of events: each may take a millisecond, and others want to be served. */
const STEPS_PER_BATCH = 8;
const DIGEST_BYTES_MAX = 64;
/** As on the wire: length and name. */
const alpn = cString("\x0apostgresql");
const ALPN_BYTES = 11;
const noPassword = cString("");

const versionNumbers: Readonly<Record<TlsVersion, number>> = {
  "tlsv1.0": 0x301,
  "tlsv1.1": 0x302,
  "tlsv1.2": 0x303,
  "tlsv1.3": 0x304,
};
const versionOptions: Readonly<Record<TlsVersion, number>> = {
  "tlsv1.0": ossl.SSL_OP_NO_TLSv1,
  "tlsv1.1": ossl.SSL_OP_NO_TLSv1_1,
  "tlsv1.2": ossl.SSL_OP_NO_TLSv1_2,
  "tlsv1.3": ossl.SSL_OP_NO_TLSv1_3,
};

// One thread's scratch memory for results; nothing in it outlives a call.
const word = new NativeBuffer(8);
const pointerCell = new NativeBuffer(8);
const digestBytes = new NativeBuffer(DIGEST_BYTES_MAX);

let alpnCallback: Pointer | null = null;

/** Takes "postgresql" from what the client offers, and nothing else. */
function alpnChooser(lib: OpenSsl): Pointer {
  const choose = (
    _ssl: Pointer,
    out: Pointer,
    outLength: Pointer,
    offered: Pointer,
    offeredLength: number,
  ): number => {
    const chosen = lib.SSL_select_next_proto(
      out,
      outLength,
      alpn.pointer,
      ALPN_BYTES,
      offered,
      offeredLength,
    );
    return chosen === ossl.OPENSSL_NPN_NEGOTIATED
      ? ossl.SSL_TLSEXT_ERR_OK
      : ossl.SSL_TLSEXT_ERR_ALERT_FATAL;
  };
  return foreign.callback(
    { parameters: ["pointer", "pointer", "pointer", "pointer", "i32", "pointer"], result: "i32" },
    choose,
  );
}

export class TlsContext {
  readonly options: TlsOptions;
  /** The tls-server-end-point data of the own certificate; null without one, or if it defines none. */
  readonly endPoint: Uint8Array | null;
  readonly #lib: OpenSsl;
  readonly #context: Pointer;
  readonly #problems: TlsProblem[] = [];
  #freed = false;
  #batch = 0;
  #steps = 0;

  /** Reads the files. Throws TlsError, also when there is no OpenSSL. */
  constructor(options: TlsOptions) {
    const lib = openSsl();
    this.options = options;
    this.#lib = lib;
    lib.ERR_clear_error();
    const method = options.role === "server" ? lib.TLS_server_method() : lib.TLS_client_method();
    const context = lib.SSL_CTX_new(method);
    if (context === null) throw new TlsError(`make a TLS context: ${takeError(lib)}`);
    this.#context = context;
    try {
      this.#setUp();
      const [problem] = this.#problems;
      if (problem !== undefined) throw new TlsError(problem.message, this.#problems);
      const own = options.certFile === "" ? null : lib.SSL_CTX_get0_certificate(context);
      this.endPoint = own === null ? null : endPointOf(lib, own);
    } catch (error) {
      this.free();
      throw error;
    }
  }

  /** Sessions that are open keep what they need. Idempotent. */
  free(): void {
    if (this.#freed) return;
    this.#freed = true;
    this.#lib.SSL_CTX_free(this.#context);
  }

  /** The session of a connected socket; `host` is whom a client means to talk to. */
  session(fd: number, host = ""): TlsSession {
    const lib = this.#lib;
    lib.ERR_clear_error();
    const ssl = lib.SSL_new(this.#context);
    if (ssl === null || lib.SSL_set_fd(ssl, fd) !== 1) {
      throw new TlsError(`begin TLS: ${takeError(lib)}`);
    }
    if (this.options.role === "server") lib.SSL_set_accept_state(ssl);
    else this.#aim(ssl, host);
    return new TlsSession(this, lib, ssl);
  }

  /** Whether one more step of a handshake may be taken in the batch of events that began at `now`. */
  admits(now: number): boolean {
    if (now !== this.#batch) {
      this.#batch = now;
      this.#steps = 0;
    }
    return ++this.#steps <= STEPS_PER_BATCH;
  }

  #aim(ssl: Pointer, host: string): void {
    const lib = this.#lib;
    lib.SSL_set_connect_state(ssl);
    const isAddress = parseIpv4(host) !== null || parseIpv6(host) !== null;
    const name = cString(host);
    if (host !== "" && !isAddress) {
      lib.SSL_ctrl(ssl, ossl.SSL_CTRL_SET_TLSEXT_HOSTNAME, 0, name.pointer);
    }
    if (!this.options.checksHost) return;
    const parameters = lib.SSL_get0_param(ssl);
    lib.X509_VERIFY_PARAM_set_hostflags(parameters, ossl.X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    const done = isAddress
      ? lib.X509_VERIFY_PARAM_set1_ip_asc(parameters, name.pointer)
      : lib.SSL_set1_host(ssl, name.pointer);
    // An empty name would switch the check off.
    if (done !== 1 || host === "") throw new TlsError(`begin TLS: "${host}" is no host to check`);
  }

  #setUp(): void {
    const { role, name, versions, ciphers, tls13Ciphers, groups, dh } = this.options;
    const lib = this.#lib;
    const context = this.#context;
    const mode = ossl.SSL_MODE_ENABLE_PARTIAL_WRITE | ossl.SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
      ossl.SSL_MODE_RELEASE_BUFFERS;
    this.#control(ossl.SSL_CTRL_MODE, mode);
    // One read for a record, not one for its header and one for its body.
    this.#control(ossl.SSL_CTRL_SET_READ_AHEAD, 1);
    this.#control(ossl.SSL_CTRL_SET_SESS_CACHE_MODE, 0);
    let options = ossl.SSL_OP_NO_TICKET | ossl.SSL_OP_NO_COMPRESSION |
      ossl.SSL_OP_NO_RENEGOTIATION |
      // The protocol says itself where a conversation ends.
      ossl.SSL_OP_IGNORE_UNEXPECTED_EOF;
    if (role === "server") options |= ossl.SSL_OP_CIPHER_SERVER_PREFERENCE;
    const wanted = tlsVersions.filter((version) => versions.includes(version));
    for (const version of tlsVersions) {
      if (!wanted.includes(version)) options |= versionOptions[version];
    }
    lib.SSL_CTX_set_options(context, options);
    lib.SSL_CTX_set_num_tickets(context, 0);
    const lowest = versionNumbers[wanted[0] as TlsVersion];
    const highest = versionNumbers[wanted.at(-1) as TlsVersion];
    this.#check(this.#control(ossl.SSL_CTRL_SET_MIN_PROTO_VERSION, lowest), `${name}_protocols`);
    this.#check(this.#control(ossl.SSL_CTRL_SET_MAX_PROTO_VERSION, highest), `${name}_protocols`);
    if (ciphers !== "") {
      const list = cString(ciphers);
      const done = lib.SSL_CTX_set_cipher_list(context, list.pointer);
      this.#check(done, `${name}_ciphers`, ciphers);
    }
    if (tls13Ciphers !== "") {
      const list = cString(tls13Ciphers);
      const done = lib.SSL_CTX_set_ciphersuites(context, list.pointer);
      this.#check(done, `${name.replace(/tls$/, "tls13")}_ciphers`, tls13Ciphers);
    }
    if (groups !== "") {
      const list = cString(groups);
      const done = this.#control(ossl.SSL_CTRL_SET_GROUPS_LIST, 0, list.pointer);
      this.#check(done, `${name}_ecdhcurve`, groups);
    }
    if (dh !== "none") this.#control(ossl.SSL_CTRL_SET_DH_AUTO, dh === "auto" ? 1 : 2);
    this.#loadOwn();
    this.#loadAuthorities();
    if (role === "server") {
      alpnCallback ??= alpnChooser(lib);
      lib.SSL_CTX_set_alpn_select_cb(context, alpnCallback, null);
    } else {
      lib.SSL_CTX_set_alpn_protos(context, alpn.pointer, ALPN_BYTES);
    }
  }

  #loadOwn(): void {
    const { name, certFile, keyFile } = this.options;
    const lib = this.#lib;
    const context = this.#context;
    let isLoaded = certFile !== "";
    if (isLoaded) {
      const path = cString(certFile);
      const done = lib.SSL_CTX_use_certificate_chain_file(context, path.pointer);
      isLoaded = this.#check(done, `${name}_cert_file`, certFile);
    }
    if (keyFile === "") return;
    const setting = `${name}_key_file`;
    lib.SSL_CTX_set_default_passwd_cb_userdata(context, noPassword.pointer);
    const path = cString(keyFile);
    // With a certificate it says whether the two belong together.
    const done = lib.SSL_CTX_use_PrivateKey_file(context, path.pointer, ossl.SSL_FILETYPE_PEM);
    if (!this.#check(done, setting, keyFile) || !isLoaded) return;
    this.#check(lib.SSL_CTX_check_private_key(context), setting, keyFile);
  }

  #loadAuthorities(): void {
    const { role, name, caFile, peer } = this.options;
    const lib = this.#lib;
    const context = this.#context;
    if (caFile !== "") {
      const setting = `${name}_ca_file`;
      const path = cString(caFile);
      const done = lib.SSL_CTX_load_verify_locations(context, path.pointer, null);
      if (this.#check(done, setting, caFile) && role === "server") {
        const names = lib.SSL_load_client_CA_file(path.pointer);
        if (this.#check(names === null ? 0 : 1, setting, caFile)) {
          lib.SSL_CTX_set_client_CA_list(context, names as Pointer);
        }
      }
    } else if (peer !== "unverified") {
      this.#check(lib.SSL_CTX_set_default_verify_paths(context), `${name}_ca_file`);
    }
    const verify = peer === "unverified"
      ? ossl.SSL_VERIFY_NONE
      : peer === "offered"
      ? ossl.SSL_VERIFY_PEER
      : ossl.SSL_VERIFY_PEER | ossl.SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
    lib.SSL_CTX_set_verify(context, verify, null);
  }

  #control(command: number, long: number, pointer: Pointer | null = null): number {
    return this.#lib.SSL_CTX_ctrl(this.#context, command, long, pointer);
  }

  /** Whether a step has succeeded; notes what is wrong with its setting, so that all is found at once. */
  #check(result: number, setting: string, value = ""): boolean {
    if (result !== 1) {
      const what = value === "" ? setting : `${setting} "${value}"`;
      const message = `${what}: ${takeError(this.#lib) || "not usable"}`;
      this.#problems.push({ setting, message });
    }
    this.#lib.ERR_clear_error();
    return result === 1;
  }
}

/** RFC 5929: the certificate's hash by the hash of its signature, SHA-256 for MD5 and SHA-1. */
function endPointOf(lib: OpenSsl, certificate: Pointer): Uint8Array | null {
  lib.ERR_clear_error();
  const found = lib.X509_get_signature_info(certificate, word.pointer, null, null, null) === 1;
  const nid = found ? word.view.getInt32(0, true) : ossl.NID_undef;
  if (nid === ossl.NID_undef) return null;
  const isWeak = nid === ossl.NID_md5 || nid === ossl.NID_sha1;
  const name = lib.OBJ_nid2sn(isWeak ? ossl.NID_sha256 : nid);
  const digest = name === null ? null : lib.EVP_get_digestbyname(name);
  if (digest === null) return null;
  if (lib.X509_digest(certificate, digest, digestBytes.pointer, word.pointer) !== 1) return null;
  return digestBytes.bytes.slice(0, word.view.getInt32(0, true));
}

export class TlsSession {
  readonly context: TlsContext;
  /** What the last read, or step of the handshake, that came to nothing waits for: EPOLLIN or EPOLLOUT. */
  readWants: number;
  /** The same of the last write. */
  writeWants: number = EPOLLOUT;
  /** There may be more to read without anything new on the socket. */
  hasMore = false;
  /** What has gone wrong, in OpenSSL's words. */
  problem = "";
  readonly #lib: OpenSsl;
  readonly #ssl: Pointer;
  readonly #read: OpenSsl["SSL_read"];
  readonly #write: OpenSsl["SSL_write"];
  readonly #clear: OpenSsl["ERR_clear_error"];
  readonly #hasPending: OpenSsl["SSL_has_pending"];
  /** How reading ended, behind bytes that were given first; 1 = it has not. */
  #end = 1;
  /** A record is partly on its way. */
  #midRecord = false;
  #isUp = false;
  #broken = false;
  #freed = false;
  #info = "";

  /** By TlsContext.session() only. */
  constructor(context: TlsContext, lib: OpenSsl, ssl: Pointer) {
    this.context = context;
    this.#lib = lib;
    this.#ssl = ssl;
    this.#read = lib.SSL_read;
    this.#write = lib.SSL_write;
    this.#clear = lib.ERR_clear_error;
    this.#hasPending = lib.SSL_has_pending;
    this.readWants = context.options.role === "server" ? EPOLLIN : EPOLLOUT;
  }

  /** One step of the handshake: 1 = done, -EAGAIN = wait for `readWants`, 0 or -errno = failed. */
  handshake(): number {
    this.#clear();
    const result = this.#lib.SSL_do_handshake(this.#ssl);
    if (result === 1) {
      this.#isUp = true;
      this.readWants = EPOLLIN;
      this.hasMore = this.#hasPending(this.#ssl) !== 0;
      return 1;
    }
    const outcome = this.#outcome(result);
    if (outcome === -Errno.EAGAIN) return outcome;
    this.#broken = true;
    if (outcome === 0) this.problem = "the peer closed the connection";
    else if (this.problem === "") this.problem = errnoText(-outcome);
    const verified = this.#lib.SSL_get_verify_result(this.#ssl);
    if (this.context.options.peer !== "unverified" && verified !== ossl.X509_V_OK) {
      const why = foreign.textAt(this.#lib.X509_verify_cert_error_string(verified));
      this.problem = `${this.problem} (${why})`;
    }
    return outcome;
  }

  /** As Stream.recv(). */
  read(buffer: NativeBuffer, offset: number, length: number): number {
    this.hasMore = false;
    if (this.#end !== 1) return this.#end;
    let total = 0;
    for (;;) {
      this.#clear();
      const at = foreign.pointerAt(buffer, offset + total);
      const count = this.#read(this.#ssl, at, length - total);
      if (count > 0) {
        total += count;
        this.hasMore = this.#hasPending(this.#ssl) !== 0;
        if (!this.hasMore || total === length) {
          this.readWants = EPOLLIN;
          return total;
        }
        continue;
      }
      this.hasMore = false;
      const outcome = this.#outcome(count);
      if (outcome !== -Errno.EAGAIN) {
        this.#end = outcome;
        // The bytes first; how it ended is told by the next call.
        this.hasMore = total > 0;
      }
      return total > 0 ? total : outcome;
    }
  }

  /** Sends what the socket takes: the count, which may be 0, or -errno. */
  write(buffer: NativeBuffer, offset: number, length: number): number {
    let total = 0;
    while (total < length) {
      this.#clear();
      const at = foreign.pointerAt(buffer, offset + total);
      const count = this.#write(this.#ssl, at, length - total);
      if (count <= 0) {
        const wanted = this.readWants;
        const outcome = this.#outcome(count);
        this.writeWants = this.readWants;
        this.readWants = wanted;
        if (outcome !== -Errno.EAGAIN) return outcome === 0 ? -Errno.EPIPE : outcome;
        this.#midRecord = true;
        return total;
      }
      this.#midRecord = false;
      total += count;
    }
    this.writeWants = EPOLLOUT;
    return total;
  }

  /** Says good-bye (close_notify) where that is possible, and releases the memory. Idempotent. */
  end(): void {
    if (this.#freed) return;
    if (this.#isUp) this.#info = this.info;
    this.#freed = true;
    this.#clear();
    if (this.#isUp && !this.#broken && !this.#midRecord) this.#lib.SSL_shutdown(this.#ssl);
    this.#lib.SSL_free(this.#ssl);
    this.#clear();
  }

  /** Version and cipher, such as "TLSv1.3/TLS_AES_256_GCM_SHA384". */
  get info(): string {
    if (this.#info !== "" || this.#freed) return this.#info;
    const version = foreign.textAt(this.#lib.SSL_get_version(this.#ssl));
    const cipher = this.#lib.SSL_get_current_cipher(this.#ssl);
    const name = cipher === null ? "" : foreign.textAt(this.#lib.SSL_CIPHER_get_name(cipher));
    return this.#info = `${version}/${name}`;
  }

  /** Whether both sides have said that they speak PostgreSQL's protocol. */
  get hasAlpn(): boolean {
    if (this.#freed) return false;
    this.#lib.SSL_get0_alpn_selected(this.#ssl, pointerCell.pointer, word.pointer);
    return word.view.getInt32(0, true) > 0;
  }

  /** The common name in the peer's certificate; null without a certificate, or if the name is none. */
  get peerName(): string | null {
    return this.#withPeer((certificate) => {
      const subject = this.#lib.X509_get_subject_name(certificate);
      const length = this.#lib.X509_NAME_get_text_by_NID(subject, ossl.NID_commonName, null, 0);
      if (length < 1) return null;
      const text = new NativeBuffer(length + 1);
      this.#lib.X509_NAME_get_text_by_NID(
        subject,
        ossl.NID_commonName,
        text.pointer,
        length + 1,
      );
      const bytes = text.bytes.slice(0, length);
      // "alice\0.evil.example" is nobody.
      return bytes.includes(0) ? null : decodeStrictly(bytes);
    });
  }

  /** Whether the peer has shown a certificate. */
  get hasPeerCertificate(): boolean {
    return this.#withPeer(() => true) ?? false;
  }

  /** The tls-server-end-point data of the peer's certificate, or null. */
  get peerEndPoint(): Uint8Array | null {
    return this.#withPeer((certificate) => endPointOf(this.#lib, certificate));
  }

  #withPeer<T>(use: (certificate: Pointer) => T): T | null {
    if (this.#freed || !this.#isUp) return null;
    const certificate = this.#lib.SSL_get1_peer_certificate(this.#ssl);
    if (certificate === null) return null;
    try {
      return use(certificate);
    } finally {
      this.#lib.X509_free(certificate);
    }
  }

  /** What a call that did not succeed has come to: 0 = the peer's orderly end, or -errno. */
  #outcome(result: number): number {
    const errno = lastErrno();
    const kind = this.#lib.SSL_get_error(this.#ssl, result);
    switch (kind) {
      case ossl.SSL_ERROR_WANT_READ:
        this.readWants = EPOLLIN;
        return -Errno.EAGAIN;
      case ossl.SSL_ERROR_WANT_WRITE:
        this.readWants = EPOLLOUT;
        return -Errno.EAGAIN;
      case ossl.SSL_ERROR_ZERO_RETURN:
        return 0;
      case ossl.SSL_ERROR_SYSCALL:
        this.#broken = true;
        return errno === 0 || errno === Errno.EAGAIN ? 0 : -errno;
      default:
        this.#broken = true;
        this.problem = takeError(this.#lib) || "protocol error";
        return -Errno.EPROTO;
    }
  }
}

function decodeStrictly(bytes: Uint8Array): string | null {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return null;
  }
}
