#!/bin/sh
# Mutation testing: changes the source in small ways, one at a time, and reports which changes no test notices.
#
#   scripts/mutants.sh                     all of what it is meant for (hours)
#   scripts/mutants.sh FILE…               these files only, of takopi-core, takopi-batch or takopi-codex
#   scripts/mutants.sh --in-diff DIFF      only what a diff (git diff main > DIFF) touches
#   scripts/mutants.sh --list [FILE…]      what would be tried
#
# Results go to $MUTANTS_OUT (default: target/mutants): mutants.out/missed.txt lists what survived. A mutant
# that hangs its test counts as noticed ("timeout"). It is not part of .ci/run.
#
# A changed sweep ends every process that it can see. Hence mutants run in a process table of their own, which needs
# unshare (Linux); on other systems run this in a container, with MUTANTS_ISOLATED=1.
set -eu
cd "$(dirname "$0")/.."
out=${MUTANTS_OUT:-target/mutants}

set_files() {
    for file in "$@"; do printf '%s\n' --file "$file"; done
}

files= options=
while [ $# -gt 0 ]; do
    case $1 in
    --in-diff) options="$options --in-diff $2"; shift ;;
    --list) options="$options --list" ;;
    *) files="$files $1" ;;
    esac
    shift
done

# A file that no tests are known for would be left out without a word.
for file in $files; do
    case $file in takopi-core/*|takopi-batch/*|takopi-codex/*) [ ! -f "$file" ] || continue ;; esac
    echo "mutants.sh: $file is no file of takopi-core, takopi-batch or takopi-codex" >&2
    exit 2
done

mkdir -p "$out"
if ! cargo mutants --version > /dev/null 2>&1; then
    cargo install cargo-mutants --locked
fi

core='takopi-core/src/locks/**/*.rs takopi-core/src/runner/**/*.rs takopi-core/src/process/**/*.rs takopi-core/src/approvals/**/*.rs'
batch='takopi-batch/src/journal/**/*.rs'

# isolated COMMAND…: the command can see and signal only the processes that it started.
isolated() {
    [ -z "${MUTANTS_ISOLATED:-}" ] || { "$@"; return; }
    user=--map-current-user
    [ "$(id -u)" != 0 ] || user=
    # The shell is the first process there, and reaps orphans.
    # shellcheck disable=SC2016,SC2086
    unshare $user --pid --fork --kill-child --mount-proc sh -c '"$@"; exit $?' sh "$@"
}

# mutants CRATE PATTERNS TEST_PACKAGES [ARGUMENTS OF THE TESTS]: the tests of the crate, without those that only repeat others.
mutants() {
    crate=$1 patterns=$2 tests=$3
    shift 3
    set -f
    # shellcheck disable=SC2086
    isolated nice -n 10 cargo mutants --output "$out/$crate" --jobs "${MUTANTS_JOBS:-1}" --no-shuffle \
        --timeout "${MUTANTS_TIMEOUT:-180}" --build-timeout 600 \
        --package "$crate" --test-package "$tests" $options $(set_files $patterns) \
        -- --lib --test it -- "$@" || status=$?
    set +f
}

# The files of a crate among those that were asked for.
of() {
    for file in $files; do
        case $file in "$1"/*) printf '%s ' "$file" ;; esac
    done
}

status=0 codex=
[ -z "$files" ] || { core=$(of takopi-core) batch=$(of takopi-batch) codex=$(of takopi-codex); }
[ -z "$core" ] || mutants takopi-core "$core" takopi-core --skip all_of_it_holds --skip examples
[ -z "$batch" ] || mutants takopi-batch "$batch" takopi-batch
# The tests on codex are in a crate of their own; the names are those of its modules and of the crate's.
[ -z "$codex" ] || mutants takopi-codex "$codex" takopi-codex,takopi-tests --skip random --skip drift --skip claude:: --skip pi:: --skip acp:: --skip proving_ground
exit "$status"
