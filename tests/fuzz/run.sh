#!/bin/bash
# Builds every tests/fuzz/fuzz_*.c with clang, ASan and UBSan and runs each for a while on what it found so far, one on
# each core.
#
# tests/fuzz/run.sh [SECONDS [NAME ...]]     60 seconds each unless said; names as fuzz_frame; without names all of them
#
# Seeds are made by the fuzzers themselves (seed.h); files under tests/fuzz/corpus/NAME/ are taken too. What was found
# stays in
# build/fuzz/corpus/NAME/ for the next run; an input that fails is left in build/fuzz/findings/ and the exit status is
# 1.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PATH=/usr/bin:/bin:/usr/sbin:/sbin
seconds=${1:-60} build=build/fuzz
names=("${@:2}")
[ ${#names[@]} -gt 0 ] || mapfile -t names < <(basename -s .c tests/fuzz/fuzz_*.c)

cmake --preset fuzz -D CMAKE_C_FLAGS_DEBUG=-g1 > /dev/null       # sanitizers name lines, and need no more
cmake --build $build --target "${names[@]}"
mkdir -p $build/findings

# fuzz NAME: one line of what came of it; the log's end where something was found.
fuzz() {
    local name=$1 result=ok corpus=$build/corpus/$1 log=$build/$1.log kept=()
    mkdir -p "$corpus"
    [ ! -d "tests/fuzz/corpus/$name" ] || kept=("tests/fuzz/corpus/$name")
    PARAMD_SEEDS=$corpus "$build/bin/$name"
    ASAN_OPTIONS=allocator_may_return_null=1 "$build/bin/$name" -max_total_time="$seconds" -max_len=66000 -timeout=10 \
        -rss_limit_mb=1024 -malloc_limit_mb=256 -print_final_stats=1 -artifact_prefix="$build/findings/$name-" \
            "$corpus" "${kept[@]}" \
        > "$log" 2>&1 || { result=FAIL; tail -n 60 "$log"; }
    echo "$name: $result, $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs," \
         "$(sed -n 's/^stat::average_exec_per_sec: *//p' "$log") a second," \
         "$(sed -n 's/.*cov: \([0-9]*\).*/\1/p' "$log" | tail -n 1) places reached"
    [ $result = ok ]
}

failed=0 cores=$(nproc)
for name in "${names[@]}"; do
    while [ "$(jobs -rp | wc -l)" -ge "$cores" ]; do wait -n || failed=1; done
    fuzz "$name" &
done
while [ -n "$(jobs -p)" ]; do wait -n || failed=1; done
if [ $failed = 1 ]; then echo "the inputs that failed are in $build/findings/" >&2; fi
exit $failed
