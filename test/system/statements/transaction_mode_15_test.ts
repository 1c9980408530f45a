// Our own scripts in transaction mode in front of Debian's PostgreSQL: a client that needs no session cannot tell
// from any byte that it has none, alone or beside others.
// limit: 360 s

import { needs } from "../../support/needs.ts";
import { runTransactionModeTests } from "./transaction_mode.ts";

needs("postgresql");
runTransactionModeTests("15");
