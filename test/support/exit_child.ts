// Starts a server that ignores SIGTERM and makes a temp folder, says so, and ends in the way its argument names.
// Not a test: managed_process_test.ts runs it.

import { ManagedProcess } from "./managed_process.ts";
import { tempDir } from "./temp.ts";

const dir = tempDir();
const server = await ManagedProcess.launch({
  command: ["sh", "-c", "trap '' TERM; exec sleep 600"],
});
console.log(`${server.pid} ${dir}`);

switch (process.argv[2]) {
  case "throw":
    throw new Error("on purpose");
  case "throw later":
    setTimeout(() => {
      throw new Error("on purpose");
    }, 1);
    break;
  case "reject":
    void Promise.reject(new Error("on purpose"));
    break;
  case "frozen server":
    server.signal("SIGSTOP");
    break;
  case "wait":
    setInterval(() => {}, 1_000);
    break;
}
