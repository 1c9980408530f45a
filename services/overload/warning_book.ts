// The warnings of one monitor: those that hold, and the last ones of the past. Pure: given the time and what is in
// use. Bound: `maxWarnings`.

import { maxWarnings, type OverloadWarning, type WarningKind } from "../../shared/bus/mod.ts";
import type { Settings } from "../../shared/config/mod.ts";
import { Alarm, type AlarmRule } from "./alarm.ts";

/** Shares in use, 0 to 1; null: not known. */
export type Uses = Readonly<Record<WarningKind, number | null>>;

/** A warning that was raised or cleared just now. */
export interface WarningChange {
  readonly step: "raise" | "clear" | "off";
  readonly warning: OverloadWarning;
  readonly durationMs: number;
}

const kinds: readonly WarningKind[] = ["cpu", "memory"];

/** What is in force: nothing that is warned of is cleared, whatever the other ratio is. */
function ruleOf(kind: WarningKind, settings: Settings): AlarmRule {
  const rule = kind === "cpu"
    ? {
      warn: settings.cpuOverloadWarnRatio,
      clear: settings.cpuOverloadClearRatio,
      durationMs: settings.cpuOverloadDurationSeconds * 1000,
    }
    : {
      warn: settings.memoryOverloadWarnRatio,
      clear: settings.memoryOverloadClearRatio,
      durationMs: settings.memoryOverloadDurationSeconds * 1000,
    };
  return { ...rule, clear: Math.min(rule.warn, rule.clear) };
}

export class WarningBook {
  readonly #alarms: Readonly<Record<WarningKind, Alarm>> = {
    cpu: new Alarm(),
    memory: new Alarm(),
  };
  /** By when they were raised. */
  #warnings: OverloadWarning[] = [];

  get warnings(): readonly OverloadWarning[] {
    return this.#warnings;
  }

  /** `now` is monotonic, `time` in ms since 1970. */
  take(uses: Uses, now: number, time: number, settings: Settings): WarningChange[] {
    return kinds.flatMap((kind) => this.#take(kind, uses[kind], now, time, settings) ?? []);
  }

  #take(
    kind: WarningKind,
    use: number | null,
    now: number,
    time: number,
    settings: Settings,
  ): WarningChange | null {
    const { warn, clear, durationMs } = ruleOf(kind, settings);
    const step = this.#alarms[kind].take(use, now, { warn, clear, durationMs });
    if (step === "raise") {
      const warning = { kind, raisedAt: time, clearedAt: null, value: use ?? 0, warn, clear };
      this.#warnings = [...this.#warnings, warning].slice(-maxWarnings);
      return { step, warning, durationMs };
    }
    const held = this.#warnings.find((one) => one.kind === kind && one.clearedAt === null);
    if (held === undefined) return null;
    const ends = step === "clear" || step === "off";
    const warning = {
      ...held,
      value: use ?? held.value,
      clearedAt: ends ? time : null,
      // One that is switched off ends as it was.
      ...(step === "off" ? {} : { warn, clear }),
    };
    this.#warnings = this.#warnings.map((one) => one === held ? warning : one);
    return ends ? { step, warning, durationMs } : null;
  }
}
