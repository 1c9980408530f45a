// Door of shared/overload: which bounds a configuration sets, and how a measurement becomes a probability of
// refusal. Pure; the monitor and the workers decide by the same few lines.

export {
  type Bounds,
  type CpuTimes,
  isLimit,
  overloadRatio,
  probabilityOf,
  type Shedding,
  shedding,
  withOwn,
} from "./probability.ts";
export { isMonitored, OwnBounds } from "./bounds.ts";
