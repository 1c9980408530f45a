// The names in a text of SQL that matter for what it does to its session, beside the flags of scanSql: channels and
// parameters. Looked for only where the flags say that there are any.

import {
  channelSteps,
  deallocatesAll,
  namedStatements,
  noSettingNames,
  notifiedChannels,
  type SettingNames,
  settingNames,
  settingNamesInCode,
  SqlFlag,
  type Step,
} from "../../../shared/wire/mod.ts";
import { allStatements, type Drop } from "./drops.ts";
import { anything } from "./residue.ts";

export interface TextNames {
  /** Its UNLISTENs, and what it does with savepoints. */
  readonly steps: readonly Step[];
  /** The channels of its NOTIFYs. */
  readonly notified: readonly string[];
  readonly settings: SettingNames;
  /** Prepared statements that it drops, if it does nothing else but more of a reset perhaps. */
  readonly drops: Drop | null;
}

export const noNames: TextNames = {
  steps: [],
  notified: [],
  settings: noSettingNames,
  drops: null,
};

const settingFlags = SqlFlag.sets | SqlFlag.setsDefault | SqlFlag.setsConfig | SqlFlag.resets |
  SqlFlag.discards;
const stepFlags = SqlFlag.unlistens | SqlFlag.savepoints;
const namedFlags = settingFlags | stepFlags | SqlFlag.notifies | SqlFlag.runsCode;

/** Of the text [from, to), which has these flags. */
export function namesIn(bytes: Uint8Array, from: number, to: number, flags: number): TextNames {
  if ((flags & namedFlags) === 0 || flags === anything) return noNames;
  const steps = (flags & stepFlags) === 0 ? noNames.steps : channelSteps(bytes, from, to);
  const notified = (flags & SqlFlag.notifies) === 0
    ? noNames.notified
    : notifiedChannels(bytes, from, to);
  const settings = (flags & settingFlags) === 0 ? noSettingNames : settingNames(bytes, from, to);
  const drops = (flags & SqlFlag.discards) === 0 ? null : dropOf(bytes, from, to);
  if ((flags & SqlFlag.runsCode) === 0) return { steps, notified, settings, drops };
  const inCode = settingNamesInCode(bytes, from, to)
    .map((name) => ({ by: null, name, isReset: false }));
  const all = { ...settings, steps: [...settings.steps, ...inCode] };
  return { steps, notified, settings: all, drops };
}

function dropOf(bytes: Uint8Array, from: number, to: number): Drop | null {
  if (deallocatesAll(bytes, from, to)) return allStatements;
  // Where there are several statements it cannot be bound.
  return namedStatements(bytes, from, to)[0]?.deallocated ?? null;
}
