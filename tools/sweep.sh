#!/usr/bin/env bash
# Stops and removes what killed test runs left behind. A running test is not touched.
#
# Tests keep each server in a folder TMP/fencewire-KIND-PID-START-N: PID and START are the process
# id and start time of the test program that owns it, `server.pid` inside is the server's process
# id. A folder whose owner is gone is a leftover. Its server is killed only while that process
# still names the folder on its command line.
set -euo pipefail
shopt -s nullglob

start_of() { # PID -> start time, field 22 of /proc/PID/stat; nothing when there is no such process
  local stat
  { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 0
  stat=${stat##*) }
  # shellcheck disable=SC2086
  set -- $stat
  echo "${20}"
}
names() { # PID DIR: does the process name the folder?
  { tr '\0' ' ' <"/proc/$1/cmdline"; } 2>/dev/null | grep -qF -- "$2/"
}

swept=0
for base in "${TMPDIR:-/tmp}" /tmp; do
  for dir in "$base"/fencewire-*-*-*-*/; do
    dir=${dir%/}
    IFS=- read -r _ _ owner start _ <<<"${dir##*/}"
    [[ $owner =~ ^[0-9]+$ && $start =~ ^[0-9]+$ ]] || continue
    [ "$(start_of "$owner")" != "$start" ] || continue
    for file in "$dir"/*.pid; do
      pid=$(cat "$file" 2>/dev/null) || continue
      [[ $pid =~ ^[0-9]+$ ]] && names "$pid" "$dir" || continue
      kill -KILL "$pid" 2>/dev/null || true
      echo "tools/sweep.sh: killed process $pid of $dir"
    done
    # The owner's own clean-up may be at it at the same moment: what is gone is no error.
    rm -rf "$dir" 2>/dev/null || rm -rf "$dir" || continue
    swept=$((swept + 1))
  done
done
[ $swept = 0 ] || echo "tools/sweep.sh: removed $swept leftover folder(s)"
