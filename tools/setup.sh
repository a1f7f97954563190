#!/usr/bin/env bash
# Installs what this repository needs and the machine lacks. Safe to run again: a machine that has
# everything gets one line and no change.
#
#   tools/setup.sh [demo|test|instructions|bench|profiled|lint]...      default: test
#
# Made for Debian 12 with a Rust toolchain. Elsewhere, or without root and sudo, it installs
# nothing and says what to install by hand. No server is started or enabled, no "main" cluster is
# created: demo and tests start throw-away servers of their own and stop them.
#
#   FENCEWIRE_TOOLS_DIR   where cargo-deny and the drivers under test go, the latter in the versions
#                         that tests/drivers/ names   (default $HOME/.cache/fencewire-tools)
#
# The tests' second PostgreSQL, version 18, and Oracle's MySQL 9 beside Debian's MariaDB come by
# tools/postgresql18.sh and tools/mysql9.sh into cache folders.
set -euo pipefail
export LC_ALL=C

ME=tools/setup.sh
RUST_MIN=1.89
DENY_VERSION=0.20.2
DRIVERS=$(cd "$(dirname "$0")/.." && pwd)/tests/drivers
TOOLS_DIR=${FENCEWIRE_TOOLS_DIR:-${HOME:-/root}/.cache/fencewire-tools}

# The system's Python where there is one: a version manager's may have no packages of the system.
PYTHON=python3
[ ! -x /usr/bin/python3 ] || PYTHON=/usr/bin/python3

say() { printf '%s: %s\n' "$ME" "$*" >&2; }
die() { say "ERROR: $*"; exit 1; }
has() { command -v "$1" >/dev/null 2>&1; }
exists() { local f; for f in "$@"; do [ -e "$f" ] && return 0; done; return 1; }

# ---- what each purpose needs: fills PACKAGES with the Debian packages that are missing
PACKAGES=()
need_build() {
  has cc || PACKAGES+=(gcc libc6-dev)
  has make || PACKAGES+=(make)
}
need_server() {
  has postgres || exists /usr/lib/postgresql/*/bin/postgres || PACKAGES+=(postgresql)
}
# Debian's packages of programs alone: they bring no service that could start.
need_mariadb() {
  exists /usr/sbin/mariadbd || has mariadbd || PACKAGES+=(mariadb-server-core)
  has mariadb-install-db || PACKAGES+=(mariadb-server-core)
}
need_mysql_clients() {
  has mariadb || PACKAGES+=(mariadb-client-core)
  has mariadb-dump || PACKAGES+=(mariadb-client)
  has sysbench || PACKAGES+=(sysbench)
}
need_clients() {
  has psql && has pgbench && has pg_dump || PACKAGES+=(postgresql-client postgresql-contrib)
  exists /usr/share/postgresql/*/extension/dblink.control || PACKAGES+=(postgresql-contrib)
  exists /usr/lib/python3/dist-packages/psycopg/__init__.py ||
    python3 -c 'import psycopg' 2>/dev/null || PACKAGES+=(python3 python3-psycopg)
}
need_pip() {
  exists "$TOOLS_DIR/corpus/postgres_regress/select.sql" && return 0
  python3 -m pip --version >/dev/null 2>&1 || PACKAGES+=(python3 python3-pip)
}
# What runs the drivers of tests/drivers/, and what installs them.
need_driver_hosts() {
  has "$PYTHON" && "$PYTHON" -c 'import ensurepip' 2>/dev/null || PACKAGES+=(python3 python3-venv)
  has node || PACKAGES+=(nodejs)
  has npm || PACKAGES+=(npm)
}
need_rivals() {
  has haproxy || exists /usr/sbin/haproxy || PACKAGES+=(haproxy)
  has pgbouncer || exists /usr/sbin/pgbouncer || PACKAGES+=(pgbouncer)
  has strace || PACKAGES+=(strace)
}
need_tls() { has openssl || PACKAGES+=(openssl); }

