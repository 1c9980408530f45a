// Error numbers: their names and texts, and that errno is the failed call's own, every time.

import { constants } from "node:os";
import { assert, suite } from "../support/harness.ts";
import {
  accept,
  closeFd,
  connectUnix,
  Errno,
  errnoName,
  errnoText,
  NativeBuffer,
  SysError,
} from "../../shared/sys/mod.ts";
import { receiveAt, sendAt } from "../../shared/sys/libc.ts";
import { withRig } from "./fixtures.ts";

const test = suite("sys: errno");

test("Errno agrees with the platform's numbers", () => {
  const platform = constants.errno as Readonly<Record<string, number>>;
  for (const [name, number] of Object.entries(Errno)) {
    // The runtimes know only part of the table.
    if (platform[name] !== undefined) assert.is(number, platform[name], name);
    assert.is(errnoName(number), name);
    assert.not.match(errnoText(number), /Unknown/, name);
  }
  assert.is(errnoText(104), "Connection reset by peer");
  assert.is(errnoName(9999), "E9999");
  assert.is(errnoText(9999), "Unknown error 9999");
});

test("SysError says what was attempted and what failed", () => {
  const error = new SysError(`listen on "127.0.0.1" port 80`, "bind", Errno.EACCES);
  assert.is(
    error.message,
    `listen on "127.0.0.1" port 80: bind failed with EACCES (Permission denied)`,
  );
  assert.is(error.code, "EACCES");
  assert.is(error.errno, 13);
  assert.is(error.syscall, "bind");
  assert.is(error.name, "SysError");
  assert.instance(error, Error);
});

test("errno is right after each of 100,000 failed calls, with garbage made in between", () =>
  withRig(async (rig) => {
    const [near] = await rig.pair();
    const { fd } = near.stream;
    const buffer = new NativeBuffer(4096);
    const path = `@pgweir-nobody-${process.pid}`;
    let garbage: unknown[] = [];
    for (let i = 0; i < 100_000; i++) {
      const offset = (i & 1) * 64;
      let result: number;
      let expected: number;
      switch (i % 5) {
        case 0:
          [result, expected] = [receiveAt(fd, buffer, offset, 100), Errno.EAGAIN];
          break;
        case 1:
          [result, expected] = [sendAt(-1, buffer, offset, 100), Errno.EBADF];
          break;
        case 2:
          [result, expected] = [receiveAt(0x7fff_ffff, buffer, offset, 100), Errno.EBADF];
          break;
        case 3:
          [result, expected] = [accept(fd), Errno.EINVAL];
          break;
        default:
          [result, expected] = [connectUnix(path), Errno.ECONNREFUSED];
      }
      if (result !== -expected) assert.unreachable(`call ${i}: ${result}, wanted ${-expected}`);
      garbage.push({ i, text: String(i) });
      if (garbage.length === 1000) garbage = [];
    }
  }));

test("closeFd() of a descriptor that is not open is an error", () => {
  assert.throws(() => closeFd(0x7fff_ffff), /it is not open/);
});

test.run();
