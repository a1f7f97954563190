# The commands of this repository. `make demo` and `make test` bring what the machine lacks
# (tools/setup.sh); nothing else is assumed than Rust, and Debian 12 for the installing.

TOOLS_DIR := $(or $(FENCEWIRE_TOOLS_DIR),$(HOME)/.cache/fencewire-tools)
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(TOOLS_DIR)/bin

# Tests that run at once within one test program: one more than there are cores, since they wait for
# engines and deadlines more than they compute. Many of them drive a real engine, a proxy and several
# clients: more than a few together only measure the machine.
TEST_THREADS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); [ $$n -gt 3 ] && echo 4 || echo $$((n + 1)))
# More for `cargo test`, such as ARGS="--test tools_pg".
ARGS ?=

.PHONY: help demo test test-18 test-auto-prepare test-schedules instructions soak lint bench bench-growth profiled fmt \
  sweep clean

help:
	@echo 'make demo    fences on a real PostgreSQL and a real MariaDB under load, start to finish'
	@echo 'make test    the whole test suite      (ARGS="--test NAME" for one part)'
	@echo 'make test-18 the suites again on PostgreSQL 18 (in make test; SUITES_18="--test NAME")'
	@echo 'make test-auto-prepare  some suites again with auto_prepare on (in make test)'
	@echo 'make test-schedules  every schedule of the gate against a session (in make test)'
	@echo 'make instructions  counts what the pure parts of a statement cost (in make test; WRITE=1 keeps)'
	@echo 'make soak    thousands of fence cycles and of ways around one (SOAK_CYCLES=2000)'
	@echo 'make lint    format, clippy (the fuzzing targets too), docs and dependency rules; no warnings'
	@echo 'make bench   what the proxy costs beside other relays'
	@echo 'make bench-growth   how that grows with clients, namespaces, fences and tables'
	@echo 'make profiled  the proxy as the container ships it, laid out by a profile: target/profiled/fencewire'
	@echo 'make fmt     formats the code'
	@echo 'make sweep   stops and removes what killed test runs left behind'
	@echo 'make clean   sweep, and remove build products'

# Also mysql, where tools/mysql9.sh has brought one.
DEMO_ENGINES ?= postgres mariadb
demo:
	@tools/setup.sh demo
	@echo 'make demo: building; the first time this takes some minutes' >&2
	cargo build --bin fencewire
	for engine in $(DEMO_ENGINES); do cargo run --quiet -- demo --engine $$engine || exit 1; done

test:
	@tools/setup.sh test
	tools/test.sh $(TEST_THREADS) $(ARGS)
	@[ -n "$(ARGS)" ] || $(MAKE) --no-print-directory test-schedules test-18 test-auto-prepare \
	  instructions

# Every schedule of the gate's handshake. The library's tests are built once more for it.
test-schedules:
	cargo test --lib --features loom gate::schedules

# Everything that drives PostgreSQL, a second time, with that version's own tools. Not here: relay_pg
# plays its conversations on both versions by itself.
NOT_18 := relay_pg
SUITES_18 ?= --test engine_pg --test classify_live $(foreach suite,\
	$(filter-out $(NOT_18),$(basename $(notdir $(wildcard tests/*_pg.rs)))),--test $(suite))
test-18:
	@tools/setup.sh test
	FENCEWIRE_TEST_PG=18 tools/test.sh $(TEST_THREADS) $(SUITES_18)

# What plays conversations, once more with `auto_prepare` on every PostgreSQL listener.
SUITES_AUTO_PREPARE ?= --test relay_pg --test drivers_pg --test bypass_pg
test-auto-prepare:
	@tools/setup.sh test
	FENCEWIRE_TEST_AUTO_PREPARE=1 tools/test.sh $(TEST_THREADS) $(SUITES_AUTO_PREPARE)

# Instruction counts of the pure parts against benches/instructions.txt. No time is measured. Of the
# build that the tests have made anyway: what it counts is work added, not what a release costs.
instructions:
	@tools/setup.sh instructions
	cargo build --quiet --example pure_parts
	python3 tools/bench/instructions.py $(if $(WRITE),--write) \
	  $(or $(CARGO_TARGET_DIR),target)/debug/examples/pure_parts

SOAK_CYCLES ?= 2000
SOAK_BYPASSES ?= 20000
SOAK_AGREEMENTS ?= 5000
SOAK_SIEGES ?= 500
soak:
	@tools/setup.sh test
	FENCEWIRE_SOAK_CYCLES=$(SOAK_CYCLES) cargo test --test history_pg histories -- --nocapture
	FENCEWIRE_SOAK_CYCLES=$(SOAK_CYCLES) cargo test --test history_mysql histories -- --nocapture
	FENCEWIRE_SIEGE_CYCLES=$(SOAK_CYCLES) FENCEWIRE_SIEGE_SEED=$$(date +%s) \
	  cargo test --test siege_mysql nothing_gets -- --nocapture
	FENCEWIRE_AGREEMENT_CASES=$(SOAK_AGREEMENTS) \
	  cargo test --lib the_controller_and_the_contract_agree -- --nocapture
	FENCEWIRE_SLOW=1 cargo test --test badinput_pg slow -- --nocapture
	FENCEWIRE_SLOW=1 cargo test --test badinput_mysql never_finish -- --nocapture
	FENCEWIRE_SLOW=1 cargo test --test relay_pg a_value_of_any_size -- --nocapture
	for version in 15 18; do FENCEWIRE_TEST_PG=$$version \
	  FENCEWIRE_SIEGE_CYCLES=$(SOAK_SIEGES) FENCEWIRE_SIEGE_SEED=$$(date +%s) \
	  cargo test --test siege_pg nothing_said -- --nocapture || exit 1; done
	FENCEWIRE_BYPASS_CASES=$(SOAK_BYPASSES) FENCEWIRE_BYPASS_SEED=$$(date +%s) \
	  cargo test --test generated_pg nothing_generated -- --nocapture

lint:
	@tools/setup.sh lint
	cargo fmt --check
	cargo clippy --quiet --all-targets -- -D warnings
	tools/fuzz_check.sh
	RUSTDOCFLAGS='-D warnings' cargo doc --quiet --no-deps --document-private-items
	cargo-deny check bans licenses sources

bench:
	@tools/setup.sh bench
	@if [ -x tools/bench.sh ]; then exec tools/bench.sh; \
	else echo 'make bench: tools/bench.sh is not in this tree yet' >&2; exit 1; fi

bench-growth:
	@tools/setup.sh bench
	@exec tools/bench.sh --only growth

# Half an hour on two cores.
profiled:
	@tools/setup.sh profiled
	tools/profiled.sh

fmt:
	cargo fmt

sweep:
	@tools/sweep.sh

clean: sweep
	cargo clean