# ---- Debian packages
ROOT=()
become_root() {
  [ "$(id -u)" = 0 ] && return 0
  if has sudo && sudo -n true 2>/dev/null; then ROOT=(sudo -n); return 0; fi
  die "missing packages and no root here. Install them, then run this again:
    apt-get install --no-install-recommends $*"
}
apt() { "${ROOT[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y "$@"; }
install() { apt install --no-install-recommends "$@"; }

POLICY=/usr/sbin/policy-rc.d
drop_policy() { [ -z "${POLICY_OURS:-}" ] || "${ROOT[@]}" rm -f "$POLICY"; POLICY_OURS=; }
# While we install, no package may start its service.
hold_services() {
  exists "$POLICY" && return 0
  POLICY_OURS=1
  trap drop_policy EXIT
  printf '#!/bin/sh\nexit 101\n' | "${ROOT[@]}" tee "$POLICY" >/dev/null
  "${ROOT[@]}" chmod 755 "$POLICY"
}

install_packages() {
  has apt-get || die "this is no Debian. Install by your own means what these packages hold: $*"
  become_root "$@"
  say "installing: $*"
  hold_services
  apt update >/dev/null || say "apt-get update failed; trying with the package lists that are here"
  case " $* " in *" postgresql "*)
    # The server package creates and enables a cluster on port 5432 unless told not to beforehand.
    install postgresql-common
    "${ROOT[@]}" mkdir -p /etc/postgresql-common/createcluster.d
    printf '%s\n' '# Written by the set-up of fencewire, which installed PostgreSQL.' \
      'create_main_cluster = false' |
      "${ROOT[@]}" tee /etc/postgresql-common/createcluster.d/fencewire.conf >/dev/null ;;
  esac
  install "$@"
  drop_policy
  local service
  for service in haproxy pgbouncer; do
    case " $* " in *" $service "*)
      ! has systemctl || "${ROOT[@]}" systemctl disable "$service" >/dev/null 2>&1 ||
        say "could not disable the service $service; it may start at the next boot" ;;
    esac
  done
}

# ---- Rust
need_rust() {
  has cargo || PATH=$PATH:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin
  has cargo || die "no cargo. Install Rust $RUST_MIN or newer (https://rustup.rs), then run this again"
}
need_lints() {
  cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 && return 0
  has rustup || die "cargo fmt or cargo clippy is missing: install your toolchain's rustfmt and clippy"
  rustup component add rustfmt clippy
}
# What makes a profile of what a program counted (tools/profiled.sh).
need_profiles() {
  local host
  host=$(rustc -vV | sed -n 's/^host: //p')
  exists "$(rustc --print sysroot)/lib/rustlib/$host/bin/llvm-profdata" && return 0
  has rustup || die "llvm-profdata is missing: install the llvm-tools of your Rust toolchain"
  rustup component add llvm-tools
}
# cargo-deny from PATH or from TOOLS_DIR, else built into the latter: a minute or two, once.
need_deny() {
  has cargo-deny && return 0
  exists "$TOOLS_DIR/bin/cargo-deny" && return 0
  say "building cargo-deny $DENY_VERSION into $TOOLS_DIR, once; this takes a minute or two"
  env -u CARGO_TARGET_DIR CARGO_PROFILE_DEV_DEBUG=0 \
    cargo install --locked --quiet --debug --root "$TOOLS_DIR" "cargo-deny@$DENY_VERSION"
}

