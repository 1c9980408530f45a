// Door of shared/overload: how a measurement becomes a probability of refusal. Pure; the monitor and the
// workers decide by the same few lines.

export { type Bounds, isLimit, probabilityOf } from "./probability.ts";
