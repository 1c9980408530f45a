// Writes deploy/config.md, the reference of all settings, from the table in shared/config/settings.ts:
// `bun deploy/write_config.ts`. A test tells when it is not current.

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { renderReference } from "../shared/config/mod.ts";

writeFileSync(join(import.meta.dirname!, "config.md"), renderReference());
