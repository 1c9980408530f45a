// Entry of the data-plane thread: its reactor runs from the start, the plane when the configuration
// has come. Nothing else happens here.

import { Reactor, SysError, threadPort, TlsError } from "../../../shared/sys/mod.ts";
import type { ToControl, ToPlane } from "../messages.ts";
import { ControlLink } from "./control_link.ts";
import { ListenFailure } from "./listen_tcp.ts";
import { Plane } from "./plane.ts";

const port = threadPort();
const reactor = new Reactor();
const post = (message: ToControl) => port.post(message);
const control = new ControlLink(post);
let plane: Plane | null = null;

port.onMessage = (posted) => {
  const message = posted as ToPlane;
  if (message.type !== "start") {
    plane?.onMessage(message);
    return;
  }
  try {
    plane = new Plane(reactor, control, message);
    post({ type: "ready", addresses: plane.start() });
  } catch (error) {
    const isExpected = error instanceof SysError || error instanceof TlsError ||
      error instanceof ListenFailure;
    if (!isExpected) throw error;
    control.flushLog();
    post({ type: "failed", message: error.message });
  }
};

post({ type: "wake", fd: reactor.wakeFd });
await reactor.run();
reactor.close();
