// What is wrong with what the settings name outside of the configuration: files and words of TLS, found by making of
// them what a worker would make, and letting go of it again; and PAM.

import {
  clientTlsPlan,
  type Config,
  loadConfig,
  type Loaded,
  type ReadFile,
  readFromDisk,
  requiresTls,
  serverTlsPlan,
  type Settings,
} from "../config/mod.ts";
import { openSslProblem, pamProblem, TlsContext, TlsError } from "../sys/mod.ts";

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

/** Whether logins are to be judged by PAM, and it is not there. */
export function pamProblems({ settings: { authType, pamConfigDir }, hba }: Config): string[] {
  const isUsed = authType === "pam" || hba.some(({ pamService }) => pamService !== null);
  const problem = isUsed ? pamProblem(pamConfigDir !== "") : null;
  return problem === null ? [] : [problem];
}

/** As loadConfig(), and with a look at what the settings name outside of the configuration. */
export function loadWithFiles(path: string, readFile: ReadFile = readFromDisk): Loaded {
  const loaded = loadConfig(path, readFile);
  if (loaded.config === null) return loaded;
  const problems = [...tlsFileProblems(loaded.config.settings), ...pamProblems(loaded.config)];
  if (problems.length === 0) return loaded;
  const { warnings } = loaded;
  return {
    config: null,
    problems: problems.map((message) => ({ file: path, line: 0, message })),
    warnings,
  };
}
