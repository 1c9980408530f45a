// Messages of many megabytes, of every kind that may be so large, in both directions: each passes through whole, in
// pieces no larger than a buffer, while another client of the same worker is served.
// limit: 400 s

import { assert, suite, until } from "../../support/harness.ts";
import { needs } from "../../support/needs.ts";
import { f } from "../../support/notation.ts";
import { startPgweir } from "../../support/pgweir.ts";
import { startPostgres } from "../../support/postgres.ts";
import { RawClient } from "../../support/raw_client.ts";
import { around, besides, BulkClient, GAP, growthOf, MIB } from "./bulk_client.ts";

needs("postgresql");

const postgres = await startPostgres();
const pooler = await startPgweir({
  ini: {
    databases: { postgres: `host=127.0.0.1 port=${postgres.port} pool_size=2` },
    pgbouncer: { max_prepared_statements: 1 },
  },
});
const login = { user: "postgres", database: "postgres" };
/** What a worker may keep of a message of any size. */
const mostMib = 8;

/**
 * Beside a bystander, with an eye on the worker's memory. An engine takes some more for its garbage now and then, but
 * what is kept of a message is kept every time: one of three times must be flat.
 */
async function flat(what: string, work: (client: BulkClient) => Promise<void>): Promise<void> {
  const grown: string[] = [];
  while (grown.length < 3) {
    const client = await BulkClient.login(pooler, login);
    const mib = await growthOf(pooler.pid, () => besides(pooler, login, () => work(client)));
    client.close();
    if (mib <= mostMib) return;
    grown.push(mib.toFixed(1));
  }
  throw new Error(`${what}: grew by ${grown.join(", ")} MiB`);
}

/** SQL for a text of so many FILL, quicker to make than by one letter at a time. */
const filled = (size: number) => `repeat(repeat('x', ${MIB}), ${size / MIB})`;

const tests = suite("large messages");

tests.before(async () => {
  await postgres.query("CREATE TABLE texts (t text)");
  // The first pieces that wait anywhere make the buffers they wait in, and code is compiled.
  const client = await BulkClient.login(pooler, login);
  await besides(pooler, login, async () => {
    for (let i = 0; i < 3; i++) {
      const [head, tail] = around(f.Q(`SELECT length('${GAP}')`), 16 * MIB);
      await client.sendLarge(head, 16 * MIB, tail);
      await client.replies();
      client.send(f.Q(`SELECT repeat('x', ${16 * MIB})`));
      await client.replies();
    }
  });
  client.close();
});

tests.after(async () => {
  await pooler.stop();
  await postgres.stop("immediate");
});

// A Bind is looked into for the names at its beginning; what follows them may be a whole file.
for (
  const [name, format] of [["", "text"], ["", "binary"], ["named", "text"], ["named", "binary"]]
) {
  const size = (name === "" ? 200 : 20) * MIB;
  const what = `a value of ${size / MIB} MiB in ${format} for ${name || "the unnamed statement"}`;
  tests(`${what} passes`, async () => {
    const sql = `SELECT octet_length($1::text), $1 = ${filled(size)}`;
    const value = format === "text" ? GAP : new TextEncoder().encode(GAP);
    await flat(what, async (client) => {
      client.send(f.P(name!, sql), f.S());
      assert.is(await client.replies(), "1 Z(I)");
      const [head, tail] = around(f.B("", name, [value]), size, true);
      // The unnamed one lasts until the end of its transaction; the named one has to come back for this.
      if (name === "") client.send(f.P("", sql));
      else {
        client.send(f.P("other", "SELECT 1"), f.S());
        assert.is(await client.replies(), "1 Z(I)");
      }
      await client.sendLarge(head, size, tail);
      client.send(f.E(), f.S(), f.Q("SELECT 'next'"));
      const parsed = name === "" ? "1 " : "";
      assert.is(
        await client.replies(2),
        `${parsed}2 D("${size}","t") C"SELECT 1" Z(I) T D("next") C"SELECT 1" Z(I)`,
      );
    });
  });
}

