#!/bin/sh
# Builds every tests/fuzz/fuzz_*.c with clang, ASan and UBSan and runs each for a while on what it found so far.
#
#   tests/fuzz/run.sh [SECONDS [NAME ...]]     60 seconds each unless said; names as fuzz_frame; without names all of them
#
# Seeds are made by the fuzzers themselves (seed.h); files under tests/fuzz/corpus/NAME/ are taken too. What was found stays in
# build/fuzz/corpus/NAME/ for the next run; an input that fails is left in build/fuzz/findings/ and the exit status is 1.
set -eu
cd "$(dirname "$0")/../.."
seconds=${1:-60}
[ $# -gt 0 ] && shift
if [ $# -eq 0 ]; then
    for source in tests/fuzz/fuzz_*.c; do set -- "$@" "$(basename "$source" .c)"; done
fi
cmake=/usr/bin/cmake
build=build/fuzz
findings=$build/findings

$cmake --preset fuzz >/dev/null
$cmake --build $build --target "$@"
mkdir -p $findings
failed=
for name in "$@"; do
    corpus=$build/corpus/$name
    log=$build/$name.log
    mkdir -p "$corpus"
    PARAMD_SEEDS=$corpus $build/bin/"$name"
    kept=tests/fuzz/corpus/$name
    [ -d "$kept" ] || kept=
    if ASAN_OPTIONS=allocator_may_return_null=1 $build/bin/"$name" -max_total_time="$seconds" -max_len=66000 -timeout=10 \
        -rss_limit_mb=1024 -malloc_limit_mb=256 -print_final_stats=1 -artifact_prefix=$findings/"$name"- "$corpus" $kept >"$log" 2>&1
    then
        result=ok
    else
        result=FAIL
        failed="$failed $name"
        tail -n 60 "$log"
    fi
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    speed=$(sed -n 's/^stat::average_exec_per_sec: *//p' "$log")
    covered=$(sed -n 's/.*cov: \([0-9]*\).*/\1/p' "$log" | tail -n 1)
    echo "$name: $result, ${runs:-0} inputs, ${speed:-0} a second, ${covered:-0} places reached"
done
[ -z "$failed" ] || { echo "failed:$failed (inputs in $findings/)" >&2; exit 1; }
