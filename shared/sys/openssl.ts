// OpenSSL 3: the functions that tls.ts calls, the constants they take, and its queue of errors.
// Bindings only, opened when the first TLS context is made: without the library everything but TLS works.
// Invariant: the queue of errors belongs to the thread, as errno does (each thread loads its own copy of
// this module).

import { errnoText } from "./errno.ts";
import { foreign } from "./ffi.ts";
import type { ForeignSignature, ForeignType, Pointer } from "./foreign.ts";
import { NativeBuffer } from "./native_buffer.ts";

interface Crypto {
  ERR_clear_error(): void;
  ERR_get_error(): number;
  ERR_reason_error_string(error: number): Pointer | null;
  EVP_get_digestbyname(name: Pointer): Pointer | null;
  OBJ_nid2sn(nid: number): Pointer | null;
  X509_digest(certificate: Pointer, digest: Pointer, into: Pointer, length: Pointer): number;
  X509_free(certificate: Pointer): void;
  X509_get_signature_info(
    certificate: Pointer,
    digestNid: Pointer,
    keyNid: Pointer | null,
    securityBits: Pointer | null,
    flags: Pointer | null,
  ): number;
  X509_get_subject_name(certificate: Pointer): Pointer;
  X509_NAME_get_text_by_NID(
    name: Pointer,
    nid: number,
    into: Pointer | null,
    size: number,
  ): number;
  X509_VERIFY_PARAM_set1_ip_asc(parameters: Pointer, address: Pointer): number;
  X509_VERIFY_PARAM_set_hostflags(parameters: Pointer, flags: number): void;
  X509_verify_cert_error_string(result: number): Pointer;
}

interface Ssl {
  SSL_CIPHER_get_name(cipher: Pointer): Pointer;
  SSL_CTX_check_private_key(context: Pointer): number;
  SSL_CTX_ctrl(context: Pointer, command: number, long: number, pointer: Pointer | null): number;
  SSL_CTX_free(context: Pointer): void;
  SSL_CTX_get0_certificate(context: Pointer): Pointer | null;
  SSL_CTX_load_verify_locations(context: Pointer, file: Pointer, folder: null): number;
  SSL_CTX_new(method: Pointer): Pointer | null;
  SSL_CTX_set_alpn_protos(context: Pointer, list: Pointer, length: number): number;
  SSL_CTX_set_alpn_select_cb(context: Pointer, callback: Pointer, argument: null): void;
  SSL_CTX_set_cipher_list(context: Pointer, list: Pointer): number;
  SSL_CTX_set_ciphersuites(context: Pointer, list: Pointer): number;
  SSL_CTX_set_client_CA_list(context: Pointer, list: Pointer): void;
  SSL_CTX_set_default_passwd_cb_userdata(context: Pointer, data: Pointer): void;
  SSL_CTX_set_default_verify_paths(context: Pointer): number;
  SSL_CTX_set_num_tickets(context: Pointer, count: number): number;
  SSL_CTX_set_options(context: Pointer, options: number): void;
  SSL_CTX_set_verify(context: Pointer, mode: number, callback: null): void;
  SSL_CTX_use_PrivateKey_file(context: Pointer, file: Pointer, type: number): number;
  SSL_CTX_use_certificate_chain_file(context: Pointer, file: Pointer): number;
  SSL_ctrl(ssl: Pointer, command: number, long: number, pointer: Pointer | null): number;
  SSL_do_handshake(ssl: Pointer): number;
  SSL_free(ssl: Pointer): void;
  SSL_get0_alpn_selected(ssl: Pointer, protocol: Pointer, length: Pointer): void;
  SSL_get0_param(ssl: Pointer): Pointer;
  SSL_get1_peer_certificate(ssl: Pointer): Pointer | null;
  SSL_get_current_cipher(ssl: Pointer): Pointer | null;
  SSL_get_error(ssl: Pointer, result: number): number;
  SSL_get_verify_result(ssl: Pointer): number;
  SSL_get_version(ssl: Pointer): Pointer;
  SSL_has_pending(ssl: Pointer): number;
  SSL_load_client_CA_file(file: Pointer): Pointer | null;
  SSL_new(context: Pointer): Pointer | null;
  SSL_read(ssl: Pointer, into: Pointer, length: number): number;
  SSL_select_next_proto(
    out: Pointer,
    outLength: Pointer,
    own: Pointer,
    ownLength: number,
    offered: Pointer,
    offeredLength: number,
  ): number;
  SSL_set1_host(ssl: Pointer, name: Pointer): number;
  SSL_set_accept_state(ssl: Pointer): void;
  SSL_set_connect_state(ssl: Pointer): void;
  SSL_set_fd(ssl: Pointer, fd: number): number;
  SSL_shutdown(ssl: Pointer): number;
  SSL_write(ssl: Pointer, from: Pointer, length: number): number;
  TLS_client_method(): Pointer;
  TLS_server_method(): Pointer;
}

