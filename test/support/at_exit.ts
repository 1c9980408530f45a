// What must be undone when a test process ends, however it ends: normally, by an exception or by a signal.
// Actions are synchronous and run in reverse order, once. Only SIGKILL escapes; then the runner cleans up.

const actions: (() => void)[] = [];
let installed = false;

function runActions(): void {
  for (let action = actions.pop(); action !== undefined; action = actions.pop()) {
    try {
      action();
    } catch (error) {
      console.error("clean up:", error);
    }
  }
}

function install(): void {
  installed = true;
  process.on("exit", runActions);
  for (const [name, code] of [["SIGHUP", 129], ["SIGINT", 130], ["SIGTERM", 143]] as const) {
    process.on(name, () => process.exit(code));
  }
  // Deno ends a process on an uncaught error without its exit event: these make sure there is one.
  for (const name of ["uncaughtException", "unhandledRejection"] as const) {
    process.on(name, (error) => {
      console.error(error);
      process.exit(1);
    });
  }
}

/** Registers an action for the end of the process; the returned function takes it back. */
export function atExit(action: () => void): () => void {
  if (!installed) install();
  actions.push(action);
  return () => {
    const at = actions.indexOf(action);
    if (at >= 0) actions.splice(at, 1);
  };
}

const pause = new Int32Array(new SharedArrayBuffer(4));

/** Blocks the thread until `probe` is true or the time is over; for actions at exit only. */
export function waitBlocking(probe: () => boolean, timeoutMs: number): boolean {
  const deadline = performance.now() + timeoutMs;
  while (!probe()) {
    if (performance.now() > deadline) return false;
    Atomics.wait(pause, 0, 0, 5);
  }
  return true;
}
