// A start that cannot go on, for a reason the operator can mend: its message is the one line printed
// before `pgweir` exits with 1. Anything else that is thrown is a bug and keeps its stack.

export class StartFailure extends Error {}

/** Its message is the report of `pgweir check`, printed as it is. */
export class BadConfig extends StartFailure {}

const explanations: Record<string, string> = {
  EACCES: "permission denied",
  EPERM: "not permitted",
  ENOENT: "no such file or directory",
  ENOTDIR: "a part of the path is no directory",
  EROFS: "read-only file system",
  ENOSPC: "no space left on the device",
  EISDIR: "it is a directory",
};

/** A failed file operation as a StartFailure; anything else is thrown again as it is. */
export function fileFailure(attempt: string, path: string, error: unknown): StartFailure {
  const code = (error as NodeJS.ErrnoException).code;
  if (code === undefined) throw error;
  return new StartFailure(`${attempt} "${path}": ${explanations[code] ?? code}`);
}
