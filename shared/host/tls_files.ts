// What is wrong with the files and words of the TLS settings, found by making of them what a worker would make, and
// letting go of it again.

import {
  clientTlsPlan,
  loadConfig,
  type Loaded,
  type ReadFile,
  readFromDisk,
  requiresTls,
  serverTlsPlan,
  type Settings,
} from "../config/mod.ts";
import { openSslProblem, TlsContext, TlsError } from "../sys/mod.ts";

/** Each names its setting. */
export function tlsFileProblems(settings: Settings): string[] {
  const server = serverTlsPlan(settings);
  const mayDoWithout = !requiresTls(settings.serverTlsSslmode) && openSslProblem() !== null;
  const problems: string[] = [];
  for (const plan of [clientTlsPlan(settings), mayDoWithout ? null : server]) {
    if (plan === null) continue;
    try {
      new TlsContext(plan).free();
    } catch (error) {
      if (!(error instanceof TlsError)) throw error;
      problems.push(error.message);
    }
  }
  return problems;
}

/** As loadConfig(), and with a look at the files that the TLS settings name. */
export function loadWithFiles(path: string, readFile: ReadFile = readFromDisk): Loaded {
  const loaded = loadConfig(path, readFile);
  if (loaded.config === null) return loaded;
  const problems = tlsFileProblems(loaded.config.settings);
  if (problems.length === 0) return loaded;
  const { warnings } = loaded;
  return {
    config: null,
    problems: problems.map((message) => ({ file: path, line: 0, message })),
    warnings,
  };
}
