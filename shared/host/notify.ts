// Tells systemd how far the service is, as `Type=notify` and `Type=notify-reload` want to hear it (sd_notify). Nothing is said where
// nobody asks, and a message that cannot be sent is dropped: it is never a reason to fail.

import process from "node:process";
import { monotonicMicros, UnixDatagram } from "../sys/mod.ts";

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

/** Without the time systemd could take it for what an earlier reload has said. */
export function notifyReloading(): void {
  if (path !== "") notify(`RELOADING=1\nMONOTONIC_USEC=${monotonicMicros()}`);
}

/** Why sockets that systemd hands over are not used, or null: it hands over none. */
export function socketActivationProblem(): string | null {
  const count = process.env["LISTEN_FDS"] ?? "";
  if (count === "" || count === "0") return null;
  return "LISTEN_FDS is set: socket activation is not supported, pgweir listens by listen_addr and unix_socket_dir; " +
    "disable the .socket unit";
}
