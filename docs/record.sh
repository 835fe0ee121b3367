#!/usr/bin/env bash
# Records `takopi demo` on a terminal of its own and writes the picture of the README, docs/demo.svg.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --quiet --package takopi-cli --bin takopi --example record
target="${CARGO_TARGET_DIR:-target}/debug"
"$target/examples/record" "$target/takopi" docs/demo.svg
