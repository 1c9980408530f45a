#!/bin/sh
# The one list of Debian packages that tests need beside npm's, one of them a source package. Installs what is missing
# when run as root on Debian or Ubuntu; elsewhere names what is missing and the test files that will skip themselves.
# Never fails: a test file that needs a missing package says so and is skipped by name.
set -u
cd "$(dirname "$0")/.."

# PostgreSQL's regression tests are in no binary package; see fetch_regress.
regress=/usr/local/share/pgweir-test/postgresql-regress

# package:a file or command that shows it is there
needed="bzip2:bzip2 nats-server:nats-server postgresql:/usr/lib/postgresql/*/bin/postgres pgbouncer:pgbouncer iproute2:ip openssl:openssl slapd:slapd python3-psycopg:/usr/lib/python3/dist-packages/psycopg/__init__.py python3-asyncpg:/usr/lib/python3/dist-packages/asyncpg/__init__.py postgresql-regress:$regress/parallel_schedule"

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

# Debian's source package has them: 33 MB to fetch once, of which the 6 MB of scripts and data are kept. The index of
# sources goes to a folder of its own, not among the system's lists. Any minor version will do: that of the release
# itself is fetched, not that of its updates, which mirrors may lack.
fetch_regress() (
  version=$(find /usr/lib/postgresql -mindepth 1 -maxdepth 1 -printf '%f\n' | sort -n | tail -n 1)
  work=$(mktemp -d) || exit 1
  trap 'rm -rf "$work"' EXIT
  cd "$work" && mkdir -p lists/partial tests || exit 1
  for origin in Debian Ubuntu; do
    keyring=/usr/share/keyrings/$(echo "$origin" | tr DU du)-archive-keyring.gpg
    [ ! -e "$keyring" ] || apt-get indextargets "Created-By: Packages" "Origin: $origin" "Component: main" \
      --format "deb-src [signed-by=$keyring] \$(REPO_URI) \$(RELEASE) \$(COMPONENT)" | sort -u | awk '$4 !~ /-/' >>sources.list
  done
  own="-o Dir::Etc::SourceList=$work/sources.list -o Dir::Etc::SourceParts=/dev/null -o Dir::State::lists=$work/lists
    -o APT::Sandbox::User=root"
  # shellcheck disable=SC2086
  apt-get -qq $own update && apt-get -qq $own source --download-only --tar-only "postgresql-$version" || exit 1
  tar -xf postgresql-*.orig.tar.* -C tests --strip-components=4 --wildcards "*/src/test/regress/sql/*.sql" \
    "*/src/test/regress/data/*.data" "*/src/test/regress/parallel_schedule" || exit 1
  mkdir -p "${regress%/*}" && chmod -R a+rX tests && mv tests "$regress"
)

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
  packages=$(echo "$missing" | sed 's/postgresql-regress//')
  install() {
    # shellcheck disable=SC2086
    [ -z "${packages% }" ] || DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
      -o DPkg::Lock::Timeout=120 $packages >>"$log" 2>&1 </dev/null
  }
  fetch() {
    present "$regress/parallel_schedule" || fetch_regress >>"$log" 2>&1 </dev/null
  }
  # The package lists may be absent or stale, as in a fresh container: they are fetched only when needed.
  if ! install || ! fetch; then
    apt-get update -qq >>"$log" 2>&1 </dev/null
    install || echo "system packages: run \"apt-get install $packages\": $(grep -E '^E:' "$log" | tail -n 1)" >&2
    fetch || echo "system packages: fetch the source of PostgreSQL: $(grep -E '^E:' "$log" | tail -n 1)" >&2
  fi
fi

for package in $(missing_packages); do
  files=$(grep -rlE "needs\(.*\"$package\"" test --include='*_test.ts' | sort | tr '\n' ' ')
  echo "system packages: $package is not installed; skipped without it: ${files:-no test file}" >&2
done
exit 0
