// Linux-PAM by FFI, with the library and modules of this system: what they are told, what becomes of their answers, and that
// asking them often costs no memory.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { askPam, collectGarbage } from "../../shared/sys/mod.ts";
import { assert, suite } from "../support/harness.ts";
import { needsPam, PamServices } from "../support/pam.ts";

needsPam();

const services = new PamServices();
const { folder } = services;
services.addScript(
  "told",
  'echo "$PAM_USER $PAM_RHOST $PAM_SERVICE $PAM_TYPE $given" >> "$folder/seen"\n[ "$given" = "pass wörd" ]',
);
services.add("closed", "auth required pam_permit.so\naccount required pam_deny.so");
services.add(
  "slow",
  "auth optional pam_faildelay.so delay=60000000\nauth required pam_deny.so\n" +
    "account required pam_permit.so",
);
services.add("broken", "auth required pam_no_such_module.so\naccount required pam_permit.so");

const test = suite("sys: PAM");

const ask = (service: string, password = "pass wörd") =>
  askPam({ service, folder, user: "ann", password, host: "10.1.2.3" });

test("modules are told the user, the password and where it comes from", () => {
  assert.equal(ask("told"), { refusal: null, delayMs: 0, errors: [] });
  assert.match(String(ask("told", "wrong").refusal), "pam_authenticate() failed: ");
  const seen = readFileSync(join(folder, "seen"), "utf8");
  assert.is(
    seen,
    "ann 10.1.2.3 told auth pass wörd\nann 10.1.2.3 told auth wrong\n",
  );
});

test("a password that is right opens no account that is closed", () => {
  assert.is(ask("closed").refusal, "pam_acct_mgmt() failed: Authentication failure");
});

test("the pause that a module wants after a failure is told, not made", () => {
  const begun = performance.now();
  const { refusal, delayMs } = ask("slow");
  // The module asks for a minute.
  assert.ok(performance.now() - begun < 20_000);
  assert.is(refusal, "pam_authenticate() failed: Authentication failure");
  assert.ok(delayMs > 20_000 && delayMs < 120_000, `${delayMs}`);
});

test("a service that is not there, or a module, lets nobody in", () => {
  assert.match(String(ask("missing").refusal), /^pam_(start|authenticate)\(\) failed: /);
  assert.match(String(ask("broken").refusal), /^pam_authenticate\(\) failed: /);
});

test("a text with a NUL character is not cut short", () => {
  assert.throws(() => ask("told", "pass wörd\0x"), "NUL");
});

// A leak of a library handle or of the memory of a conversation, many times; what the runtime itself takes for a while
// is allowed for. And memory that the collector had taken back too early would end the process.
test("asking often costs no memory", () => {
  services.add("asks", "auth required pam_unix.so\naccount required pam_permit.so");
  const rounds = () => {
    for (let i = 0; i < 1500; i++) ask("closed", `${i}`);
    for (let i = 0; i < 300; i++) assert.ok(ask("asks", `${i}`).refusal !== null);
    collectGarbage();
    return process.memoryUsage().rss;
  };
  const before = rounds();
  const more = (rounds() - before) >> 20;
  assert.ok(more < 64, `${more} MiB more`);
});

test.run();
