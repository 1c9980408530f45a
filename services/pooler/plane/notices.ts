// What the pooler tells clients by itself that is no error.

import { noticeResponse } from "../../../shared/wire/mod.ts";

const nothing = new Uint8Array(0);

/** query_wait_notify, in PgBouncer's words. */
export const queuedNotice = notice(
  "No server connection available in postgres backend, client being queued",
);

/** login_notify_message, as a part of the greeting; empty if there is none. */
export function loginNotice(message: string): Uint8Array {
  return message === "" ? nothing : notice(message);
}

function notice(message: string): Uint8Array {
  return noticeResponse({ severity: "NOTICE", code: "00000", message });
}
