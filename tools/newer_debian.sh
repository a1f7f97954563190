# Programs of a newer Debian suite beside Debian 12's own, for tests. Sourced, not run, by
# postgresql18.sh and mysql9.sh. Nothing of the system is changed: the packages are fetched by apt
# (which checks their signatures), unpacked into a folder, and their programs run with the libraries
# and the loader that were unpacked with them.
#
# Set before: ME (the script's name), WHAT (for people), PACKAGES (their names), PROGRAMS (folders
# under root/), MAIN (the program that shows that all is there, under root/), SUITE, MIRROR (may be
# empty), DEST (where all of it goes), WAY_OUT (what to do on a machine without apt).
# Then: `unpacked` is true when it is there, `bring` brings it.
KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg

say() { printf '%s: %s\n' "$ME" "$*" >&2; }
die() { say "ERROR: $*"; exit 1; }

# The default of DEST: a cache folder of root's that the servers' user can reach, else the caller's.
cache_folder() { # NAME
  if [ "$(id -u)" = 0 ]; then echo "/var/cache/fencewire/$1"
  else echo "${FENCEWIRE_TOOLS_DIR:-${HOME:-/tmp}/.cache/fencewire-tools}/$1"; fi
}

# `complete` is written last: a folder without it is the rest of an attempt that failed.
unpacked() { [ -e "$DEST/complete" ] && [ -x "$DEST/root/$MAIN" ]; }

mirror() {
  local found
  found=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
    grep -Eo 'https?://[^ ]+/debian/?( |$)' | head -n 1 | tr -d ' ') || true
  found=${MIRROR:-$found}
  [ -n "$found" ] || die "no Debian mirror in apt's sources: name one (see the head of $ME)"
  echo "$found"
}

# An apt of our own: its lists, its cache, and a system in which nothing is installed.
own_apt() { # WORK
  local w=$1
  [ -r "$KEYRING" ] || die "$KEYRING is missing: install debian-archive-keyring"
  mkdir -p "$w/state/lists/partial" "$w/cache/archives/partial" "$w/debs"
  : >"$w/status"
  local from
  from=$(mirror)
  echo "deb [signed-by=$KEYRING] $from $SUITE main" >"$w/sources.list"
  cat >"$w/apt.conf" <<CONF
Dir::Etc::SourceList "$w/sources.list";
Dir::Etc::SourceParts "-";
Dir::Etc::Preferences "-";
Dir::Etc::PreferencesParts "-";
Dir::State "$w/state";
Dir::State::Lists "$w/state/lists";
Dir::State::status "$w/status";
Dir::Cache "$w/cache";
APT::Sandbox::User "$(id -un)";
APT::Install-Recommends "0";
Acquire::Languages "none";
Acquire::Retries "3";
CONF
  export APT_CONFIG=$w/apt.conf
}

# What of the dependencies is needed to run programs: libraries. Not maintainers' scripts and Perl.
wanted() {
  local names
  names=$(tr ' ' '|' <<<"$PACKAGES")
  awk '$1 == "Inst" { sub(/^\(/, "", $3); print $2 "=" $3 }' |
    grep -E "^(lib|zlib|($names)=)" |
    grep -Ev '^(libperl|lib[a-z0-9-]*-perl=|libc-bin|libc-l10n|libc-gconv)'
}

fetch() { # WORK
  local w=$1 packages
  say "reading the package lists of $SUITE from $(mirror)"
  apt-get -q -o APT::Update::Error-Mode=any update >"$w/log" 2>&1 ||
    { tail -n 20 "$w/log" >&2; die "apt-get update for $SUITE failed"; }
  # shellcheck disable=SC2086  # one word per package
  packages=$(apt-get -q -s install $PACKAGES 2>"$w/log" | wanted) ||
    { tail -n 20 "$w/log" >&2; die "$SUITE has no installable $PACKAGES"; }
  say "fetching $(wc -l <<<"$packages") packages"
  # shellcheck disable=SC2086  # one word per package
  (cd "$w/debs" && apt-get -q download $packages) >"$w/log" 2>&1 ||
    { tail -n 20 "$w/log" >&2; die "the packages could not be fetched"; }
}

# PROGRAM becomes a script that runs PROGRAM.real through the loader that came along.
wrap() { # NEW PROGRAM LOADER LIBRARIES
  local new=$1 program=$2 loader=$3 libraries=$4 missing at
  at=$DEST${program#"$new"}
  missing=$("$loader" --library-path "$libraries" --list "$program" | grep 'not found') || true
  [ -z "$missing" ] || die "${program##*/} lacks libraries: $missing"
  mv "$program" "$program.real"
  printf '#!/bin/sh\n%sexec "%s" --library-path "%s" --argv0 "%s" "%s" "$@"\n' \
    "${BEFORE_EXEC:-}" "$DEST${loader#"$new"}" "$DEST${libraries#"$new"}" "$at" "$at.real" \
    >"$program"
  chmod 755 "$program"
}

unpack() { # WORK NEW
  local w=$1 new=$2 deb loader libraries folder program
  mkdir -p "$new/root"
  for deb in "$w"/debs/*.deb; do
    dpkg-deb --extract "$deb" "$new/root" || die "cannot unpack ${deb##*/}"
  done
  (cd "$w/debs" && ls) >"$new/packages"
  rm -rf "$new"/root/usr/share/{doc,man,locale,lintian}
  loader=$(find "$new/root" -name 'ld-linux*.so.*' | head -n 1)
  libraries=$(dirname "$(find "$new/root/usr/lib" -name 'libc.so.6' | head -n 1)")
  [ -n "$loader" ] && [ -d "$libraries" ] || die "no C library among the packages"
  for folder in $PROGRAMS; do
    for program in "$new/root/$folder"/*; do
      # A link names a program that gets its script under its own name.
      [ -f "$program" ] && [ ! -L "$program" ] || continue
      [ "$(head -c 4 "$program" | tail -c 3)" != ELF ] ||
        wrap "$new" "$program" "$loader" "$libraries"
    done
  done
}

bring() {
  local work new tool version
  for tool in apt-get dpkg-deb flock; do
    command -v "$tool" >/dev/null || die "no $tool here; $WAY_OUT"
  done
  mkdir -p "$(dirname "$DEST")" || die "cannot make $(dirname "$DEST")"
  exec 9>"$DEST.lock"
  flock -w 600 9 || die "somebody else has been at it for ten minutes ($DEST.lock)"
  ! unpacked || return 0
  work=$DEST.work new=$DEST.new
  rm -rf "$work" "$new" "$DEST"
  mkdir -p "$work"
  own_apt "$work"
  fetch "$work"
  unpack "$work" "$new"
  mv "$new" "$DEST"
  version=$("$DEST/root/$MAIN" --version) || die "what was unpacked doesn't run"
  right_version "$version" || die "this is no $WHAT: $version"
  touch "$DEST/complete"
  rm -rf "$work"
  say "$version is in $DEST"
}
