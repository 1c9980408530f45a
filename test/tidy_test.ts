// Rules of the source tree that neither a compiler nor a linter knows: who may import whom, what every file has,
// what none has. A failure lists each offender as path:line. The rules themselves are in services/README.md.
// It reads text line by line and does not parse: code that hides from it would be its own offence.

import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, posix, resolve } from "node:path";
import { assert, suite } from "./support/harness.ts";
import { renderReference } from "../shared/config/mod.ts";

const root = resolve(import.meta.dirname!, "..");
const MAX_LINES = 800;
const TOP_LEVEL_FILES = [
  ".gitignore",
  "CHANGELOG.md",
  "LICENSE",
  "README.md",
  "deno.json",
  "package-lock.json",
  "package.json",
  "tsconfig.json",
];
const TOP_LEVEL_FOLDERS = [".ci", "deploy", "services", "shared", "test"];

interface Source {
  readonly path: string;
  readonly text: string;
  readonly lines: readonly string[];
}

interface Import {
  readonly source: Source;
  readonly line: number;
  readonly specifier: string;
  /** The imported file's path from the root, or null for a package or a built-in module. */
  readonly target: string | null;
}

const sources: Source[] = ["services", "shared", "test", "deploy"].flatMap((folder) =>
  readdirSync(join(root, folder), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".ts"))
    .map((name) => `${folder}/${name}`)
).sort().map((path) => {
  const text = readFileSync(join(root, path), "utf8");
  return { path, text, lines: text.split("\n") };
});

/** The line without what a reader of code skips: whole comment lines, trailing comments. */
function code(line: string): string {
  return /^\s*(\/\/|\/?\*)/.test(line) ? "" : line.replace(/\s\/\/ .*$/, "");
}

function importsOf(source: Source): Import[] {
  const found: Import[] = [];
  source.lines.forEach((line, at) => {
    const specifiers = [
      /^(?:import|export|\}).* from "([^"]+)";/,
      /^import "([^"]+)";/,
      /\bimport\("([^"]+)"\)/,
      /new URL\("([^"]+\.ts)", import\.meta\.url\)/,
    ].flatMap((pattern) => pattern.exec(code(line))?.[1] ?? []);
    for (const specifier of specifiers) {
      const target = specifier.startsWith(".")
        ? posix.join(posix.dirname(source.path), specifier)
        : null;
      found.push({ source, line: at + 1, specifier, target });
    }
  });
  return found;
}

const imports = sources.flatMap(importsOf);

/** "shared/wire", "services/pooler": the room a path is in; a file directly in services is its own room. */
function room(path: string): string {
  return path.split("/").slice(0, 2).join("/");
}

const inFolder = (folder: string) => (source: Source) => source.path.startsWith(`${folder}/`);
const outside = (folder: string) => (source: Source) => !inFolder(folder)(source);

function place(source: Source, line: number): string {
  return `${source.path}:${line}`;
}

const named = (i: Import) => `${place(i.source, i.line)} imports ${i.specifier}`;

/** The lines of some files whose code matches. */
function linesWith(pattern: RegExp, which: (source: Source) => boolean): string[] {
  return sources.filter(which).flatMap((source) =>
    source.lines.flatMap((line, at) => pattern.test(code(line)) ? [place(source, at + 1)] : [])
  );
}

const tests = suite("tidy");

function rule(name: string, offenders: () => string[]): void {
  tests(name, () => assert.is(offenders().join("\n"), ""));
}

tests("the rules look at every source file and find its imports", () => {
  assert.ok(sources.length > 50);
  assert.ok(imports.length > sources.length);
  assert.ok(imports.some((i) => i.target === "shared/wire/mod.ts"));
});

// Who imports whom

rule(
  "services import only themselves and shared folders' mod.ts",
  () =>
    imports.filter((i) => inFolder("services")(i.source)).filter(({ source, target }) => {
      if (target === null || room(target) === room(source.path)) return false;
      // The one entry point hands over to the services; it is none itself.
      if (source.path === "services/cli.ts" && target.startsWith("services/")) return false;
      return !/^shared\/[a-z_]+\/mod\.ts$/.test(target);
    }).map(named),
);

rule(
  "shared folders import only themselves and each other's mod.ts",
  () =>
    imports.filter((i) => inFolder("shared")(i.source)).filter(({ source, target }) =>
      target !== null && room(target) !== room(source.path) &&
      !/^shared\/[a-z_]+\/mod\.ts$/.test(target)
    ).map(named),
);

