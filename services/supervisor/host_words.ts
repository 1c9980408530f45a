// The options of PgBouncer's command line, for the commands that run something: words in, options and the
// remaining words out. As getopt_long() takes them: -qd, -u NAME, -uNAME, --user=NAME, in any order. Pure.

import type { HostOptions } from "../../shared/host/mod.ts";

export type HostWords =
  | { readonly options: HostOptions; readonly rest: readonly string[] }
  | { readonly asks: "help" | "version" }
  | { readonly problem: string };

/** As PgBouncer names them. */
const longNames: Readonly<Record<string, string>> = {
  "--quiet": "q",
  "--verbose": "v",
  "--daemon": "d",
  "--user": "u",
  "--reboot": "R",
  "--version": "V",
  "--help": "h",
};

export const noReboot = "-R: online restarts need no take-over: start the new one beside the old " +
  "one (so_reuseport = 1, other pidfile and unix_socket_dir), then stop the old one with SIGTERM";

/** Words that are none of these options are left in `rest`, in their order. */
export function takeHostWords(words: readonly string[]): HostWords {
  const options = { quiet: false, verbose: 0, daemon: false, user: null as string | null };
  const rest: string[] = [];
  for (let i = 0; i < words.length; i++) {
    const word = words[i] as string;
    if (word === "--") {
      rest.push(...words.slice(i + 1));
      break;
    }
    const equals = word.indexOf("=");
    const long = longNames[equals < 0 ? word : word.slice(0, equals)];
    const isShort = /^-[qvduRVh]/.test(word);
    if (long === undefined && !isShort) {
      rest.push(word);
      continue;
    }
    let letters = long ?? word.slice(1);
    let value = long !== undefined && equals >= 0 ? word.slice(equals + 1) : null;
    if (value !== null && long !== "u") return { problem: `option "${word}" takes no value` };
    for (; letters !== ""; letters = letters.slice(1)) {
      switch (letters[0]) {
        case "q":
          options.quiet = true;
          break;
        case "v":
          options.verbose++;
          break;
        case "d":
          options.daemon = true;
          break;
        case "h":
          return { asks: "help" };
        case "V":
          return { asks: "version" };
        case "R":
          return { problem: noReboot };
        case "u":
          value ??= letters.length > 1 ? letters.slice(1) : words[++i] ?? "";
          if (value === "") return { problem: `option "${word}" names no user` };
          options.user = value;
          letters = "u";
          break;
        default:
          return { problem: `unknown option "-${letters[0]}" in "${word}"` };
      }
    }
  }
  return { options, rest };
}
