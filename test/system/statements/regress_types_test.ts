// PostgreSQL's regression tests in session mode: built-in types.
// limit: 400 s

import { needs } from "../../support/needs.ts";
import { extendedBinary, simple } from "./conversation.ts";
import { runRegressTests } from "./regress.ts";

needs("postgresql", "postgresql-regress");
runRegressTests({
  version: "15",
  mode: "session",
  from: "test_setup",
  before: "copy",
  conversations: [simple, extendedBinary],
});
