// PostgreSQL's regression tests in session mode: MERGE, rules, statistics, parallel plans.
// limit: 120 s

import { needs } from "../../support/needs.ts";
import { extendedBinary, simple } from "./conversation.ts";
import { runRegressTests } from "./regress.ts";

needs("postgresql", "postgresql-regress");
runRegressTests({
  mode: "session",
  from: "create_table_like",
  before: "select_views",
  conversations: [simple, extendedBinary],
});
