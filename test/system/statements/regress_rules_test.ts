// PostgreSQL's regression tests in session mode: MERGE, rules, statistics, parallel plans.
// limit: 400 s

import { needs } from "../../support/needs.ts";
import { extendedBinary, simple } from "./conversation.ts";
import { runRegressTests } from "./regress.ts";

needs("postgresql", "postgresql-regress");
runRegressTests({
  version: "15",
  mode: "session",
  from: "create_table_like",
  before: "select_views",
  conversations: [simple, extendedBinary],
});
