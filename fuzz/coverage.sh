#!/usr/bin/env bash
# Runs a fuzz target under libFuzzer, guided by coverage, on the stable toolchain.
#
#   fuzz/coverage.sh TARGET [SECONDS] [libFuzzer options]
#
# The corpus grows in target/fuzz/corpus/TARGET; an input that fails is left in target/fuzz/artifacts.
# Keep it in fuzz/regressions/TARGET, where `cargo test -p takopi-fuzz` tries it first.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${1:?"a target: $(sed -n 's/^    ("\([a-z_]*\)", .*/\1/p' fuzz/src/lib.rs | paste -sd' ')"}
seconds=${2:-60}
shift $(($# < 2 ? $# : 2))

# What cargo-fuzz sets, without the sanitizer that needs a nightly compiler: the code is safe Rust.
flags=(
    -Cpasses=sancov-module
    -Cllvm-args=-sanitizer-coverage-level=4
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
    -Cllvm-args=-sanitizer-coverage-pc-table
    -Cllvm-args=-sanitizer-coverage-trace-compares
    --cfg fuzzing
)
host=$(rustc -vV | sed -n 's/^host: //p')
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
export CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS=true
# With --target, so that build scripts are not instrumented.
RUSTFLAGS="${flags[*]}" cargo build --release --target "$host" --target-dir target/fuzz \
    --package takopi-fuzz --features coverage --bin coverage

corpus=target/fuzz/corpus/$target
if [ ! -d "$corpus" ]; then
    mkdir -p "$corpus"
    case $target in
    app_server) seeds=(fixtures/*/app-server/*.txt) ;;
    split | terminal | chat) seeds=(README.md CHANGELOG.md docs/*.md) ;;
    *) seeds=(fixtures/*/exec/*.jsonl) ;;
    esac
    for seed in "${seeds[@]}"; do
        sed '/^> /d;s/^< //' "$seed" >"$corpus/$(echo "$seed" | tr / -)"
    done
fi
mkdir -p target/fuzz/artifacts
TAKOPI_FUZZ_TARGET=$target "target/fuzz/$host/release/coverage" "$corpus" \
    -max_total_time="$seconds" -max_len=16384 -artifact_prefix="target/fuzz/artifacts/$target-" \
    -print_final_stats=1 "$@"
