// The benchmark's command line. Pure: arguments and the number of cores in, a plan or a refusal out.

import { parseArgs } from "node:util";

export const PROTOCOLS = ["simple", "extended", "prepared"] as const;
export type Protocol = (typeof PROTOCOLS)[number];

export type Product = "pgbouncer" | "pgweir";
export type Runtime = "bun" | "deno";
/** single: one process, one core's worth of pooler. fleet: as many as the machine has cores. */
export type Shape = "single" | "fleet";

export interface ContenderName {
  readonly id: string;
  readonly label: string;
  readonly product: Product;
  readonly runtime: Runtime | null;
  readonly shape: Shape;
}

/** In the order in which they run within a round. */
export const CONTENDERS: readonly ContenderName[] = (["single", "fleet"] as const).flatMap(
  (shape): ContenderName[] => {
    const suffix = shape === "fleet" ? "-fleet" : "";
    return [
      { id: `pgbouncer${suffix}`, label: "PgBouncer", product: "pgbouncer", runtime: null, shape },
      { id: `pgweir-bun${suffix}`, label: "pgweir, Bun", product: "pgweir", runtime: "bun", shape },
      {
        id: `pgweir-deno${suffix}`,
        label: "pgweir, Deno",
        product: "pgweir",
        runtime: "deno",
        shape,
      },
    ];
  },
);

export interface BenchOptions {
  readonly clients: readonly number[];
  readonly protocols: readonly Protocol[];
  readonly rounds: number;
  /** Of one measurement; pgbench takes whole seconds. */
  readonly seconds: number;
  /** Of one measurement of new connections. */
  readonly connectSeconds: number;
  readonly contenders: readonly ContenderName[];
  /** New connections per second and bytes per idle client are measured too. */
  readonly connections: boolean;
  readonly idleClients: number;
  /** Clients come by TLS. */
  readonly tls: boolean;
  readonly jsonFile: string | null;
  readonly baselineFile: string | null;
  readonly assertTargets: boolean;
}

export const USAGE = `npm run bench -- [options]        (or: deno task bench [options])

  --quick                 bounded: 8 and 32 clients, 3 rounds of 2 s, single processes; < 3 minutes
  --clients 1,8,32        numbers of pgbench clients (1,8,32,128,256)
  --protocols simple,...  ${PROTOCOLS.join(", ")} (all)
  --contenders a,b        ${CONTENDERS.map((c) => c.id).join(", ")} (all)
  --rounds 5              rounds; in each, every contender runs every workload once
  --seconds 4             length of one measurement, whole seconds
  --tls                   clients come by TLS; memory per idle client is not measured
  --no-connections        skip new connections per second and bytes per idle client
  --idle-clients 2000     how many idle clients to open for that
  --json file             write everything measured
  --baseline file         compare with the --json of an earlier run
  --assert                exit with 1 when a target is missed

environment: PGBOUNCER=/path/to/pgbouncer measures against another binary than the system's.`;

/** A wrong command line; its message is for the user. */
export class UsageError extends Error {}

/** Returns null when help was asked for. */
export function parseOptions(args: readonly string[], cores: number): BenchOptions | null {
  let values: ReturnType<typeof parse>["values"];
  try {
    values = parse(args).values;
  } catch (error) {
    throw new UsageError(`read the command line: ${(error as Error).message}`);
  }
  if (values.help === true) return null;
  const quick = values.quick === true;
  const fleetsMakeSense = cores > 1;
  const defaults = CONTENDERS.filter((c) => c.shape === "single" || (!quick && fleetsMakeSense));
  const seconds = count("--seconds", values.seconds ?? (quick ? "2" : "4"), 1, 3600);
  return {
    clients: values.clients === undefined
      ? (quick ? [8, 32] : [1, 8, 32, 128, 256])
      : list("--clients", values.clients).map((text) => count("--clients", text, 1, 10_000)),
    protocols: values.protocols === undefined
      ? PROTOCOLS
      : list("--protocols", values.protocols).map((text) =>
        pick("--protocols", text, PROTOCOLS, (p) => p)
      ),
    rounds: count("--rounds", values.rounds ?? (quick ? "3" : "5"), 1, 1000),
    seconds,
    connectSeconds: quick ? 1 : seconds,
    contenders: values.contenders === undefined
      ? defaults
      : list("--contenders", values.contenders).map((text) =>
        pick("--contenders", text, CONTENDERS, (c) => c.id)
      ),
    connections: values["no-connections"] !== true,
    idleClients: count("--idle-clients", values["idle-clients"] ?? "2000", 1, 100_000),
    tls: values.tls === true,
    jsonFile: values.json ?? null,
    baselineFile: values.baseline ?? null,
    assertTargets: values.assert === true,
  };
}

function parse(args: readonly string[]) {
  return parseArgs({
    args: [...args],
    allowPositionals: false,
    options: {
      help: { type: "boolean", short: "h" },
      quick: { type: "boolean" },
      clients: { type: "string" },
      protocols: { type: "string" },
      contenders: { type: "string" },
      rounds: { type: "string" },
      seconds: { type: "string" },
      tls: { type: "boolean" },
      "no-connections": { type: "boolean" },
      "idle-clients": { type: "string" },
      json: { type: "string" },
      baseline: { type: "string" },
      assert: { type: "boolean" },
    },
  });
}

function list(option: string, text: string): string[] {
  const parts = text.split(",").map((part) => part.trim()).filter((part) => part !== "");
  if (parts.length === 0) throw new UsageError(`read ${option}: an empty list, a value wanted`);
  return [...new Set(parts)];
}

function count(option: string, text: string, low: number, high: number): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < low || value > high) {
    throw new UsageError(
      `read ${option}: "${text}" given, a whole number from ${low} to ${high} wanted`,
    );
  }
  return value;
}

function pick<T>(option: string, text: string, from: readonly T[], name: (t: T) => string): T {
  const found = from.find((candidate) => name(candidate) === text);
  if (found === undefined) {
    throw new UsageError(
      `read ${option}: "${text}" given, one of ${from.map(name).join(", ")} wanted`,
    );
  }
  return found;
}
