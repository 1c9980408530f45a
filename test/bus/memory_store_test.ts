// The store conformance tests against a store in memory, used by two in one process.

import { MemoryStore } from "../../shared/bus/mod.ts";
import { storeConformance } from "./store_conformance.ts";

storeConformance("MemoryStore", () => {
  const store = new MemoryStore();
  return Promise.resolve({ one: store, two: store, close: () => Promise.resolve() });
});
