#!/usr/bin/env bash
# Runs the tests, and each test that failed once more by itself.
#
#   tools/test.sh THREADS [ARGUMENT OF cargo test]...
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
set -uo pipefail

FLAKY_MAX=5
threads=$1
shift
log=$(mktemp "${TMPDIR:-/tmp}/fencewire-test-log.XXXXXX")
trap 'rm -f "$log"' EXIT

RUSTDOC=$(cd "$(dirname "$0")" && pwd)/rustdoc.sh
export RUSTDOC
cargo test --no-fail-fast "$@" -- --test-threads="$threads" 2>&1 | tee "$log"
code=${PIPESTATUS[0]}
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