# PostgreSQL's regression scripts, which the source package pglast on PyPI carries: statements that
# nobody here wrote, for the classifier's test. Unpacked outside the checkout, once.
CORPUS_PACKAGE=pglast==8.8
need_corpus() {
  tools/mysql_corpus.sh "$TOOLS_DIR/corpus"
  exists "$TOOLS_DIR/corpus/postgres_regress/select.sql" && return 0
  say "fetching the statements of PostgreSQL's regression tests ($CORPUS_PACKAGE), once"
  local from
  from=$(mktemp -d)
  python3 -m pip download -q --no-deps --no-binary :all: -d "$from" "$CORPUS_PACKAGE" ||
    die "could not download $CORPUS_PACKAGE from PyPI; the classifier's test needs it"
  tar -xzf "$from"/pglast-*.tar.gz -C "$from" --wildcards '*/postgres_regress/*.sql'
  mkdir -p "$TOOLS_DIR/corpus"
  rm -rf "$TOOLS_DIR/corpus/postgres_regress"
  mv "$from"/*/libpg_query/test/sql/postgres_regress "$TOOLS_DIR/corpus/"
  rm -rf "$from"
}
# ---- drivers: one folder per language, replaced as a whole when the list of versions changes
# Usage: drivers_in FOLDER FILE... ; true when FOLDER was installed from files like these.
drivers_in() {
  local folder=$1
  shift
  cat "$@" | cmp -s - "$folder/installed"
}
need_drivers() {
  local folder=$TOOLS_DIR/drivers wanted=()
  mkdir -p "$folder"
  # One at a time: two test runs of two checkouts may share the folder.
  exec 9>"$folder/lock"
  flock 9
  wanted=("$DRIVERS/requirements.txt")
  if ! drivers_in "$folder/python" "${wanted[@]}"; then
    say "installing the Python drivers into $folder/python, once"
    rm -rf "$folder/python"
    "$PYTHON" -m venv "$folder/python"
    "$folder/python/bin/python" -m pip install --quiet --disable-pip-version-check \
      --no-deps --only-binary :all: -r "${wanted[0]}"
    cat "${wanted[@]}" >"$folder/python/installed"
  fi
  wanted=("$DRIVERS/package.json" "$DRIVERS/package-lock.json")
  if ! drivers_in "$folder/node" "${wanted[@]}"; then
    say "installing the Node.js drivers into $folder/node, once"
    rm -rf "$folder/node"
    mkdir "$folder/node"
    cp "${wanted[@]}" "$folder/node/"
    npm ci --prefix "$folder/node" --ignore-scripts --no-audit --no-fund --loglevel=error >&2
    cat "${wanted[@]}" >"$folder/node/installed"
  fi
  exec 9>&-
}
# One method of logging in to MariaDB is in a package that brings the service: its file alone, of the
# version that the server has.
need_mariadb_plugin() {
  local to=$TOOLS_DIR/mariadb/auth_ed25519.so version from
  version=$(dpkg-query -W -f '${Version}' mariadb-server-core 2>/dev/null) || version=
  [ -n "$version" ] || die "mariadb-server-core isn't installed as a package; the tests need it"
  exists "$to" && [ "$(cat "$TOOLS_DIR/mariadb/version")" = "$version" ] && return 0
  say "fetching MariaDB's ed25519 plugin into $TOOLS_DIR/mariadb, once"
  from=$(mktemp -d)
  (cd "$from" && apt-get -q download "mariadb-server=$version" >/dev/null 2>&1) ||
    die "could not download the package mariadb-server $version; the tests need a plugin of it"
  mkdir -p "$TOOLS_DIR/mariadb"
  dpkg-deb --fsys-tarfile "$from"/mariadb-server_*.deb |
    tar -x -O ./usr/lib/mysql/plugin/auth_ed25519.so >"$to.new"
  mv "$to.new" "$to"
  printf '%s' "$version" >"$TOOLS_DIR/mariadb/version"
  rm -rf "$from"
}
# The tests run on PostgreSQL 18 and MySQL 9 too. Without these they would show less than they say:
# no way round.
need_newer_engines() {
  exists "${FENCEWIRE_TEST_PG18_BIN:-/nowhere}/postgres" || tools/postgresql18.sh >/dev/null
  exists "${FENCEWIRE_TEST_MYSQL9_ROOT:-/nowhere}/usr/sbin/mysqld" || tools/mysql9.sh >/dev/null
}

# ---- main
cd "$(dirname "$(readlink -f "$0")")/.."
[ $# -gt 0 ] || set -- test
for purpose in "$@"; do
  need_build
  case $purpose in
    demo) need_server; need_mariadb ;;
    test)
      need_server; need_clients; need_pip; need_driver_hosts
      need_mariadb; need_mysql_clients ;;
    bench)
      need_server; need_clients; need_rivals; need_tls
      need_mariadb; need_mysql_clients ;;
    profiled)
      need_server; need_clients; need_tls
      need_mariadb; need_mysql_clients ;;
    instructions) has valgrind || PACKAGES+=(valgrind) ;;
    lint) ;;
    *) die "unknown purpose '$purpose': demo, test, instructions, bench, profiled or lint" ;;
  esac
done
if [ ${#PACKAGES[@]} -gt 0 ]; then
  mapfile -t PACKAGES < <(printf '%s\n' "${PACKAGES[@]}" | sort -u)
  install_packages "${PACKAGES[@]}"
fi
need_rust
case " $* " in *" test "*) need_newer_engines ;; esac
# HAProxy ends TLS only for clients of PostgreSQL 17 or later, which the bench takes from here.
case " $* " in *" bench "*)
  exists "${FENCEWIRE_TEST_PG18_BIN:-/nowhere}/pgbench" || tools/postgresql18.sh >/dev/null ||
    say "no PostgreSQL 18: the bench leaves HAProxy out where it measures TLS" ;;
esac
case " $* " in *" lint "*) need_lints; need_deny ;; esac
case " $* " in *" profiled "*) need_profiles ;; esac
case " $* " in *" test "*) need_corpus; need_drivers; need_mariadb_plugin ;; esac
say "everything for '$*' is here"
