// A real slapd (OpenLDAP) on random ports of 127.0.0.1: LDAP, with StartTLS, and LDAPS, with entries of its own.
// It takes a bind without a password for one of nobody, and says yes, as many directories do.

import { execFileSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import type { Certificate } from "./certificates.ts";
import { ManagedProcess } from "./managed_process.ts";
import { findProgram } from "./needs.ts";
import { freeze } from "./processes.ts";
import { freePort, tempDir } from "./temp.ts";

export const SUFFIX = "dc=example,dc=net";
/** May read everything. */
export const READER = { dn: `cn=reader,${SUFFIX}`, password: "reads all" };

export interface SlapdOptions {
  readonly certificate?: Certificate;
  /** More lines for its configuration, before the database. */
  readonly config?: string;
  /** Entries below the suffix, in LDIF. */
  readonly ldif: string;
}

export class Slapd {
  readonly host = "127.0.0.1";
  readonly port: number;
  /** 0 = it has no certificate. */
  readonly tlsPort: number;
  readonly #command: readonly string[];
  #process: ManagedProcess | null = null;

  constructor(port: number, tlsPort: number, command: readonly string[]) {
    this.port = port;
    this.tlsPort = tlsPort;
    this.#command = command;
  }

  get url(): string {
    return `ldap://${this.host}:${this.port}`;
  }

  async start(): Promise<void> {
    const server = await ManagedProcess.launch({ command: this.#command });
    this.#process = server;
    await server.ready("slapd to listen", () => listens(this.host, this.port));
  }

  async stop(): Promise<void> {
    const server = this.#process;
    this.#process = null;
    await server?.stop("SIGTERM");
  }

  /** Freezes it: connections are made by the kernel, and nothing is answered. */
  async pause(): Promise<void> {
    if (this.#process !== null) await freeze(this.#process.pid);
  }

  resume(): void {
    this.#process?.signal("SIGCONT");
  }
}

function listens(host: string, port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host, port });
    const answer = (good: boolean) => {
      socket.destroy();
      resolve(good);
    };
    socket.once("connect", () => answer(true));
    socket.once("error", () => answer(false));
  });
}

export async function startSlapd({ certificate, config = "", ldif }: SlapdOptions): Promise<Slapd> {
  const program = findProgram("slapd");
  if (program === null) throw new Error("start slapd: not installed");
  const dir = tempDir("slapd");
  const file = join(dir, "slapd.conf");
  mkdirSync(join(dir, "data"));
  const schemas = ["core", "cosine", "inetorgperson"].map((name) =>
    `include /etc/ldap/schema/${name}.schema`
  );
  const tls = certificate === undefined ? "" : `TLSCertificateFile ${certificate.certFile}
TLSCertificateKeyFile ${certificate.keyFile}
`;
  writeFileSync(
    file,
    `${schemas.join("\n")}
modulepath /usr/lib/ldap
moduleload back_mdb
pidfile ${dir}/slapd.pid
allow bind_anon_cred
${tls}${config}
database mdb
maxsize 10485760
suffix "${SUFFIX}"
directory ${dir}/data
access to attrs=userPassword by anonymous auth
access to * by dn="${READER.dn}" read by * none
`,
  );
  const entries = join(dir, "entries.ldif");
  writeFileSync(
    entries,
    `dn: ${SUFFIX}
objectClass: dcObject
objectClass: organization
o: Example
dc: example

dn: ${READER.dn}
objectClass: person
cn: reader
sn: reader
userPassword: ${READER.password}

${ldif}`,
  );
  execFileSync(findProgram("slapadd") ?? "slapadd", ["-f", file, "-l", entries], {
    stdio: ["ignore", "ignore", "pipe"],
  });
  const port = await freePort();
  const tlsPort = certificate === undefined ? 0 : await freePort();
  const urls = [
    `ldap://127.0.0.1:${port}`,
    ...(tlsPort === 0 ? [] : [`ldaps://127.0.0.1:${tlsPort}`]),
  ];
  const slapd = new Slapd(port, tlsPort, [program, "-f", file, "-h", urls.join(" "), "-d", "0"]);
  await slapd.start();
  return slapd;
}