rule("shared folders do not import each other in a circle", () => {
  const edges = new Map<string, Set<string>>();
  for (const { source, target } of imports) {
    if (target === null || !inFolder("shared")(source) || room(target) === room(source.path)) {
      continue;
    }
    const reached = edges.get(room(source.path)) ?? new Set();
    edges.set(room(source.path), reached.add(room(target)));
  }
  const reaches = (from: string, to: string, seen: Set<string>): boolean =>
    [...edges.get(from) ?? []].some((next) =>
      next === to || (!seen.has(next) && reaches(next, to, seen.add(next)))
    );
  return [...edges.keys()].filter((folder) => reaches(folder, folder, new Set()));
});

rule(
  "tests import a folder's inside only from the test folder of the same name",
  () =>
    imports.filter((i) => inFolder("test")(i.source)).filter(({ source, target }) => {
      if (target === null || target.startsWith("test/") || target.endsWith("/mod.ts")) return false;
      return target.split("/")[1] !== source.path.split("/")[1];
    }).map(named),
);

rule(
  "shared/wire is pure: no input or output, no other folder",
  () =>
    imports.filter((i) => inFolder("shared/wire")(i.source)).filter(({ target, specifier }) =>
      target === null && !["node:buffer", "node:crypto"].includes(specifier) ||
      target !== null && room(target) !== "shared/wire"
    ).map(named),
);

rule(
  "shared/config is pure, but for the one file that reads files",
  () =>
    imports.filter((i) => inFolder("shared/config")(i.source)).filter((
      { source, target, specifier },
    ) =>
      target === null && !["node:buffer", "node:crypto"].includes(specifier) &&
        !(source.path === "shared/config/files.ts" &&
          ["node:fs", "node:path", "node:process"].includes(specifier)) ||
      target !== null && room(target) !== "shared/config"
    ).map(named),
);

rule(
  "shared/groups is pure",
  () =>
    imports.filter((i) => inFolder("shared/groups")(i.source)).filter(({ target, specifier }) =>
      target === null
        ? specifier !== "node:buffer"
        : !["shared/groups", "shared/config"].includes(room(target))
    ).map(named),
);

rule(
  "files that decide (ledger, decide) are pure",
  () =>
    imports.filter((i) =>
      /(ledger|decide)[a-z_]*\.ts$/.test(i.source.path) && outside("test")(i.source)
    )
      .filter(({ target, specifier }) =>
        target === null
          ? !["node:buffer", "node:crypto"].includes(specifier)
          : /^shared\/(sys|bus|telemetry)\//.test(target)
      ).map(named),
);

