#!/usr/bin/env bash
# Records `takopi demo` and `takopi chat` on terminals of their own: docs/demo.svg, the picture of the README, and docs/chat.svg.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --quiet --package takopi-cli --bin takopi --example record
target="${CARGO_TARGET_DIR:-target}/debug"
"$target/examples/record" "$target/takopi" docs
