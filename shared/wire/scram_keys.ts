// The keys of SCRAM-SHA-256: stored secrets in PostgreSQL's form, PBKDF2, derived keys, stand-ins for
// unknown users. The exchanges of messages are in scram.ts.
// Iteration counts and salts are bounded, whoever sent them: nobody may make us compute for hours.

import { createHash, createHmac, pbkdf2, timingSafeEqual } from "node:crypto";
import { preparePassword } from "./saslprep.ts";
import { decodeBase64, encodeBase64, encodeUtf8, latin1Bytes } from "./text.ts";

/** The most iterations that are taken from a peer or a file: some seconds of one core. */
export const maxScramIterations = 10_000_000;
/** PostgreSQL's default, and of secrets made here. */
export const defaultScramIterations = 4096;

export const keyBytes = 32;
/** As PostgreSQL's. */
const saltBytes = 16;
export const maxSaltBytes = 1024;

/** What a server stores instead of a password. */
export type ScramSecret = {
  iterations: number;
  salt: Uint8Array;
  storedKey: Uint8Array;
  serverKey: Uint8Array;
};

/** Reads "SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>"; null for anything else. */
export function parseScramSecret(text: string): ScramSecret | null {
  const match = /^SCRAM-SHA-256\$([0-9]{1,8}):([^$:]*)\$([^$:]*):([^$:]*)$/.exec(text);
  if (!match) return null;
  const iterations = Number(match[1]);
  const salt = decodeBase64(match[2]!);
  const storedKey = decodeBase64(match[3]!);
  const serverKey = decodeBase64(match[4]!);
  if (!salt || salt.length === 0 || salt.length > maxSaltBytes) return null;
  if (storedKey?.length !== keyBytes || serverKey?.length !== keyBytes) return null;
  return isIterationCount(iterations) ? { iterations, salt, storedKey, serverKey } : null;
}

/** The form that PostgreSQL stores in pg_authid. */
export function formatScramSecret(secret: ScramSecret): string {
  const keys = `${encodeBase64(secret.storedKey)}:${encodeBase64(secret.serverKey)}`;
  return `SCRAM-SHA-256$${secret.iterations}:${encodeBase64(secret.salt)}$${keys}`;
}

export function isIterationCount(iterations: number): boolean {
  return Number.isInteger(iterations) && iterations >= 1 && iterations <= maxScramIterations;
}

/**
 * PBKDF2-SHA-256 of the SASLprepared password, on a thread of the runtime; bytes that are not UTF-8
 * are taken raw. Rejects with RangeError when the iterations are out of bounds (1 to 10,000,000).
 */
export function saltedPassword(
  password: string | Uint8Array,
  salt: Uint8Array,
  iterations: number,
): Promise<Uint8Array> {
  return new Promise((resolve, reject) => {
    if (!isIterationCount(iterations)) {
      const wanted = `wanted 1 to ${maxScramIterations}`;
      throw new RangeError(`derive SCRAM key: ${iterations} iterations, ${wanted}`);
    }
    pbkdf2(preparePassword(password), salt, iterations, keyBytes, "sha256", (error, key) => {
      if (error) reject(error);
      else resolve(new Uint8Array(key));
    });
  });
}

export type ScramKeys = { clientKey: Uint8Array; serverKey: Uint8Array };

/** Both keys of a salted password. */
export function scramKeys(saltedPassword: Uint8Array): ScramKeys {
  return {
    clientKey: hmac(saltedPassword, latin1Bytes("Client Key")),
    serverKey: hmac(saltedPassword, latin1Bytes("Server Key")),
  };
}

/** The secret of a salted password; salt and iterations must be those it was made with. */
export function deriveScramSecret(
  saltedPassword: Uint8Array,
  salt: Uint8Array,
  iterations: number,
): ScramSecret {
  const { clientKey, serverKey } = scramKeys(saltedPassword);
  return { iterations, salt: new Uint8Array(salt), storedKey: sha256(clientKey), serverKey };
}

/** Whether the salted password of a clear-text login is the one of the secret; constant time. */
export function scramSecretMatches(secret: ScramSecret, saltedPassword: Uint8Array): boolean {
  return timingSafeEqual(scramKeys(saltedPassword).serverKey, secret.serverKey);
}

/** Stands in for the secret of a user that has none; an exchange with it always fails. */
export type MockScramSecret = ScramSecret & { mock: true };

/**
 * A secret for an unknown user: the same user gets the same salt as long as `key` stays, so that it
 * looks like any other user from outside. The key must be secret, and the same on all workers.
 */
export function mockScramSecret(
  key: Uint8Array,
  user: string,
  iterations: number = defaultScramIterations,
): MockScramSecret {
  const part = (label: string) => hmac(key, encodeUtf8(`${label}\0${user}`));
  const salt = part("salt").slice(0, saltBytes);
  return {
    mock: true,
    iterations,
    salt,
    storedKey: part("stored key"),
    serverKey: part("server key"),
  };
}

export function hmac(key: Uint8Array, data: Uint8Array): Uint8Array {
  return new Uint8Array(createHmac("sha256", key).update(data).digest());
}

export function sha256(data: Uint8Array): Uint8Array {
  return new Uint8Array(createHash("sha256").update(data).digest());
}
