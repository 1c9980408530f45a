// When a warning is raised and when it is cleared: a use must be above the one ratio, or below the other, for as long
// as the duration says, without a break. What lies between the ratios changes nothing. Pure: given the time.

export interface AlarmRule {
  /** 0: no warning. */
  readonly warn: number;
  /** Not above `warn`. */
  readonly clear: number;
  readonly durationMs: number;
}

/** raise and clear: it changed by this value; off: there is no such warning any more, whatever the value is. */
export type AlarmStep = "raise" | "clear" | "off" | null;

export class Alarm {
  #active = false;
  /** Since when the value has been where it would change the alarm; null: it is not. */
  #since: number | null = null;

  get active(): boolean {
    return this.#active;
  }

  /** The value at a moment, monotonic ms. null: it is not known, which is no reason to change anything. */
  take(value: number | null, now: number, rule: AlarmRule): AlarmStep {
    if (rule.warn === 0) {
      this.#since = null;
      if (!this.#active) return null;
      this.#active = false;
      return "off";
    }
    if (value === null) return null;
    const isDue = this.#active ? value < rule.clear : value > rule.warn;
    if (!isDue) {
      this.#since = null;
      return null;
    }
    this.#since ??= now;
    return now - this.#since >= rule.durationMs ? this.#turn(!this.#active) : null;
  }

  #turn(active: boolean): AlarmStep {
    this.#active = active;
    this.#since = null;
    return active ? "raise" : "clear";
  }
}
