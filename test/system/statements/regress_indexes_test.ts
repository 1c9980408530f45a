// PostgreSQL's regression tests in session mode: kinds of indexes, privileges, row security.
// limit: 400 s

import { needs } from "../../support/needs.ts";
import { extendedBinary, simple } from "./conversation.ts";
import { runRegressTests } from "./regress.ts";

needs("postgresql", "postgresql-regress");
runRegressTests({
  version: "15",
  mode: "session",
  from: "brin",
  before: "create_table_like",
  conversations: [simple, extendedBinary],
});