rule("only shared/sys names a runtime or loads a native library", () => [
  ...linesWith(/\b(Bun|Deno)\.[a-z]|globalThis\.(Bun|Deno)\b|\bdlopen\(/, outside("shared/sys"))
    .filter((where) => !where.startsWith("test/tidy_test.ts")),
  ...imports.filter((i) =>
    /^(bun|deno|node:ffi|jsr):?/.test(i.specifier) && outside("shared/sys")(i.source)
  )
    .map(named),
]);

for (
  const [folder, pattern] of [
    ["shared/bus", /^(nats|@nats-io\/)/],
    ["shared/telemetry", /^@opentelemetry\//],
    ["test", /^(pg|postgres)$/],
  ] as const
) {
  rule(
    `only ${folder} and its tests import ${pattern.source}`,
    () =>
      imports.filter(({ source, specifier }) =>
        pattern.test(specifier) && outside(folder)(source) &&
        outside(folder.replace("shared", "test"))(source)
      ).map(named),
  );
}

rule(
  "only the test harness imports uvu",
  () =>
    imports.filter((i) =>
      /^uvu(\/|$)/.test(i.specifier) && i.source.path !== "test/support/harness.ts"
    )
      .map(named),
);

rule("imported packages are in package.json", () => {
  const manifest = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  const declared = new Set([
    ...Object.keys(manifest.dependencies),
    ...Object.keys(manifest.devDependencies),
  ]);
  const packageOf = (specifier: string) =>
    specifier.split("/").slice(0, specifier.startsWith("@") ? 2 : 1).join("/");
  return imports.filter(({ target, specifier }) =>
    target === null && !/^(node|bun):/.test(specifier) && !declared.has(packageOf(specifier))
  ).map(named);
});

// What every file has, and none has

rule(
  "every file opens with a comment that says what it is",
  () => sources.filter((s) => !/^(#!.*\n)?(\/\/ .+\n)+/.test(s.text)).map((s) => s.path),
);

rule(
  "no file has more lines than can be kept in mind",
  () =>
    sources.filter((s) => s.lines.length > MAX_LINES).map((s) =>
      `${s.path}: ${s.lines.length} lines`
    ),
);

rule(
  "files and folders are named in snake_case",
  () =>
    sources.filter((s) =>
      !/^([a-z0-9]+(_[a-z0-9]+)*\/)+[a-z0-9]+(_[a-z0-9]+)*(\.(bun|deno))?\.ts$/.test(s.path)
    )
      .map((s) => s.path),
);

rule("nothing is exported by default", () => linesWith(/^export default\b/, () => true));

rule("no note of unfinished work is left", () => {
  // Spelled in halves, so that this file does not find itself.
  const notes = new RegExp(
    `\\b(${["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"].join("|")})\\b`,
  );
  return sources.flatMap((source) =>
    source.lines.flatMap((line, at) => notes.test(line) ? [place(source, at + 1)] : [])
  );
});

rule(
  "code prints through the logger, not the console",
  () => linesWith(/\bconsole\.(log|error|warn|info|debug)\(/, inFolder("shared")),
);

rule(
  "processes are signalled by process.kill: ChildProcess.kill works once on Deno",
  () => linesWith(/\b(child\w*|proc)\.kill\(/, () => true),
);

// Tests

const testFiles = sources.filter((s) => s.path.endsWith("_test.ts"));

rule(
  "every suite is run, and every test file has one or imports one",
  () =>
    sources.filter(inFolder("test")).flatMap((source) => {
      const suites = [...source.text.matchAll(/^\s*(?:export )?const (\w+) = suite(?:<|\()/gm)];
      const idle = suites.filter(([, name]) => !source.text.includes(`${name}.run();`))
        .map(([, name]) => `${source.path}: ${name}.run() is not called`);
      const imported = imports.filter((i) => i.source === source).map((i) => i.target);
      const runs = sources.some((s) =>
        (s === source || inFolder("test")(s) && imported.includes(s.path)) &&
        s.text.includes(".run();")
      );
      return runs || !source.path.endsWith("_test.ts")
        ? idle
        : [`${source.path}: nothing calls .run()`];
    }),
);

rule(
  "no test is singled out or left out for good",
  () =>
    testFiles.flatMap((source) =>
      source.lines.flatMap((line, at) =>
        /^\s*\w+\.(only|skip)\(/.test(line) ? [place(source, at + 1)] : []
      )
    ),
);

rule(
  "test files sit below the folder they are about, or in system, support and bench",
  () =>
    testFiles.filter(({ path }) => {
      const folder = path.split("/")[1]!;
      const known = ["system", "support", "bench", "deploy", "cli", "tidy_test.ts"];
      return !known.includes(folder) &&
        ![`shared/${folder}`, `services/${folder}`].some((f) =>
          sources.some((s) => dirname(s.path).startsWith(f))
        );
    }).map((s) => s.path),
);

// The top of the tree

/** What git tracks at the top of the tree; in a checkout without git, everything that is not hidden. */
function topLevel(): string[] {
  try {
    const listed = execFileSync("git", ["ls-files"], {
      cwd: root,
      stdio: ["ignore", "pipe", "ignore"],
    });
    const tracked = listed.toString().trim().split("\n");
    return [...new Set(tracked.map((path) => path.split("/")[0]!))];
  } catch {
    return readdirSync(root).filter((name) => name !== "node_modules" && !/^\.|\.log$/.test(name));
  }
}

rule(
  "only the known files and folders are at the top of the tree",
  () =>
    topLevel().filter((name) =>
      !TOP_LEVEL_FILES.includes(name) && !TOP_LEVEL_FOLDERS.includes(name)
    ),
);

rule(
  "deploy/config.md is what the table of settings says",
  () =>
    readFileSync(join(root, "deploy/config.md"), "utf8") === renderReference()
      ? []
      : ["deploy/config.md is not current: run bun deploy/write_config.ts"],
);

tests.run();
