// PostgreSQL's regression tests in session mode: COPY, INSERT, and what CREATE makes.
// limit: 400 s

import { needs } from "../../support/needs.ts";
import { extendedBinary, simple } from "./conversation.ts";
import { runRegressTests } from "./regress.ts";

needs("postgresql", "postgresql-regress");
runRegressTests({
  version: "15",
  mode: "session",
  from: "copy",
  before: "create_aggregate",
  conversations: [simple, extendedBinary],
});
