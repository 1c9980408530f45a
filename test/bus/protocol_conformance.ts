// The protocol a broker must speak, whichever broker it is, as the NATS client and bare sockets see
// it. Adds its tests to one suite and runs it.

import { Buffer } from "node:buffer";
import { createHash } from "node:crypto";
import { headers, type Msg, type NatsConnection } from "nats";
import { connectNats } from "../../shared/bus/transport.ts";
import { assert, seededRandom, suite, until } from "../support/harness.ts";
import { sendByteByByte, sendCut } from "../support/slow_send.ts";
import type { Broker, StartBroker } from "./brokers.ts";
import { connectLine, RawNats, within } from "./raw_nats.ts";

function listen(
  client: NatsConnection,
  pattern: string,
  handler: (msg: Msg) => unknown,
  queue?: string,
): { unsubscribe(): void } {
  const callback = (_: Error | null, msg: Msg): void => void handler(msg);
  return client.subscribe(pattern, queue === undefined ? { callback } : { callback, queue });
}

export function protocolConformance(name: string, startBroker: StartBroker): void {
  const test = suite(name);
  let broker: Broker;
  const opened: { close(): Promise<void> | void }[] = [];

  function closeLater<T extends { close(): Promise<void> | void }>(client: T): T {
    opened.push(client);
    return client;
  }

  async function client(of = broker): Promise<NatsConnection> {
    const options = { servers: of.url, token: of.token, reconnect: false };
    return closeLater(await connectNats(options));
  }

  async function raw(options: Record<string, unknown> = {}): Promise<RawNats> {
    return closeLater(await RawNats.login(broker.port, broker.token, options));
  }

  test.before(async () => {
    broker = await startBroker({});
  });
  test.after.each(async () => {
    for (const one of opened.splice(0)) await one.close();
  });
  test.after(async () => {
    await broker.stop();
  });

  test("publish() reaches every subscriber of the subject, in order", async () => {
    const [publisher, first, second] = [await client(), await client(), await client()];
    const got: string[][] = [[], []];
    listen(first, "a.b", (msg) => got[0]?.push(msg.string()));
    listen(second, "a.b", (msg) => got[1]?.push(msg.string()));
    listen(second, "a.c", () => got[1]?.push("stray"));
    await Promise.all([first.flush(), second.flush()]);
    const sent = Array.from({ length: 500 }, (_, i) => `message ${i}`);
    for (const text of sent) publisher.publish("a.b", text);
    publisher.publish("a.b", "");
    await until("all messages", () => got.every((list) => list.length === 501));
    assert.equal(got, [[...sent, ""], [...sent, ""]]);
  });

  test("subscribe() with wildcards matches tokens", async () => {
    const rows: [pattern: string, subject: string, matches: boolean][] = [
      ["a.*", "a.b", true],
      ["a.*", "a", false],
      ["a.*", "a.b.c", false],
      ["*.b", "a.b", true],
      ["*.*.c", "a.b.c", true],
      ["a.>", "a.b", true],
      ["a.>", "a.b.c.d", true],
      ["a.>", "a", false],
      [">", "a", true],
      [">", "a.b.c", true],
      ["*", "a", true],
      ["*", "a.b", false],
      ["*.>", "a.b.c", true],
      ["a.*.>", "a.b", false],
      ["a.*.>", "a.b.c", true],
      ["a.b*", "a.bc", false],
      ["a.b>", "a.b>", true],
      ["a.*.c", "a.bb.c", true],
      ["A.b", "a.b", false],
      ["a.caf\u00e9", "a.caf\u00e9", true],
    ];
    const publisher = await client();
    for (const [pattern, subject, matches] of rows) {
      const subscriber = await client();
      let count = 0;
      listen(subscriber, `w.${pattern}`, () => count += 1);
      await subscriber.flush();
      publisher.publish(`w.${subject}`, "x");
      await publisher.flush();
      await subscriber.flush();
      assert.is(count, matches ? 1 : 0, `${pattern} ${subject}`);
      await subscriber.close();
    }
  });

  test("subscribe() twice gets a message once per subscription, unsubscribe() ends one", async () => {
    const one = await client();
    const got: string[] = [];
    const exact = listen(one, "o.x", (msg) => got.push(`exact ${msg.string()}`));
    listen(one, "o.*", (msg) => got.push(`wild ${msg.string()}`));
    one.publish("o.x", "1");
    await one.flush();
    exact.unsubscribe();
    one.publish("o.x", "2");
    await one.flush();
    assert.equal(got.sort(), ["exact 1", "wild 1", "wild 2"]);
  });

  test("queue groups get each message once and share them", async () => {
    const publisher = await client();
    const members = [await client(), await client(), await client()];
    const counts = members.map(() => 0);
    const seen = new Map<string, number>();
    let plain = 0;
    members.forEach((member, i) => {
      const take = (msg: Msg): void => {
        counts[i] = (counts[i] ?? 0) + 1;
        seen.set(msg.string(), (seen.get(msg.string()) ?? 0) + 1);
      };
      listen(member, "q.*", take, "workers");
    });
    const loner = await client();
    listen(loner, "q.x", () => plain += 1);
    const all = [...members, loner];
    await Promise.all(all.map((member) => member.flush()));
    for (let i = 0; i < 300; i += 1) publisher.publish("q.x", `${i}`);
    await publisher.flush();
    await Promise.all(all.map((member) => member.flush()));
    assert.is(plain, 300);
    assert.is(seen.size, 300);
    assert.ok([...seen.values()].every((times) => times === 1));
    assert.ok(counts.every((count) => count > 30), `${counts}`);
    await members[0]?.close();
    await members[1]?.close();
    seen.clear();
    // The broker may not have noticed yet that the others left, and what it gave them is lost.
    await until("the last member to get one", () => {
      publisher.publish("q.x", "last");
      return seen.has("last");
    });
  });

  test("request() gets the answer, and an error at once when nobody listens", async () => {
    const [asker, answerer] = [await client(), await client()];
    listen(answerer, "r.double", (msg) => msg.respond(`${Number(msg.string()) * 2}`));
    await answerer.flush();
    const answers = await Promise.all(
      Array.from({ length: 100 }, (_, i) => asker.request("r.double", `${i}`, { timeout: 30_000 })),
    );
    assert.equal(
      answers.map((msg) => msg.string()),
      Array.from({ length: 100 }, (_, i) => `${i * 2}`),
    );
    const refused = asker.request("r.nobody", "", { timeout: 60_000 }).then(
      () => "answered",
      (error: Error) => error.message,
    );
    assert.match(await within("the refusal", refused), /no responders/);
  });

  test("headers arrive with the payload; a client without headers gets the payload alone", async () => {
    const [publisher, subscriber] = [await client(), await client()];
    const plain = await raw();
    await plain.write("SUB h.x 9\r\nPING\r\n");
    await plain.expect(/PONG\r\n/);
    plain.forget();
    const sent = headers();
    sent.append("trace", "one");
    sent.append("trace", "two");
    sent.set("empty", "");
    const got: [string, string[], string][] = [];
    listen(subscriber, "h.x", ({ data, headers: all }) => {
      got.push([
        Buffer.from(data).toString(),
        all?.values("trace") ?? [],
        all?.get("empty") ?? "-",
      ]);
    });
    await subscriber.flush();
    publisher.publish("h.x", "payload", { headers: sent });
    publisher.publish("h.x", "", { headers: sent });
    await until("both messages", () => got.length === 2);
    assert.equal(got, [["payload", ["one", "two"], ""], ["", ["one", "two"], ""]]);
    await plain.expect(/^MSG h\.x 9 7\r\npayload\r\nMSG h\.x 9 0\r\n\r\n$/);
  });

  test("unsubscribe() with a maximum ends after that many", async () => {
    const one = await raw();
    await one.write("SUB u.x 1\r\nUNSUB 1 3\r\n");
    for (let i = 0; i < 5; i += 1) await one.write(`PUB u.x 1\r\n${i}\r\n`);
    await one.write("PING\r\n");
    assert.is(
      await one.expect(/PONG\r\n/),
      "MSG u.x 1 1\r\n0\r\nMSG u.x 1 1\r\n1\r\nMSG u.x 1 1\r\n2\r\nPONG\r\n",
    );
    one.forget();
    // A maximum that is reached already ends it at once.
    await one.write("SUB u.y 2\r\nPUB u.y 1\r\na\r\nPUB u.y 1\r\nb\r\nUNSUB 2 1\r\n");
    await one.write("PUB u.y 1\r\nc\r\nUNSUB 77\r\nPING\r\n");
    assert.is(await one.expect(/PONG\r\n/), "MSG u.y 2 1\r\na\r\nMSG u.y 2 1\r\nb\r\nPONG\r\n");
  });

  test("many small and some large messages arrive whole and in order", async () => {
    const [publisher, subscriber] = [await client(), await client()];
    const small = createHash("sha256");
    const large: string[] = [];
    let count = 0;
    listen(subscriber, "m.small", (msg) => {
      small.update(msg.data);
      count += 1;
    });
    listen(
      subscriber,
      "m.large",
      (msg) => large.push(createHash("sha256").update(msg.data).digest("hex")),
    );
    await subscriber.flush();
    const expected = createHash("sha256");
    for (let i = 0; i < 20_000; i += 1) {
      const bytes = Buffer.from(`small message ${i}`);
      expected.update(bytes);
      publisher.publish("m.small", bytes);
      if (i % 2000 === 0) await publisher.flush();
    }
    const expectedLarge: string[] = [];
    for (let i = 0; i < 100; i += 1) {
      const bytes = Buffer.alloc(60 * 1024, i + 1);
      expectedLarge.push(createHash("sha256").update(bytes).digest("hex"));
      publisher.publish("m.large", bytes);
      if (i % 10 === 0) await publisher.flush();
    }
    await until("all messages", () => count === 20_000 && large.length === 100);
    assert.is(small.digest("hex"), expected.digest("hex"));
    assert.equal(large, expectedLarge);
  });

  // The protocol, byte for byte.

  /** The queue group differs per connection: others in it would get a share of the messages. */
  const script = (group: number): string =>
    connectLine(broker.token, { headers: true, no_responders: true }) +
    `SUB s.> 3\r\nSUB s.* g${group} 12\r\nSUB s.a 7\r\nPUB s.a s.reply 5\r\nhe\r\no\r\n` +
    "HPUB s.a 14 16\r\nNATS/1.0\r\n\r\n\r\nhi\r\nUNSUB 7\r\nPUB nobody s.b 0\r\n\r\nPING\r\n";

  /** Deliveries to two subscriptions come in either order. */
  const frames = (text: string): string[] => text.split(/(?=^H?MSG|^PONG|^-ERR|^\+OK)/m).sort();

  test("input may be split at every byte", async () => {
    const whole = closeLater(await RawNats.dial(broker.port));
    await whole.write(script(0));
    const expected = frames(await whole.expect(/PONG\r\n/));
    // Twice three deliveries, the 503 on the plain subscription, PONG.
    assert.is(expected.length, 8, JSON.stringify(expected));
    const slow = closeLater(await RawNats.dial(broker.port));
    await sendByteByByte(slow.socket, Buffer.from(script(1)));
    assert.equal(frames(await slow.expect(/PONG\r\n/)), expected);
    const length = script(1000).length;
    for (let cut = 1; cut < length; cut += 1) {
      const split = await RawNats.dial(broker.port);
      await sendCut(split.socket, Buffer.from(script(1000 + cut)), [cut]);
      assert.equal(frames(await split.expect(/PONG\r\n/)), expected, `cut at ${cut}`);
      split.close();
    }
  });

  test("verbose clients get +OK for each command, PONG for PING", async () => {
    const one = closeLater(await RawNats.dial(broker.port));
    await one.write(connectLine(broker.token, { verbose: true }));
    await one.write("PING\r\nSUB v.x 1\r\nPUB v.y 2\r\nhi\r\nUNSUB 1\r\nPING\r\n");
    assert.is(
      await one.expect(/PONG\r\n[^]*PONG\r\n/),
      "+OK\r\nPONG\r\n+OK\r\n+OK\r\n+OK\r\nPONG\r\n",
    );
  });

  test("echo false keeps a client's own messages from it", async () => {
    const quiet = await raw({ echo: false, protocol: 1 });
    const other = await raw();
    await other.write("SUB e.x 1\r\nPING\r\n");
    await other.expect(/PONG\r\n/);
    await quiet.write("SUB e.x 5\r\nPUB e.x 1\r\nq\r\nPING\r\n");
    await other.expect(/MSG e\.x 1 1\r\nq\r\n/);
    await other.write("PUB e.x 1\r\no\r\n");
    await quiet.expect(/MSG e\.x 5 1\r\no\r\n/);
    assert.is(quiet.text, "PONG\r\nMSG e.x 5 1\r\no\r\n");
  });

  test("commands are taken in any case and with any blanks", async () => {
    const one = await raw();
    await one.write("sub \t c.x  1 \r\nPub c.x \t 2\r\nhi\r\npiNG\r\n");
    assert.is(await one.expect(/PONG\r\n/), "MSG c.x 1 2\r\nhi\r\nPONG\r\n");
  });

  test("a wrong or missing token is refused and the connection closed", async () => {
    const attempts = [
      connectLine(`${broker.token}x`),
      connectLine(broker.token.slice(1)),
      connectLine(""),
      'CONNECT {"verbose":false}\r\n',
      'CONNECT {"user":"a","pass":"b"}\r\n',
      "SUB a 1\r\n",
      "PUB a 1\r\nx\r\n",
    ];
    for (const attempt of attempts) {
      const one = closeLater(await RawNats.dial(broker.port));
      await one.write(attempt);
      assert.match(await one.untilClosed(), /^-ERR 'Authorization Violation'\r\n$/, attempt);
    }
  });

  test("lines and payloads over their bounds end the connection", async () => {
    const rows: [string, RegExp][] = [
      [`PUB ${"x".repeat(5000)} 1\r\n`, /^-ERR 'maximum control line exceeded'\r\n$/i],
      ["x".repeat(6000), /^-ERR '.*'\r\n$/i],
      ["PUB big 999999999\r\n", /^-ERR 'Maximum Payload Violation'\r\n$/i],
      ["FETCH 1 2\r\n", /^-ERR 'Unknown Protocol Operation'\r\n$/i],
    ];
    for (const [input, answer] of rows) {
      const one = await raw();
      await one.write(input);
      assert.match(await one.untilClosed(), answer, input.slice(0, 20));
    }
  });

  test("garbage of one client does not touch another", async () => {
    const seed = Date.now() >>> 0;
    const random = seededRandom(seed);
    const [receiver, sender] = [await client(), await client()];
    let got = 0;
    listen(receiver, "calm", () => got += 1);
    await receiver.flush();
    const words = [
      "PUB ",
      "SUB ",
      "HPUB a 3 2\r\n",
      "UNSUB \r\n",
      "-5\r\n",
      "CONNECT {",
      "\r\n",
      " > ",
      "*.",
      "PING",
    ];
    for (let round = 0; round < 40; round += 1) {
      const bad = round % 2 === 0
        ? await RawNats.login(broker.port, broker.token)
        : await RawNats.dial(broker.port);
      const pieces = Array.from(
        { length: 30 },
        () =>
          random() < 0.5
            ? words[Math.floor(random() * words.length)] ?? ""
            : String.fromCharCode(...Array.from({ length: 20 }, () => Math.floor(random() * 256))),
      );
      await bad.write(pieces.join("")).catch(() => {}); // closed by the broker meanwhile
      sender.publish("calm", `${round}`);
      bad.close();
    }
    await until("all 40 messages", () => got === 40);
    assert.not.ok(receiver.isClosed() || sender.isClosed(), `seed ${seed}`);
  });

  test("a consumer that does not read is cut, and others go on", async () => {
    const small = await startBroker({ maxPendingBytes: 1024 * 1024 });
    try {
      const slow = closeLater(await RawNats.login(small.port, small.token));
      await slow.write("SUB big 1\r\nPING\r\n");
      await slow.expect(/PONG\r\n/);
      slow.socket.pause();
      const [publisher, healthy] = [await client(small), await client(small)];
      let got = 0;
      listen(healthy, "big", () => got += 1);
      await healthy.flush();
      const payload = Buffer.alloc(60 * 1024, 7);
      let sent = 0;
      const gone = async (): Promise<boolean> => {
        publisher.publish("big", payload);
        sent += 1;
        await publisher.flush();
        await healthy.flush();
        return sent > 400;
      };
      await until("24 MB to go through", gone, 60_000, 0);
      await until("the healthy one to have all", () => got === sent);
      slow.socket.resume();
      const received = await slow.untilClosed();
      assert.ok(received.length < sent * payload.length);
    } finally {
      await small.stop();
    }
  });

  test.run();
}
