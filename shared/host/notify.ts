// Tells systemd how far the service is, as `Type=notify` wants to hear it (sd_notify). Nothing is said where
// nobody asks, and a message that cannot be sent is dropped: it is never a reason to fail.

import process from "node:process";
import { UnixDatagram } from "../sys/mod.ts";

const messageBytes = 256;
const path = process.env["NOTIFY_SOCKET"] ?? "";
// Only this process is asked, not those that it starts.
delete process.env["NOTIFY_SOCKET"];

/** `state` is such as "READY=1". */
export function notify(state: string): void {
  if (path === "") return;
  const socket = new UnixDatagram(path, messageBytes);
  socket.send(new TextEncoder().encode(state));
  socket.close();
}
