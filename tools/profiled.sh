#!/usr/bin/env bash
# Builds the proxy as the image ships it: laid out by a profile of itself at work.
#
#   tools/profiled.sh     makes target/profiled/fencewire   (make profiled)
#
# Three steps, half an hour on two cores: a build that counts what it runs through, four minutes
# of work before throw-away engines (tools/bench/train.py), and the build by these counts. What the
# program does is the same; what a statement runs through is shorter and lies together. The counts
# fit one source and one compiler, so they are made anew each time and kept nowhere.
#
# Needs what `tools/setup.sh profiled` installs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

PATH=$PATH:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin
say() { printf 'tools/profiled.sh: %s\n' "$*" >&2; }
die() { say "ERROR: $*"; exit 1; }

host=$(rustc -vV | sed -n 's/^host: //p')
merge=$(rustc --print sysroot)/lib/rustlib/$host/bin/llvm-profdata
[ -x "$merge" ] || die "no $merge: run tools/setup.sh profiled first"
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")/profiled
case $target in *[[:space:]]*) die "no compiler's flag can name $target, which has a blank in it" ;; esac
counts=$target/counts
profile=$target/fencewire.profdata
# Each would have flags or counts go elsewhere.
unset CARGO_ENCODED_RUSTFLAGS LLVM_PROFILE_FILE

# Build programs and macros aren't part of it: that is what naming the host as the target is for.
# Both builds name it, or the counts' functions would have other names than the second build's.
build() { # FLAGS FOLDER
  RUSTFLAGS="${RUSTFLAGS:-} $1" CARGO_TARGET_DIR=$target/$2 \
    nice -n 5 cargo build --quiet --release --locked --target "$host" --bin fencewire
}

mkdir -p "$target"
exec 9>"$target/lock"
flock -n 9 || die "another one is at work in $target"
# The last one's libraries are laid out by its profile, and Cargo doesn't look whether that changed.
rm -rf "$target/fencewire" "$target/made" "$counts"
say '1 of 3: building what counts'
build "-Cprofile-generate=$counts" counting
say '2 of 3: having it work'
rm -rf "$counts"
python3 tools/bench/train.py "$target/counting/$host/release/fencewire" 9>&-
"$merge" merge --sparse -o "$profile" "$counts"
rm -rf "$counts"
say '3 of 3: building by what was counted'
# What a function is called or how it branches may differ where units of code are cut anew: such a
# function is built without counts, which isn't worth a warning each.
build "-Cprofile-use=$profile -Cllvm-args=-no-pgo-warn-mismatch" made
cp "$target/made/$host/release/fencewire" "$target/fencewire"
say "made $target/fencewire"
