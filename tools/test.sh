#!/usr/bin/env bash
# Runs the tests, and each test that failed once more by itself.
#
#   tools/test.sh THREADS [ARGUMENT OF cargo test]...
#
# Without arguments, or with several `--test NAME`, two test programs run at once, THREADS tests in
# each: most of a program's time is waiting, and its last test holds up nobody. What a program says
# is shown when it has ended. With other arguments cargo runs them, one after the other.
#
# A suite that starts some hundred servers on two cores meets the machine's own hiccups. A test that
# fails and then passes alone is named FLAKY and listed at the end; the run goes on. It ends with an
# error when
#   - a test fails twice,
#   - a test program ends without saying which test failed (a crash, an abort),
#   - more than five tests were flaky, or
#   - the first failure says `VIOLATION:`; then a fence was found broken, or a proof wrong, and no
#     second try takes that back.
#
#   FENCEWIRE_SECOND_TRY=0   no second tries: a failure is a failure
#   FENCEWIRE_TEST_LANES=1   test programs at once (default 2)
set -uo pipefail

FLAKY_MAX=5
# Longer than the longest program takes on a slow machine, by far: who is still there hangs.
PROGRAM_MAX=20m
lanes=${FENCEWIRE_TEST_LANES:-2}
threads=$1
shift
log=$(mktemp "${TMPDIR:-/tmp}/fencewire-test-log.XXXXXX")
trap 'rm -rf "$log" "$log".*' EXIT
# Programs in the background don't hear an interrupt by themselves.
trap 'trap - INT TERM; kill -TERM 0' INT TERM

RUSTDOC=$(cd "$(dirname "$0")" && pwd)/rustdoc.sh
export RUSTDOC

# Whether the arguments are what lanes can take: none, or more than one `--test NAME`.
for_lanes() {
  [ "$lanes" -gt 1 ] && [ $# != 2 ] || return 1
  while [ $# -gt 0 ]; do
    [ "$1" = --test ] && [ $# -gt 1 ] || return 1
    shift 2
  done
}

one_program() { # PROGRAM
  local said=$log.${1##*/} code=0
  CARGO_MANIFEST_DIR=$PWD timeout --foreground --kill-after=30s $PROGRAM_MAX \
    "$1" --test-threads="$threads" </dev/null >"$said" 2>&1 || code=$?
  [ $code != 124 ] || echo "tools/test.sh: $1 was stopped after $PROGRAM_MAX" >>"$said"
  # Bare on a line of its own: what the second tries below look for.
  [ $code = 0 ] || printf 'error: test failed: exit code %s\n' $code >>"$said"
  {
    flock 9
    { printf '     Running %s (%s)\n' "$(basename "${1%-*}")" "$1"; cat "$said"; } | tee -a "$log"
  } 9>"$log.lock"
  rm -f "$said"
  [ $code = 0 ] || : >"$log.failed"
}

in_lanes() {
  local programs program code=0
  programs=$(cargo test --no-run "$@" 2>&1 | tee /dev/stderr |
    sed -n 's/^ *Executable .*(\(.*\))$/\1/p'; exit "${PIPESTATUS[0]}") || return
  for program in $programs; do
    while [ "$(jobs -rp | wc -l)" -ge "$lanes" ]; do wait -n; done
    one_program "$program" &
  done
  wait
  [ ! -e "$log.failed" ] || code=101
  # The documentation's examples, which are no program.
  if [ $# = 0 ]; then
    cargo test --doc -- --test-threads="$threads" 2>&1 | tee -a "$log"
    [ "${PIPESTATUS[0]}" = 0 ] || code=101
  fi
  return $code
}

if for_lanes "$@"; then
  in_lanes "$@"
  code=$?
else
  cargo test --no-fail-fast "$@" -- --test-threads="$threads" 2>&1 | tee "$log"
  code=${PIPESTATUS[0]}
fi
[ "$code" != 0 ] && [ "${FENCEWIRE_SECOND_TRY:-1}" != 0 ] || exit "$code"

# PROGRAM NAME of each failed test; PROGRAM ! for a program that failed without naming one.
failed=$(awk '
  function close_program() { if (program != "" && broke && !named) print program, "!" }
  $1 == "Running" && match($0, /\([^()]*\)$/) {
    close_program(); program = substr($0, RSTART + 1, RLENGTH - 2); broke = named = 0
  }
  /^test .* \.\.\. FAILED$/ {
    name = $0; sub(/^test /, "", name); sub(/( - should panic)? \.\.\. FAILED$/, "", name)
    print program, name; named = 1
  }
  /^error: test failed|process didn.t exit successfully/ { broke = 1 }
  END { close_program() }
' "$log")

if [ -z "$failed" ]; then
  echo 'tools/test.sh: cargo failed without naming a test: no second try'
  exit "$code"
fi
if grep -q VIOLATION: <(awk '/^failures:$/,/^test result:/' "$log"); then
  echo 'tools/test.sh: a failed test says VIOLATION: no second try'
  exit "$code"
fi
if grep -q ' !$' <<<"$failed"; then
  echo 'tools/test.sh: a test program ended without naming a failed test: no second try'
  exit "$code"
fi
if [ "$(wc -l <<<"$failed")" -gt $FLAKY_MAX ]; then
  echo "tools/test.sh: more than $FLAKY_MAX tests failed: no second try"
  exit "$code"
fi

bad=0
while read -r program name; do
  printf '\ntools/test.sh: second try, alone: %s of %s\n' "$name" "$program"
  if "$program" --exact "$name" --test-threads=1 </dev/null &&
    [ "$("$program" --list --exact "$name" 2>/dev/null | grep -c ': test$')" = 1 ]; then
    printf 'FLAKY: %s of %s failed once and passed alone\n' "$name" "${program##*/}"
  else
    printf 'FAILED TWICE: %s of %s\n' "$name" "${program##*/}"
    bad=1
  fi
done <<<"$failed"

if [ $bad = 0 ]; then
  printf '\ntools/test.sh: flaky in this run, to be mended:\n%s\n' "$failed"
fi
exit $bad
