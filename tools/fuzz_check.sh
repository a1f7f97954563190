#!/usr/bin/env bash
# Compiles the fuzzing targets of fuzz/, which no other command of this repository builds.
#
#   tools/fuzz_check.sh
#
# Needs no cargo-fuzz and no nightly toolchain, and no libFuzzer is built: nothing is linked. The
# versions are those of the package's own Cargo.lock, so that what is compiled already isn't again.
# It ends with an error when a target doesn't compile (warnings included), when a file in
# fuzz_targets/ is no target, or when a target doesn't run a property that tests/fuzz_smoke.rs runs.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."

files=$(cd fuzz/fuzz_targets && ls ./*.rs | sed 's|^\./||; s|\.rs$||' | sort)
named=$(sed -n 's|^path = "fuzz_targets/\(.*\)\.rs"$|\1|p' fuzz/Cargo.toml | sort)
if [ "$files" != "$named" ]; then
  echo 'tools/fuzz_check.sh: fuzz/Cargo.toml and fuzz/fuzz_targets/ name different targets:' >&2
  diff <(echo "$named") <(echo "$files") >&2 || true
  exit 1
fi
for target in $files; do
  property=$(sed -n 's/^.*fencewire::\([a-z:]*fuzzing::[a-z_]*\)(.*$/\1/p' \
    "fuzz/fuzz_targets/$target.rs")
  if [ -z "$property" ] || ! grep -q "entry: $property," tests/fuzz_smoke.rs; then
    echo "tools/fuzz_check.sh: $target runs no property that tests/fuzz_smoke.rs runs" >&2
    exit 1
  fi
done

cp Cargo.lock fuzz/Cargo.lock
# Named and never opened: it takes the place of the library that the build script would compile.
export CUSTOM_LIBFUZZER_PATH=/nowhere/libFuzzer.a
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
cargo clippy --quiet --manifest-path fuzz/Cargo.toml --bins -- -D warnings
