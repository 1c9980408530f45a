// PostgreSQL's regression tests in session mode: foreign keys, settings, text search, JSON.
// limit: 400 s

import { needs } from "../../support/needs.ts";
import { extendedBinary, simple } from "./conversation.ts";
import { runRegressTests } from "./regress.ts";

needs("postgresql", "postgresql-regress");
runRegressTests({
  version: "15",
  mode: "session",
  from: "select_views",
  before: "plancache",
  conversations: [simple, extendedBinary],
});
