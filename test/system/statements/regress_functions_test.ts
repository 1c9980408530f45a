// PostgreSQL's regression tests in session mode: PL/pgSQL, temporary tables, ALTER TABLE, XML.
// limit: 400 s

import { needs } from "../../support/needs.ts";
import { extendedBinary, simple } from "./conversation.ts";
import { runRegressTests } from "./regress.ts";

needs("postgresql", "postgresql-regress");
runRegressTests({
  version: "15",
  mode: "session",
  from: "plancache",
  before: "partition_join",
  conversations: [simple, extendedBinary],
});
