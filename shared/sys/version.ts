// The version of pgweir, from the one place that has it: package.json.

import { readFileSync } from "node:fs";
import { join } from "node:path";

const manifest = join(import.meta.dirname!, "../../package.json");

export const pgweirVersion: string = JSON.parse(readFileSync(manifest, "utf8")).version;
