// Text to sockaddr and back, as tables.

import { assert, suite } from "../support/harness.ts";
import {
  ADDRESS_BYTES,
  formatIpv6,
  parseIpv4,
  parseIpv6,
  readAddress,
  writeInetAddress,
  writeUnixAddress,
} from "../../shared/sys/address.ts";

const test = suite("sys: addresses");

test("parseIpv4() takes four decimal numbers and nothing else", () => {
  assert.equal(parseIpv4("192.0.2.1"), [192, 0, 2, 1]);
  assert.equal(parseIpv4("255.255.255.255"), [255, 255, 255, 255]);
  for (
    const text of [
      "",
      "1.2.3",
      "1.2.3.4.5",
      "256.1.1.1",
      "01.2.3.4",
      "1.2.3.4 ",
      "a.b.c.d",
      "1..2.3",
    ]
  ) {
    assert.is(parseIpv4(text), null, text);
  }
});

test("formatIpv6(parseIpv6(text)) is the canonical text of RFC 5952", () => {
  const rows: [string, string][] = [
    ["::", "::"],
    ["::1", "::1"],
    ["1::", "1::"],
    ["2001:DB8:0:0:0:0:0:1", "2001:db8::1"],
    ["2001:db8:0:1:1:1:1:1", "2001:db8:0:1:1:1:1:1"],
    ["2001:0db8::0001:0000:0000:0001", "2001:db8::1:0:0:1"],
    ["1:0:0:2:0:0:0:3", "1:0:0:2::3"],
    ["1:2:3:4:5:6:7::", "1:2:3:4:5:6:7:0"],
    ["::2:3:4:5:6:7:8", "0:2:3:4:5:6:7:8"],
    ["fe80::1:2:3:4", "fe80::1:2:3:4"],
    ["::ffff:192.0.2.1", "::ffff:c000:201"],
    ["64:ff9b::192.0.2.33", "64:ff9b::c000:221"],
  ];
  for (const [text, canonical] of rows) {
    const bytes = parseIpv6(text);
    assert.ok(bytes, text);
    assert.is(bytes.length, 16, text);
    assert.is(formatIpv6(bytes), canonical, text);
  }
});

test("parseIpv6() refuses what is none", () => {
  for (
    const text of [
      "",
      ":",
      ":::",
      "1",
      "1:2:3:4:5:6:7",
      "1:2:3:4:5:6:7:8:9",
      "1::2::3",
      "12345::",
      "g::",
      "1.2.3.4::",
      "::1.2.3.4:1",
      "::1.2.3.256",
      "1:2:3:4:5:6:7:8::",
      ":1:2:3:4:5:6:7",
      "127.0.0.1",
      "[::1]",
      " ::1",
    ]
  ) {
    assert.is(parseIpv6(text), null, text);
  }
});

test("readAddress(writeInetAddress()) gives the address back, a mapped one as IPv4", () => {
  const memory = new Uint8Array(ADDRESS_BYTES).fill(0xff);
  const rows: [string, number, string][] = [
    ["127.0.0.1", 5432, "127.0.0.1"],
    ["0.0.0.0", 65_535, "0.0.0.0"],
    ["::1", 6432, "::1"],
    ["2001:db8::5", 1, "2001:db8::5"],
    ["::ffff:10.1.2.3", 5432, "10.1.2.3"],
    ["fe80::1%7", 5432, "fe80::1"],
  ];
  for (const [host, port, expected] of rows) {
    const length = writeInetAddress(memory, host, port);
    assert.is(length, host.includes(":") ? 28 : 16);
    assert.equal(readAddress(memory), { host: expected, port });
  }
  assert.is(writeInetAddress(memory, "fe80::1%7", 5432), 28);
  assert.is(memory[24], 7);
  assert.is(writeInetAddress(memory, "fe80::1%lo", 5432), 28);
  assert.is(memory[24], 1, "the loopback interface has index 1");
  for (const host of ["localhost", "*", "fe80::1%", "fe80::1%../../x", "127.0.0.1%1"]) {
    assert.is(writeInetAddress(memory, host, 1), null, host);
  }
});

test("writeUnixAddress() ends a path with a zero and starts an abstract name with one", () => {
  const memory = new Uint8Array(ADDRESS_BYTES).fill(0xff);
  assert.is(writeUnixAddress(memory, "/t/s"), 2 + 4 + 1);
  assert.equal([...memory.subarray(0, 7)], [1, 0, 0x2f, 0x74, 0x2f, 0x73, 0]);
  assert.equal(readAddress(memory), { host: "unix", port: 0 });
  assert.is(writeUnixAddress(memory, "@ab"), 2 + 3);
  assert.equal([...memory.subarray(0, 5)], [1, 0, 0, 0x61, 0x62]);
  assert.is(writeUnixAddress(memory, "x".repeat(107)), 110);
  for (const path of ["", "@", "x".repeat(108), `@${"x".repeat(107)}`, "a\0b"]) {
    assert.is(writeUnixAddress(memory, path), null);
  }
});

test.run();
