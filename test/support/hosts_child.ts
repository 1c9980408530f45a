// Makes hosts, says in which subnet, and waits to be killed; hosts_test.ts looks at what it leaves.

import { HostNetwork } from "./hosts.ts";

const network = await HostNetwork.create(["a", "b"]);
console.log(network.subnet);
setInterval(() => {}, 1000);