const texts: [string, Uint8Array, number, string][] = [
  ["a simple query of 64 MiB", f.Q(`SELECT length('${GAP}')`), 64 * MIB, `T D("${64 * MIB}")`],
  ["a comment of 16 MiB", f.Q(`SELECT 1 /* ${GAP} */`), 16 * MIB, 'T D("1")'],
  ["an argument of 16 MiB for a function", f.F(1257, [GAP]), 16 * MIB, "V"],
];

for (const [what, message, size, answer] of texts) {
  // A text was collected before any of it was sent, once in the buffer and once more in the queue.
  tests(`${what} passes`, async () => {
    await flat(what, async (client) => {
      const [head, tail] = around(message, size, message[0] === 0x46);
      await client.sendLarge(head, size, tail);
      const completed = answer === "V" ? "V Z(I)" : `${answer} C"SELECT 1" Z(I)`;
      assert.is(await client.replies(), completed);
      client.send(f.Q("SELECT 'next'"));
      assert.is(await client.replies(), 'T D("next") C"SELECT 1" Z(I)');
    });
  });
}

// The name is at the beginning, and whether it is one decides whether the text must be kept.
tests("an unnamed statement of 20 MiB passes, and a named one is refused at once", async () => {
  const size = 20 * MIB;
  const sql = `SELECT length('${GAP}')`;
  await flat("a Parse", async (client) => {
    const [head, tail] = around(f.P("", sql), size);
    await client.sendLarge(head, size, tail);
    client.send(f.B(), f.E(), f.S());
    assert.is(await client.replies(), `1 2 D("${size}") C"SELECT 1" Z(I)`);
  });
  // Refused by its length, before it is there: nothing of it is kept, however many there are.
  for (const where of ["outside", "in a transaction"]) {
    await flat(`refused Parses ${where}`, async (client) => {
      for (let i = 0; i < 2; i++) {
        const victim = await BulkClient.login(pooler, login);
        if (where !== "outside") {
          victim.send(f.Q("BEGIN"));
          assert.is(await victim.replies(), 'C"BEGIN" Z(T)');
        }
        const [head, tail] = around(f.P("large", sql), size);
        await victim.sendLarge(head, size, tail);
        assert.is(await victim.replies(), "E(54000) closed");
      }
      client.send(f.Q("SELECT 'next'"));
      assert.is(await client.replies(), 'T D("next") C"SELECT 1" Z(I)');
    });
  }
  await until(
    "their servers to be free",
    async () => (await postgres.backends()).every((backend) => backend.state === "idle"),
  );
});

// After an error all is skipped up to the Sync, and after a failed COPY its late data are; a length that was lost on the
// way made a message of what stood in the middle of another.
tests("large messages that are to be ignored are ignored whole", async () => {
  const size = 6 * MIB;
  await flat("ignored messages", async (client) => {
    const bind = around(f.B("", "", [GAP]), size, true);
    const query = around(f.Q(`SELECT '${GAP}'`), size);
    const parse = around(f.P("large", `SELECT '${GAP}'`), size / 2);
    const data = around(f.d(GAP), size);
    client.send(f.P("", "SELEC"));
    await client.sendLarge(bind[0], size, bind[1]);
    await client.sendLarge(parse[0], size / 2, parse[1]);
    await client.sendLarge(query[0], size, query[1]);
    client.send(f.E(), f.S(), f.Q("SELECT 'next'"));
    const next = 'T D("next") C"SELECT 1" Z(I)';
    assert.is(await client.replies(2), `E(42601) Z(I) ${next}`);
    client.send(f.Q("COPY texts FROM STDIN (FORMAT binary)"), f.d("no head of a file"));
    assert.is(await client.replies(), "G E(22P04) Z(I)");
    await client.sendLarge(data[0], size, data[1]);
    client.send(f.c(), f.Q("SELECT 'next'"));
    assert.is(await client.replies(), next);
  });
});

