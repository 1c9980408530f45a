// Runs an embedded bus in a process of its own, for tests that freeze and kill it.
// Arguments: port, token, limits as JSON.

import process from "node:process";
import { EmbeddedBus } from "../../shared/bus/mod.ts";

const [port, token = "", limits = "{}"] = process.argv.slice(2);
const bus = new EmbeddedBus(JSON.parse(limits));
process.on("SIGTERM", () => void bus.close().then(() => process.exit(0)));
const { url } = await bus.start({ port: Number(port), token });
console.log(`ready ${url}`);
