// The second third of PostgreSQL's regression tests in transaction mode, without what needs a session.
// limit: 400 s

import { needs } from "../../support/needs.ts";
import { extendedBinary, simplePipelined } from "./conversation.ts";
import { runRegressTests } from "./regress.ts";

needs("postgresql", "postgresql-regress");
runRegressTests({
  version: "15",
  mode: "transaction",
  from: "select_into",
  before: "select_views",
  conversations: [simplePipelined, extendedBinary],
});