export type OpenSsl = Crypto & Ssl;

function int(...parameters: ForeignType[]): ForeignSignature {
  return { parameters, result: "i32" };
}

function pointer(...parameters: ForeignType[]): ForeignSignature {
  return { parameters, result: "pointer" };
}

const cryptoSignatures: Readonly<Record<keyof Crypto, ForeignSignature>> = {
  ERR_clear_error: int(),
  ERR_get_error: int(),
  ERR_reason_error_string: pointer("i64"),
  EVP_get_digestbyname: pointer("pointer"),
  OBJ_nid2sn: pointer("i32"),
  X509_digest: int("pointer", "pointer", "pointer", "pointer"),
  X509_free: int("pointer"),
  X509_get_signature_info: int("pointer", "pointer", "pointer", "pointer", "pointer"),
  X509_get_subject_name: pointer("pointer"),
  X509_NAME_get_text_by_NID: int("pointer", "i32", "pointer", "i32"),
  X509_VERIFY_PARAM_set1_ip_asc: int("pointer", "pointer"),
  X509_VERIFY_PARAM_set_hostflags: int("pointer", "i32"),
  X509_verify_cert_error_string: pointer("i64"),
};

const sslSignatures: Readonly<Record<keyof Ssl, ForeignSignature>> = {
  SSL_CIPHER_get_name: pointer("pointer"),
  SSL_CTX_check_private_key: int("pointer"),
  SSL_CTX_ctrl: int("pointer", "i32", "i64", "pointer"),
  SSL_CTX_free: int("pointer"),
  SSL_CTX_get0_certificate: pointer("pointer"),
  SSL_CTX_load_verify_locations: int("pointer", "pointer", "pointer"),
  SSL_CTX_new: pointer("pointer"),
  SSL_CTX_set_alpn_protos: int("pointer", "pointer", "i32"),
  SSL_CTX_set_alpn_select_cb: int("pointer", "pointer", "pointer"),
  SSL_CTX_set_cipher_list: int("pointer", "pointer"),
  SSL_CTX_set_ciphersuites: int("pointer", "pointer"),
  SSL_CTX_set_client_CA_list: int("pointer", "pointer"),
  SSL_CTX_set_default_passwd_cb_userdata: int("pointer", "pointer"),
  SSL_CTX_set_default_verify_paths: int("pointer"),
  SSL_CTX_set_num_tickets: int("pointer", "i64"),
  SSL_CTX_set_options: int("pointer", "i64"),
  SSL_CTX_set_verify: int("pointer", "i32", "pointer"),
  SSL_CTX_use_PrivateKey_file: int("pointer", "pointer", "i32"),
  SSL_CTX_use_certificate_chain_file: int("pointer", "pointer"),
  SSL_ctrl: int("pointer", "i32", "i64", "pointer"),
  SSL_do_handshake: int("pointer"),
  SSL_free: int("pointer"),
  SSL_get0_alpn_selected: int("pointer", "pointer", "pointer"),
  SSL_get0_param: pointer("pointer"),
  SSL_get1_peer_certificate: pointer("pointer"),
  SSL_get_current_cipher: pointer("pointer"),
  SSL_get_error: int("pointer", "i32"),
  SSL_get_verify_result: int("pointer"),
  SSL_get_version: pointer("pointer"),
  SSL_has_pending: int("pointer"),
  SSL_load_client_CA_file: pointer("pointer"),
  SSL_new: pointer("pointer"),
  SSL_read: int("pointer", "pointer", "i32"),
  SSL_select_next_proto: int("pointer", "pointer", "pointer", "i32", "pointer", "i32"),
  SSL_set1_host: int("pointer", "pointer"),
  SSL_set_accept_state: int("pointer"),
  SSL_set_connect_state: int("pointer"),
  SSL_set_fd: int("pointer", "i32"),
  SSL_shutdown: int("pointer"),
  SSL_write: int("pointer", "pointer", "i32"),
  TLS_client_method: pointer(),
  TLS_server_method: pointer(),
};

