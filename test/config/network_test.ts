// Addresses and networks: which texts are one, and what is in what.

import {
  addressBytes,
  contains,
  isInNetwork,
  mayBeHost,
  parseNetwork,
} from "../../shared/config/network.ts";
import { assert, suite } from "../support/harness.ts";

const test = suite("network");

test("addressBytes() takes numeric addresses and nothing else", () => {
  assert.equal(addressBytes("255.255.255.255"), [255, 255, 255, 255]);
  assert.is(addressBytes("::")?.length, 16);
  assert.is(addressBytes("1:2:3:4:5:6:7:8")?.join("."), "0.1.0.2.0.3.0.4.0.5.0.6.0.7.0.8");
  assert.is(addressBytes("64:ff9b::1.2.3.4")?.slice(12).join("."), "1.2.3.4");
  for (
    const text of [
      "",
      "256.1.1.1",
      "1.2.3",
      "1.2.3.4.",
      "01.2.3.4",
      "0x1.2.3.4",
      "1",
      "a",
      ":",
      ":::",
      "1::2::3",
    ]
  ) {
    assert.is(addressBytes(text), null, text);
  }
  for (const text of ["12345::", "1:2:3:4:5:6:7:8:9", "::1/64", "[::1]", "::g", "1.2.3.4:5432"]) {
    assert.is(addressBytes(text), null, text);
  }
});

test("mayBeHost() takes addresses and names, also those that nobody may have", () => {
  for (const text of ["10.1.2.3", "127.1", "::", "fe80::1%eth0", "db_1.example", "localhost"]) {
    assert.ok(mayBeHost(text), text);
  }
  for (const text of ["", "300.1.2.3", "1.2.3.4.5", "12345::", "[::1]", "a:1", "a b", "a/b"]) {
    assert.not.ok(mayBeHost(text), text);
  }
});

const texts: readonly (readonly [string, string])[] = [
  ["10.0.0.0/8", "10.0.0.0/8"],
  ["10.1.2.3", "10.1.2.3/32"],
  ["2001:db8::/32", "32.1.13.184.0.0.0.0.0.0.0.0.0.0.0.0/32"],
  ["::ffff:10.0.0.0/104", "10.0.0.0/8"],
  ["0.0.0.0/0", "0.0.0.0/0"],
  ["", "is no address"],
  ["10.0.0.0/", "has bits behind the address that are not from 0 to 32"],
  ["10.0.0.0/8/8", "is no address"],
  ["host", "is no address"],
  ["::ffff:10.0.0.0/8", "has bits behind the address that are not from 96 to 128"],
];

test("parseNetwork() reads an address with or without its bits", () => {
  for (const [text, expected] of texts) {
    const network = parseNetwork(text);
    const is = typeof network === "string" ? network : `${network.bytes.join(".")}/${network.bits}`;
    assert.is(is, expected, text);
  }
});

function networkOf(text: string) {
  const network = parseNetwork(text);
  if (typeof network === "string") throw new Error(`${text} ${network}`);
  return network;
}

const members: readonly (readonly [string, string, boolean])[] = [
  ["10.0.0.0/8", "10.255.0.1", true],
  ["10.0.0.0/8", "11.0.0.1", false],
  ["10.0.0.0/9", "10.128.0.1", false],
  ["10.0.0.0/8", "::ffff:10.0.0.1", true],
  ["0.0.0.0/0", "192.0.2.1", true],
  ["0.0.0.0/0", "::1", false],
  ["2001:db8::/33", "2001:db8:7fff::1", true],
  ["2001:db8::/33", "2001:db8:8000::1", false],
  ["192.0.2.1", "192.0.2.1", true],
  ["192.0.2.1", "192.0.2.2", false],
];

test("isInNetwork() compares the bits that count", () => {
  for (const [network, address, expected] of members) {
    assert.is(isInNetwork(networkOf(network), addressBytes(address)!), expected, network);
  }
});

test("contains() is true of the networks of which every address is in the other", () => {
  const rows: readonly (readonly [string, string, boolean])[] = [
    ["10.0.0.0/8", "10.1.0.0/16", true],
    ["10.1.0.0/16", "10.0.0.0/8", false],
    ["10.0.0.0/8", "10.0.0.0/8", true],
    ["10.0.0.0/8", "11.0.0.0/16", false],
    ["::/0", "10.0.0.0/8", false],
  ];
  for (const [outer, inner, expected] of rows) {
    assert.is(contains(networkOf(outer), networkOf(inner)), expected, `${outer} ${inner}`);
  }
});

test.run();
