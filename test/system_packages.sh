#!/bin/sh
# The one list of Debian packages that tests need beside npm's. Installs what is missing when run as root on
# Debian or Ubuntu; elsewhere names what is missing and the test files that will skip themselves. Never fails:
# a test file that needs a missing package says so and is skipped by name.
set -u
cd "$(dirname "$0")/.."

# package:a file or command that shows it is there
needed="nats-server:nats-server postgresql:/usr/lib/postgresql/*/bin/postgres pgbouncer:pgbouncer iproute2:ip openssl:openssl python3-psycopg:/usr/lib/python3/dist-packages/psycopg/__init__.py"

PATH=$PATH:/usr/sbin:/sbin

present() {
  case $1 in
    /*) for file in $1; do [ -e "$file" ] && return 0; done ;;
    *) command -v "$1" >/dev/null 2>&1 && return 0 ;;
  esac
  return 1
}

missing_packages() {
  set -f
  for entry in $needed; do
    set +f
    present "${entry#*:}" || printf '%s ' "${entry%%:*}"
  done
  set +f
}

missing=$(missing_packages)
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
  echo "system packages: installing $missing" >&2
  log=$(mktemp)
  # The servers must not start on their default ports: tests start their own. Debian's way to say so is policy-rc.d.
  policy=/usr/sbin/policy-rc.d
  own_policy=
  if [ ! -e "$policy" ]; then
    own_policy=$policy
    printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy"
  fi
  trap '[ -z "$own_policy" ] || rm -f "$own_policy"; rm -f "$log"' EXIT
  trap 'exit 1' INT TERM
  install() {
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
      -o DPkg::Lock::Timeout=120 $missing >>"$log" 2>&1 </dev/null
  }
  # The package lists may be absent or stale, as in a fresh container: they are fetched only when needed.
  if ! install; then
    apt-get update -qq >>"$log" 2>&1 </dev/null
    install || echo "system packages: run \"apt-get install $missing\": $(grep -E '^E:' "$log" | tail -n 1)" >&2
  fi
fi

for package in $(missing_packages); do
  files=$(grep -rlE "needs\(.*\"$package\"" test --include='*_test.ts' | sort | tr '\n' ' ')
  echo "system packages: $package is not installed; skipped without it: ${files:-no test file}" >&2
done
exit 0
