#!/usr/bin/env bash
# Oracle's MySQL 9 beside Debian 12's own MariaDB, for tests: unpacked into a folder of its own
# (newer_debian.sh says how).
#
#   tools/mysql9.sh          brings it, unless it is there; prints its root folder (usr/ is below)
#   tools/mysql9.sh where    prints that folder, and fails where it isn't
#
#   FENCEWIRE_MYSQL9_DIR    where it goes: by default a cache folder of root's that the servers' user
#                           can reach (/var/cache/fencewire/mysql-9), else of the caller's
#                           ($HOME/.cache/fencewire-tools/mysql-9)
#   FENCEWIRE_MYSQL9_SUITE  the Debian suite it comes from   (default sid)
#   FENCEWIRE_MYSQL9_MIRROR the archive                      (default the one of this machine's apt)
set -euo pipefail
export LC_ALL=C
umask 022

# shellcheck disable=SC2034  # all of these are for newer_debian.sh
{
  ME=tools/mysql9.sh
  WHAT='MySQL 9'
  PACKAGES='mysql-server-core mysql-client-core'
  PROGRAMS='usr/bin usr/sbin'
  MAIN=usr/sbin/mysqld
  SUITE=${FENCEWIRE_MYSQL9_SUITE:-sid}
  MIRROR=${FENCEWIRE_MYSQL9_MIRROR:-}
  WAY_OUT="give the folder above usr/ of an unpacked MySQL 9 in FENCEWIRE_TEST_MYSQL9_ROOT instead"
}
. "$(dirname "$(readlink -f "$0")")/newer_debian.sh"
DEST=${FENCEWIRE_MYSQL9_DIR:-$(cache_folder mysql-9)}
# Where its clients look for plugins, such as the one for MariaDB's passwords, and OpenSSL for its
# own: the places compiled in aren't there.
# shellcheck disable=SC2034
BEFORE_EXEC="export LIBMYSQL_PLUGIN_DIR='$DEST/root/usr/lib/mysql/plugin'
export OPENSSL_MODULES='$DEST/root/usr/lib/$(uname -m)-linux-gnu/ossl-modules'
"

right_version() { case $1 in *'Ver 9.'*) ;; *) return 1 ;; esac; }

case ${1:-install} in
  install) unpacked || bring ;;
  where) unpacked || die "not installed: run tools/setup.sh test" ;;
  *) die "unknown word '$1': install or where" ;;
esac
echo "$DEST/root"