let opened: OpenSsl | null = null;

/** A context that cannot be made; the message names what is wrong, a setting for the most part. */
export class TlsError extends Error {
  override readonly name = "TlsError";
  /** All that is wrong, by settings, where settings are what is wrong; the message is the first one's. */
  readonly problems: readonly TlsProblem[];

  constructor(message: string, problems: readonly TlsProblem[] = []) {
    super(message);
    this.problems = problems;
  }
}

export interface TlsProblem {
  readonly setting: string;
  readonly message: string;
}

/** What keeps TLS from being used at all, or null. */
export function openSslProblem(): string | null {
  try {
    openSsl();
    return null;
  } catch (error) {
    return (error as Error).message;
  }
}

/** Throws TlsError when the libraries are not there. */
export function openSsl(): OpenSsl {
  if (opened !== null) return opened;
  try {
    const crypto = foreign.open("libcrypto.so.3", cryptoSignatures);
    const ssl = foreign.open("libssl.so.3", sslSignatures);
    opened = { ...crypto, ...ssl } as unknown as OpenSsl;
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new TlsError(`load OpenSSL: ${reason}; TLS needs libssl.so.3 and libcrypto.so.3`);
  }
  return opened;
}

/** Takes the queue of errors and tells its first, which is the cause; "" when it was empty. */
export function takeError(lib: OpenSsl): string {
  const code = lib.ERR_get_error();
  lib.ERR_clear_error();
  if (code === 0) return "";
  // Bit 31: not OpenSSL's own, but an errno.
  if (code < 0) return errnoText(code & 0x7fff_ffff);
  const text = lib.ERR_reason_error_string(code);
  return text === null ? `OpenSSL error ${code.toString(16)}` : foreign.textAt(text);
}

/** Text as a C string; the buffer has to be kept while the pointer is in use. */
export function cString(text: string): NativeBuffer {
  const bytes = new TextEncoder().encode(text);
  const buffer = new NativeBuffer(bytes.length + 1);
  buffer.bytes.set(bytes);
  return buffer;
}

export const SSL_CTRL_MODE = 33;
export const SSL_CTRL_SET_READ_AHEAD = 41;
export const SSL_CTRL_SET_SESS_CACHE_MODE = 44;
export const SSL_CTRL_SET_TLSEXT_HOSTNAME = 55;
export const SSL_CTRL_SET_GROUPS_LIST = 92;
export const SSL_CTRL_SET_DH_AUTO = 118;
export const SSL_CTRL_SET_MIN_PROTO_VERSION = 123;
export const SSL_CTRL_SET_MAX_PROTO_VERSION = 124;
export const SSL_MODE_ENABLE_PARTIAL_WRITE = 0x1;
export const SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER = 0x2;
export const SSL_MODE_RELEASE_BUFFERS = 0x10;
export const SSL_OP_IGNORE_UNEXPECTED_EOF = 0x80;
export const SSL_OP_NO_TICKET = 0x4000;
export const SSL_OP_NO_COMPRESSION = 0x2_0000;
export const SSL_OP_CIPHER_SERVER_PREFERENCE = 0x40_0000;
export const SSL_OP_NO_TLSv1 = 0x400_0000;
export const SSL_OP_NO_TLSv1_2 = 0x800_0000;
export const SSL_OP_NO_TLSv1_1 = 0x1000_0000;
export const SSL_OP_NO_TLSv1_3 = 0x2000_0000;
export const SSL_OP_NO_RENEGOTIATION = 0x4000_0000;
export const SSL_VERIFY_NONE = 0;
export const SSL_VERIFY_PEER = 1;
export const SSL_VERIFY_FAIL_IF_NO_PEER_CERT = 2;
export const SSL_FILETYPE_PEM = 1;
export const SSL_ERROR_SSL = 1;
export const SSL_ERROR_WANT_READ = 2;
export const SSL_ERROR_WANT_WRITE = 3;
export const SSL_ERROR_SYSCALL = 5;
export const SSL_ERROR_ZERO_RETURN = 6;
export const SSL_TLSEXT_ERR_OK = 0;
export const SSL_TLSEXT_ERR_ALERT_FATAL = 2;
export const OPENSSL_NPN_NEGOTIATED = 1;
export const X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS = 4;
export const X509_V_OK = 0;
export const NID_commonName = 13;
export const NID_undef = 0;
export const NID_md5 = 4;
export const NID_sha1 = 64;
export const NID_sha256 = 672;
