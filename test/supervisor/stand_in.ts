// The commands of stand-ins for the supervisor's children. Not a test: fleet_test.ts and up_process.ts use it.
//
// One that is told to crash does so before a runtime is started for it: five have to die within the ten seconds of a
// crash loop, also where a runtime needs seconds to start.

import { join } from "node:path";
import { runtimeCommand } from "../../shared/sys/mod.ts";

/** Goes by the first of the files with orders that is there, as the stand-ins themselves do. */
const crashOrRun = (orders: string) => `
folder=$1
shift
seat=\${PGWEIR_FLEET#*'"index":'}
seat=\${seat%%[!0-9]*}
for order in ${orders}; do
  [ -e "$folder/$order" ] || continue
  read -r word text < "$folder/$order"
  [ "$word" = crash ] || break
  echo "first a line that does not matter" >&2
  echo "$text" >&2
  exit 3
done
exec "$@"
`;

function standIn(orders: string, script: string, folder: string): string[] {
  const command = [...runtimeCommand(), join(import.meta.dirname!, script), folder];
  return ["/bin/sh", "-c", crashOrRun(orders), "stand-in", folder, ...command];
}

/** argv of a worker that is told by files in `folder` what to do: see fake_worker.ts. */
export function fakeWorker(folder: string): string[] {
  return standIn('"mode.$seat" mode', "fake_worker.ts", folder);
}

/** argv of a coordinator, or a monitor, that is told so: see fake_coordinator.ts. */
export function fakeCoordinator(folder: string): string[] {
  return standIn("coordinator", "fake_coordinator.ts", folder);
}
