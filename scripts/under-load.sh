#!/bin/sh
# The whole suite on a busy machine: what depends on how fast the machine is fails here.
#
#   scripts/under-load.sh [RUNS]           so many runs one after the other (default 3), until one fails
#
# Beside it run $LOOPS busy loops (default: four for each processor), in the session of the tests: Linux divides the
# processors between sessions first, so that loops in sessions of their own leave the suite far less of the machine.
# The real agents, the browser and PostgreSQL are required, as in .ci/run. The output is in target/under-load/RUN.log.
set -eu
cd "$(dirname "$0")/.."
processors=$(getconf _NPROCESSORS_ONLN)
out=target/under-load
mkdir -p "$out"

export TAKOPI_REQUIRE_CODEX=1 TAKOPI_REQUIRE_CLAUDE=1 TAKOPI_REQUIRE_PI=1 TAKOPI_REQUIRE_ACP=1
export TAKOPI_REQUIRE_BROWSER=1 TAKOPI_REQUIRE_POSTGRES=1
export TAKOPI_FUZZ_SECONDS="${TAKOPI_FUZZ_SECONDS:-10}" RUST_TEST_THREADS="${RUST_TEST_THREADS:-$((4 * processors))}"
export CARGO_TERM_COLOR=never

# Built first: the compiler is not what is tested.
cargo test --workspace --no-run

loops=
stop_loops() {
    # shellcheck disable=SC2086
    [ -z "$loops" ] || kill $loops
    loops=
}
trap stop_loops EXIT
trap 'exit 130' INT TERM
for _ in $(seq "${LOOPS:-$((4 * processors))}"); do
    sh -c 'while :; do :; done' &
    loops="$loops $!"
done

for run in $(seq "${1:-3}"); do
    start=$(date +%s) status=0
    cargo test --workspace --no-fail-fast > "$out/$run.log" 2>&1 || status=$?
    grep '^test result' "$out/$run.log" |
        awk -v run="$run" -v seconds="$(($(date +%s) - start))" -v load="$(cut -d' ' -f1 /proc/loadavg 2>/dev/null)" '
            { passed += $4; failed += $6 }
            END { printf "run %s: %d passed, %d failed, %d s, load %s\n", run, passed, failed, seconds, load }'
    if [ "$status" != 0 ]; then
        grep -E '^test .* FAILED$|^error: ' "$out/$run.log" || true
        exit "$status"
    fi
done
