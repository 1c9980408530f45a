// Door of shared/overload: which bounds a configuration sets, and how a measurement becomes a probability of
// refusal. Pure; the monitor and the workers decide by the same few lines.

export { type Bounds, isLimit, probabilityOf, type Shedding, shedding } from "./probability.ts";
export { databaseBounds, isMonitored, transactionBounds } from "./bounds.ts";
