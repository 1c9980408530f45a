// SHOW CONFIG beside that of Debian's PgBouncer, both with the same file: the same keys, defaults and values, and the
// same ones that can be changed while it runs.

import { assert, suite } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { startPgbouncer } from "../../support/pgbouncer.ts";
import { startPgweir } from "../../support/pgweir.ts";
import type { ConsoleRow } from "../../support/pooler.ts";

needs("pgbouncer");

const test = suite("SHOW CONFIG");

const differ = new Set([
  // Each has its own.
  "auth_file",
  "conffile",
  "listen_port",
  "unix_socket_dir",
  // Defaults that later versions than 1.18 have changed.
  "client_tls_ciphers",
  "server_tls_ciphers",
  "server_tls_sslmode",
  "server_check_query",
  // 1.18 has no default for it.
  "verbose",
  // 1.18 shows it as a decimal number.
  "unix_socket_mode",
]);

test("every key of PgBouncer is there, with its default, its value and whether it can be changed", async () => {
  const settings = { default_pool_size: 7, query_wait_timeout: 3, unix_socket_mode: "0700" };
  const options = { ini: { databases: { "*": "host=127.0.0.1" }, pgbouncer: settings } };
  const poolers = [await startPgbouncer(options), await startPgweir(options)];
  const rows: ConsoleRow[][] = [];
  for (const pooler of poolers) rows.push(await pooler.console("SHOW CONFIG"));
  for (const pooler of poolers) await pooler.stop();
  const [theirs, ours] = rows as [ConsoleRow[], ConsoleRow[]];
  assert.equal(Object.keys(ours[0]!), Object.keys(theirs[0]!));
  const differing: unknown[] = [];
  for (const row of theirs) {
    const own = ours.find(({ key }) => key === row["key"]);
    assert.ok(own !== undefined, String(row["key"]));
    if (differ.has(String(row["key"]))) continue;
    const plain = ({ value, default: byDefault, changeable }: ConsoleRow) => {
      const number = (text: string | null | undefined) =>
        text === null || text === undefined || text.trim() === "" || Number.isNaN(Number(text))
          ? text ?? ""
          : Number(text);
      return [number(value), number(byDefault), changeable];
    };
    if (JSON.stringify(plain(own)) !== JSON.stringify(plain(row))) differing.push({ row, own });
  }
  assert.equal(differing, []);
});

test.run();