// A row was collected whole before any of it was passed on.
tests("a row of 200 MiB passes", async () => {
  const size = 200 * MIB;
  await flat("a row", async (client) => {
    client.send(f.Q(`SELECT ${filled(size)}`), f.Q("SELECT 'next'"));
    const row = `T D[${size + 6}] C"SELECT 1" Z(I)`;
    assert.is(await client.replies(2), `${row} T D("next") C"SELECT 1" Z(I)`);
    // And in the extended protocol, with the row between others.
    const sql = `SELECT CASE WHEN i = 2 THEN repeat('x', ${
      size / 20
    }) END FROM generate_series(1,3) i`;
    client.send(f.P("", sql), f.B(), f.E(), f.S());
    assert.is(
      await client.replies(),
      `1 2 D(NULL) D[${size / 20 + 6}] D(NULL) C"SELECT 3" Z(I)`,
    );
  });
});

// Only the beginning of an error is looked at, and it is no reason to wait for its end.
tests("a notice and an error of 20 MiB pass", async () => {
  const size = 20 * MIB;
  await flat("notices", async (client) => {
    for (const level of ["NOTICE", "EXCEPTION"]) {
      client.send(f.Q(`DO $$ BEGIN RAISE ${level} '%', ${filled(size)}; END $$`));
      const [first, ...rest] = (await client.replies()).split(" ");
      const letter = level === "NOTICE" ? "N" : "E";
      assert.ok(first!.startsWith(`${letter}[${size}`.slice(0, 5)), first);
      assert.is(rest.join(" "), level === "NOTICE" ? 'C"DO" Z(I)' : "Z(I)");
    }
    client.send(f.Q("SELECT 'next'"));
    assert.is(await client.replies(), 'T D("next") C"SELECT 1" Z(I)');
  });
});

// A CopyData message may be a GiB long; held whole, a few of them end a pooler.
tests("a CopyData of 64 MiB goes in, and a field of 100 MiB comes out", async () => {
  const size = 64 * MIB;
  await flat("copies", async (client) => {
    client.send(f.Q("COPY texts FROM STDIN"));
    const [head, tail] = around(f.d(`${GAP}\n`), size);
    await client.sendLarge(head, size, tail);
    client.send(f.c());
    assert.is(await client.replies(), 'G C"COPY 1" Z(I)');
    client.send(f.Q(`SELECT length(t), t = ${filled(size)} FROM texts`));
    assert.is(await client.replies(), `T D("${size}","t") C"SELECT 1" Z(I)`);
    client.send(f.Q("COPY texts TO STDOUT; TRUNCATE texts"));
    assert.is(await client.replies(), `H d[${size + 1}]!1 c C"COPY 1" C"TRUNCATE TABLE" Z(I)`);
    client.send(f.Q(`COPY (SELECT ${filled(100 * MIB)}) TO STDOUT`));
    assert.is(await client.replies(), `H d[${100 * MIB + 1}]!1 c C"COPY 1" Z(I)`);
    client.send(f.Q(`COPY (SELECT ${filled(20 * MIB)}) TO STDOUT (FORMAT binary)`));
    // The head of the file, the row's two lengths, and FILL.
    assert.is(await client.replies(), `H d[${20 * MIB + 25}] d c C"COPY 1" Z(I)`);
  });
});

// A client that leaves in the middle of a large message leaves a server that waits for the rest of it.
tests("a client that leaves in the middle of a large message frees its server", async () => {
  const messages: [string, Uint8Array, boolean][] = [
    ["Query", f.Q(`SELECT length('${GAP}')`), false],
    ["Bind", f.B("", "", [GAP]), true],
    ["Parse", f.P("", `SELECT length('${GAP}')`), false],
  ];
  for (const [what, message, sized] of messages) {
    for (const begun of [false, true]) {
      const client = await BulkClient.login(pooler, login);
      if (begun) client.send(f.Q("BEGIN"));
      if (what === "Bind") client.send(f.P("", "SELECT length($1::text)"));
      const [head] = around(message, 200 * MIB, sized);
      await client.sendLarge(head, 4 * MIB, new Uint8Array(0));
      client.close();
    }
    const next = [await RawClient.login(pooler, login), await RawClient.login(pooler, login)];
    for (const client of next) assert.equal(await client.query("BEGIN; SELECT 1"), [["1"]]);
    for (const client of next) await client.end();
  }
});

tests.run();
