#!/usr/bin/env bash
# Statements that nobody here wrote, for the MySQL classifier's test: the main test scripts of
# MariaDB (Debian's package mariadb-test-data) and of MySQL 9 (mysql-testsuite of Debian sid; 340 MB
# are fetched for it, 10 MB kept).
#
#   tools/mysql_corpus.sh FOLDER    fills FOLDER/mariadb_test and FOLDER/mysql_test, unless they are
#                                   there
#
#   FENCEWIRE_MYSQL9_SUITE, FENCEWIRE_MYSQL9_MIRROR   as for tools/mysql9.sh
set -euo pipefail
export LC_ALL=C
umask 022

# shellcheck disable=SC2034  # these are for newer_debian.sh
ME=tools/mysql_corpus.sh
SUITE=${FENCEWIRE_MYSQL9_SUITE:-sid}
MIRROR=${FENCEWIRE_MYSQL9_MIRROR:-}
. "$(dirname "$(readlink -f "$0")")/newer_debian.sh"

[ $# = 1 ] || die "one folder, please (see the head of this file)"
CORPUS=$1
WAY_OUT="copy mysql-test/t/*.test of the server's source into $CORPUS/mysql_test and
    mysql-test/main/*.test of MariaDB's into $CORPUS/mariadb_test"
WORK=$CORPUS/mysql.work

# The scripts in a package, in one folder that appears as a whole.
keep() { # PACKAGE-FILE FOLDER-IN-IT NAME
  mkdir -p "$WORK/$3"
  dpkg-deb --fsys-tarfile "$1" | tar -x -C "$WORK/$3" --wildcards "$2/*.test" ||
    die "cannot unpack ${1##*/}"
  [ -n "$(find "$WORK/$3" -name 'alter_table.test' -print -quit)" ] ||
    die "${1##*/} doesn't hold what was expected in $2"
  rm -rf "${CORPUS:?}/$3"
  mkdir "$CORPUS/$3"
  find "$WORK/$3" -name '*.test' -exec mv -t "$CORPUS/$3" {} +
}

mariadb() {
  say "fetching the statements of MariaDB's tests, once"
  (cd "$WORK" && apt-get -q download mariadb-test-data) >"$WORK/log" 2>&1 ||
    (apt-get -q update && cd "$WORK" && apt-get -q download mariadb-test-data) >"$WORK/log" 2>&1 ||
    { tail -n 5 "$WORK/log" >&2; die "mariadb-test-data could not be fetched; or $WAY_OUT"; }
  keep "$(echo "$WORK"/mariadb-test-data_*.deb)" ./usr/share/mysql/mysql-test/main mariadb_test
}

mysql() {
  say "fetching the statements of MySQL's tests, once: 340 MB"
  own_apt "$WORK/apt"
  apt-get -q -o APT::Update::Error-Mode=any update >"$WORK/log" 2>&1 &&
    (cd "$WORK" && apt-get -q download mysql-testsuite) >>"$WORK/log" 2>&1 ||
    { tail -n 5 "$WORK/log" >&2; die "mysql-testsuite could not be fetched; or $WAY_OUT"; }
  keep "$(echo "$WORK"/mysql-testsuite_*.deb)" ./usr/lib/mysql-test/t mysql_test
}

have() { [ -e "$CORPUS/$1/alter_table.test" ]; }

! { have mariadb_test && have mysql_test; } || exit 0
for tool in apt-get dpkg-deb flock; do
  command -v "$tool" >/dev/null || die "no $tool here; $WAY_OUT"
done
mkdir -p "$CORPUS"
# One at a time: two test runs of two checkouts may share the folder.
exec 9>"$CORPUS/mysql.lock"
flock -w 600 9 || die "somebody else has been at it for ten minutes ($CORPUS/mysql.lock)"
rm -rf "$WORK"
mkdir -p "$WORK"
have mariadb_test || mariadb
have mysql_test || mysql
rm -rf "$WORK"
