// PostgreSQL's regression tests in session mode: PL/pgSQL, temporary tables, ALTER TABLE, XML.
// limit: 120 s

import { needs } from "../../support/needs.ts";
import { extendedBinary, simple } from "./conversation.ts";
import { runRegressTests } from "./regress.ts";

needs("postgresql", "postgresql-regress");
runRegressTests({
  mode: "session",
  from: "plancache",
  before: "partition_join",
  conversations: [simple, extendedBinary],
});
