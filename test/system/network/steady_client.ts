// Somebody at the console who asks one thing after the other, and prints a dot for each answer: a process of its own, so
// that what its test does meanwhile does not hold it up.

import process from "node:process";
import { RawClient } from "../../support/raw_client.ts";

const [port, user, password] = process.argv.slice(2) as [string, string, string];
const client = await RawClient.login({ host: "127.0.0.1", port: Number(port) }, {
  user,
  database: "pgbouncer",
  password,
});
for (;;) {
  await client.query("SHOW VERSION", 60_000);
  process.stdout.write(".");
}
