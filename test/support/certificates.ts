// Throw-away certificates made by the openssl program: an authority of our own, and what it signs.
// A file that uses them says needs("openssl"). Keys are readable by everybody's server user, so for tests only.

import { execFileSync } from "node:child_process";
import { chmodSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { tempDir } from "./temp.ts";

export interface Certificate {
  readonly certFile: string;
  readonly keyFile: string;
}

export class CertificateAuthority {
  readonly dir: string = tempDir("certs");
  readonly caFile: string = join(this.dir, "ca.crt");
  readonly #keyFile = join(this.dir, "ca.key");

  constructor(name = "test authority") {
    this.#openssl(
      "req",
      "-x509",
      ...this.#newKey(this.#keyFile),
      "-out",
      this.caFile,
      "-subj",
      `/CN=${name}`,
    );
  }

  /** The authority's certificate in PEM. */
  get pem(): string {
    return readFileSync(this.caFile, "utf8");
  }

  /** Signs a certificate for a common name; `hosts` are DNS names or IP addresses it is valid for. */
  issue(name: string, hosts: readonly string[] = []): Certificate {
    return this.#issue(name, hosts, (file) => this.#newKey(file), "sha256");
  }

  /** The same with an RSA key, signed with another hash. */
  issueRsa(name: string, hosts: readonly string[], hash: "sha256" | "sha384"): Certificate {
    const newKey = (file: string) => ["-newkey", "rsa:2048", "-nodes", "-keyout", file];
    return this.#issue(name, hosts, newKey, hash);
  }

  #issue(
    name: string,
    hosts: readonly string[],
    newKey: (file: string) => string[],
    hash: string,
  ): Certificate {
    const base = join(this.dir, name.replace(/[^a-z0-9_.-]/gi, "_"));
    const certFile = `${base}.crt`;
    const keyFile = `${base}.key`;
    const alternatives = hosts.map((host) => `${/^[\d.]+$|:/.test(host) ? "IP" : "DNS"}:${host}`);
    writeFileSync(
      `${base}.ext`,
      "basicConstraints=CA:FALSE\n" +
        (hosts.length > 0 ? `subjectAltName=${alternatives.join(",")}\n` : ""),
    );
    this.#openssl("req", ...newKey(keyFile), "-out", `${base}.csr`, "-subj", `/CN=${name}`);
    this.#openssl(
      ...[
        "x509",
        "-req",
        `-${hash}`,
        "-in",
        `${base}.csr`,
        "-CA",
        this.caFile,
        "-CAkey",
        this.#keyFile,
      ],
      ...["-CAcreateserial", "-days", "2", "-extfile", `${base}.ext`, "-out", certFile],
    );
    return { certFile, keyFile };
  }

  /** A copy of a key, under a password. */
  encryptKey(keyFile: string, password: string): string {
    const file = `${keyFile}.encrypted`;
    this.#openssl(
      ...["pkey", "-in", keyFile, "-aes256", "-passout", `pass:${password}`, "-out", file],
    );
    return file;
  }

  #newKey(file: string): string[] {
    return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", file];
  }

  #openssl(...args: string[]): void {
    execFileSync("openssl", args, { stdio: ["ignore", "ignore", "pipe"] });
    const keyAt = args.indexOf("-keyout");
    if (keyAt >= 0) chmodSync(args[keyAt + 1]!, 0o644);
  }
}
