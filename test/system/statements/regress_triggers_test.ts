// PostgreSQL's regression tests in session mode: constraints, triggers, inheritance, views that can be changed.
// limit: 400 s

import { needs } from "../../support/needs.ts";
import { extendedBinary, simple } from "./conversation.ts";
import { runRegressTests } from "./regress.ts";

needs("postgresql", "postgresql-regress");
runRegressTests({
  version: "15",
  mode: "session",
  from: "create_aggregate",
  before: "select_into",
  conversations: [simple, extendedBinary],
});
