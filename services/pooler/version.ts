// The version of pgweir, from the one place that has it: package.json.

import { readFileSync } from "node:fs";

const manifest = new URL("../../package.json", import.meta.url);

export const version = (JSON.parse(readFileSync(manifest, "utf8")) as { version: string }).version;
