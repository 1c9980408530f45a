// The first third of PostgreSQL's regression tests in transaction mode, without what needs a session.
// limit: 400 s

import { needs } from "../../support/needs.ts";
import { extendedText, simple } from "./conversation.ts";
import { runRegressTests } from "./regress.ts";

needs("postgresql", "postgresql-regress");
runRegressTests({
  version: "15",
  mode: "transaction",
  from: "test_setup",
  before: "select_into",
  conversations: [simple, extendedText],
});
