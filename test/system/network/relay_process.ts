// A TCP relay as a process of its own, for a host that stands between a pooler and its server: relay_process.ts
// <listen address> <port> <target address> <target port>. Not a test.

import { connect, createServer } from "node:net";

const [host, port, targetHost, targetPort] = process.argv.slice(2);
const server = createServer({ noDelay: true }, (socket) => {
  const onward = connect({ host: targetHost!, port: Number(targetPort), noDelay: true });
  socket.on("error", () => onward.destroy());
  onward.on("error", () => socket.destroy());
  socket.pipe(onward).pipe(socket);
});
server.listen({ host: host!, port: Number(port) }, () => console.log("ready"));
