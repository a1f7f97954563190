#!/bin/sh
# rustdoc for `cargo test`, by tools/test.sh. By itself the stable one takes any error of an example
# that must not compile (docs/EVIDENCE.md) for the expected one; this one looks at its code.
exec env RUSTC_BOOTSTRAP=1 rustdoc "$@"
