#!/usr/bin/env bash
# Builds the proxy and the bare relay as released, and measures them (tools/bench/run.py).
#
#   tools/bench.sh [--only PART,...] [--targets fencewire,...] [--no-document]
#
#   PART              idle, bulk, calls, queries (PostgreSQL), tls, sysbench (MariaDB); refusals,
#                     guard, acquire, fenced sysbench; pairs, growth (only when they are named)
#   BENCH_PROFILED=1  of the proxy that the container ships (tools/profiled.sh builds it first)
#   BENCH_QUICK=1     a look in about three minutes; prints only
#
# Needs what `tools/setup.sh bench` installs; a relay that isn't there is left out.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

PATH=$PATH:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin
target=${CARGO_TARGET_DIR:-target}
proxy=$target/release/fencewire
more=()
if [ -n "${BENCH_PROFILED:-}" ]; then
  tools/setup.sh profiled
  tools/profiled.sh
  proxy=$target/profiled/fencewire
  more=(--profiled)
  nice -n 5 cargo build --quiet --release --example bare_relay
else
  nice -n 5 cargo build --quiet --release --bin fencewire --example bare_relay
fi
[ -z "${BENCH_QUICK:-}" ] || more+=(--quick)
exec python3 tools/bench/run.py "${more[@]}" "$@" \
  "$proxy" "$target/release/examples/bare_relay"
