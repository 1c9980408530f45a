// Loading the system layer where it cannot work: the message says what is wanted instead.

import { assert, suite } from "../support/harness.ts";

const test = suite("sys: platforms");

async function loadOn(platform: string, arch: string): Promise<string> {
  const original = { platform: process.platform, arch: process.arch };
  Object.defineProperty(process, "platform", { value: platform, configurable: true });
  Object.defineProperty(process, "arch", { value: arch, configurable: true });
  try {
    // A query makes it another module, which is loaded anew each time.
    await import(`../../shared/sys/ffi.ts?${platform}-${arch}`);
    return "loaded";
  } catch (error) {
    return String(error);
  } finally {
    for (const [name, value] of Object.entries(original)) {
      Object.defineProperty(process, name, { value, configurable: true });
    }
  }
}

test("the system layer names Docker on other systems than Linux", async () => {
  for (const platform of ["darwin", "win32", "freebsd"]) {
    assert.match(
      await loadOn(platform, "x64"),
      new RegExp(`the platform is "${platform}", wanted "linux"; .* Docker`),
    );
  }
});

test("the system layer names the processors it knows the structures of", async () => {
  assert.match(await loadOn("linux", "riscv64"), /the processor is "riscv64", wanted "x64" or/);
});

test("the system layer loads here", async () => {
  assert.is(await loadOn(process.platform, process.arch), "loaded");
});

test.run();
