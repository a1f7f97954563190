#!/usr/bin/env bash
# PostgreSQL 18 beside Debian 12's own 15, for tests: unpacked into a folder of its own
# (newer_debian.sh says how).
#
#   tools/postgresql18.sh          brings it, unless it is there; prints the folder of its programs
#   tools/postgresql18.sh where    prints that folder, and fails where it isn't
#
#   FENCEWIRE_PG18_DIR    where it goes: by default a cache folder of root's that the servers' user
#                         can reach (/var/cache/fencewire/postgresql-18), else of the caller's
#                         ($HOME/.cache/fencewire-tools/postgresql-18)
#   FENCEWIRE_PG18_SUITE  the Debian suite it comes from   (default sid)
#   FENCEWIRE_PG18_MIRROR the archive                      (default the one of this machine's apt)
set -euo pipefail
export LC_ALL=C
umask 022

# shellcheck disable=SC2034  # all of these are for newer_debian.sh
{
  ME=tools/postgresql18.sh
  WHAT='PostgreSQL 18'
  PACKAGES='postgresql-18 postgresql-client-18'
  PROGRAMS=usr/lib/postgresql/18/bin
  MAIN=usr/lib/postgresql/18/bin/postgres
  SUITE=${FENCEWIRE_PG18_SUITE:-sid}
  MIRROR=${FENCEWIRE_PG18_MIRROR:-}
  WAY_OUT="give the folder of PostgreSQL 18's own programs in FENCEWIRE_TEST_PG18_BIN instead"
}
. "$(dirname "$(readlink -f "$0")")/newer_debian.sh"
DEST=${FENCEWIRE_PG18_DIR:-$(cache_folder postgresql-18)}

right_version() { case $1 in *' 18.'*) ;; *) return 1 ;; esac; }

case ${1:-install} in
  install) unpacked || bring ;;
  where) unpacked || die "not installed: run tools/setup.sh test" ;;
  *) die "unknown word '$1': install or where" ;;
esac
echo "$DEST/root/$PROGRAMS"
