// What a supervisor hands to its processes on their standard input, at their start and whenever it changes: the
// configuration they all go by, and what operators have made of the pooler. One line of JSON each time. Not on the
// bus: it holds secrets, and may be large.

import process from "node:process";
import { type OperatorState, untouched } from "../console/mod.ts";
import type { ConfigSources } from "./live_config.ts";

export interface Handed {
  readonly sources: ConfigSources;
  readonly state: OperatorState;
}

export function handedLine(handed: Handed): string {
  return `${JSON.stringify(handed)}\n`;
}

/** Takes lines apart as they come in pieces. */
export class HandedReader {
  readonly #decoder = new TextDecoder();
  #rest = "";

  /** What is whole by now. */
  push(bytes: Uint8Array): Handed[] {
    const lines = (this.#rest + this.#decoder.decode(bytes, { stream: true })).split("\n");
    this.#rest = lines.pop() ?? "";
    return lines.map((line) => {
      const { sources, state = untouched } = JSON.parse(line) as Handed;
      return { sources, state };
    });
  }
}

/** What was handed at the start; `onMore` gets what comes later. */
export function readHanded(onMore: (handed: Handed) => void): Promise<Handed> {
  const reader = new HandedReader();
  return new Promise((resolve, reject) => {
    let isFirst = true;
    process.stdin.on("data", (bytes: Uint8Array) => {
      for (const handed of reader.push(bytes)) {
        if (!isFirst) onMore(handed);
        isFirst = false;
        resolve(handed);
      }
    });
    process.stdin.on("end", () => {
      reject(new Error("read the configuration: the supervisor has handed none"));
    });
    process.stdin.on("error", reject);
  });
}
