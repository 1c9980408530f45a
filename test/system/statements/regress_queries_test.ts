// PostgreSQL's regression tests in session mode: queries, transactions, cursors, arrays.
// limit: 400 s

import { needs } from "../../support/needs.ts";
import { extendedBinary, simple } from "./conversation.ts";
import { runRegressTests } from "./regress.ts";

needs("postgresql", "postgresql-regress");
runRegressTests({
  version: "15",
  mode: "session",
  from: "select_into",
  before: "brin",
  conversations: [simple, extendedBinary],
});
