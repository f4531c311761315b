#!/bin/bash
# Installs missing packages, builds with warnings as errors and runs tests; closes with ctest's summary.
#   tests/run.sh             release build, all tests except the slow ones (label `slow`)
#   tests/run.sh all         every preset and every test: fuzz, tsan, debug, release
#   tests/run.sh debug ...   every test of these presets (release, debug, tsan, fuzz)
# The slow tests of release include the tests of numbers on older instruction sets, in BLAS and in our own code: names
# that end with .avx2 and .generic.
# FUZZ_SECONDS: how long each fuzz target runs, as many at once as there are cores (default 4).
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=/usr/bin:/bin:/usr/sbin:/sbin           # Debian's own tools, whatever else lies on the path
choice=()
case ${1:-} in
    -h | --help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' tests/run.sh; exit ;;
    '') presets=(release) choice=(--label-exclude slow) ;;
    all) presets=(fuzz tsan debug release) ;;
    *) presets=("$@") ;;
esac
for preset in "${presets[@]}"; do
    case $preset in
        release | debug | tsan | fuzz) ;;
        *) echo "$preset: expected release, debug, tsan or fuzz, or all, or nothing" >&2; exit 2 ;;
    esac
done

. deploy/packages.sh
sections=(build run test)
if [[ " ${presets[*]} " == *" fuzz "* ]]; then sections+=(fuzz); fi
if [ ${#choice[@]} -eq 0 ]; then sections+=(lint); fi       # lint is a slow test
install_packages "${sections[@]}"

# Fetches the packages of PyPI with which the Python tests run, beside everything else: it takes minutes. Without them,
# and where slow tests are left out, these tests run with Debian's Python.
environment=
if [ ${#choice[@]} -eq 0 ] && [[ " ${presets[*]} " == *" release "* ]]; then
    tests/python/environment.sh > /dev/null &
    environment=$!
fi

start=$SECONDS
say() { printf '\n== %s (%d s)\n' "$*" $((SECONDS - start)); }

failed=()
for preset in "${presets[@]}"; do
    if [ "$preset" = fuzz ]; then
        say "fuzz: build and test"
        tests/fuzz/run.sh "${FUZZ_SECONDS:-4}" || failed+=(fuzz)
        continue
    fi
    say "$preset: build"
    cmake --preset "$preset" -D CMAKE_C_FLAGS_DEBUG=-g1 > /dev/null     # sanitizers name lines, and need no more
    cmake --build --preset "$preset"
    say "$preset: test"
    if [ "$preset" = release ] && [ -n "$environment" ]; then wait "$environment" || failed+=(environment); fi
    # Two tests more than there are cores: many wait most of the time.
    ctest --preset "$preset" --output-on-failure -j $(($(nproc) + 2)) "${choice[@]}" ||
        failed+=("$preset: $(cut -d: -f2 "build/$preset/Testing/Temporary/LastTestsFailed.log" | paste -sd ' ')")
done

if [ ${#failed[@]} -gt 0 ]; then echo; printf 'failed: %s\n' "${failed[@]}"; exit 1; fi
