// PostgreSQL's regression tests in session mode: queries, indexes, privileges.
// limit: 300 s

import { needs } from "../../support/needs.ts";
import { extendedBinary, simple } from "./conversation.ts";
import { runRegressTests } from "./regress.ts";

needs("postgresql", "postgresql-regress");
runRegressTests({
  version: "15",
  mode: "session",
  from: "select_into",
  before: "create_table_like",
  conversations: [simple, extendedBinary],
});
