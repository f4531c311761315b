#!/bin/bash
# Installs what is missing, builds every preset with warnings as errors, runs every test; closes with ctest's summary.
#   tests/run.sh             everything
#   tests/run.sh release     only these presets (release, avx2, debug, tsan, fuzz)
# avx2: the tests of numbers without AVX-512, in BLAS and in our own code. Without a list of presets it runs where the CPU has AVX-512: elsewhere
# release computes so anyway.
# FUZZ_SECONDS: how long each fuzz target runs, as many at once as there are cores (default 60).
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=/usr/bin:/bin:/usr/sbin:/sbin           # Debian's own tools, whatever else lies on the path
presets=("$@")
if [ ${#presets[@]} -eq 0 ]; then
    presets=(fuzz tsan debug)
    if grep -qw avx512f /proc/cpuinfo; then presets+=(avx2); fi
    presets+=(release)
fi
for preset in "${presets[@]}"; do
    case $preset in
        release | avx2 | debug | tsan | fuzz) ;;
        *) echo "$preset: expected release, avx2, debug, tsan or fuzz, or nothing for all of them" >&2; exit 2 ;;
    esac
done

. deploy/packages.sh
install_packages build run test

start=$SECONDS
say() { printf '\n== %s (%d s)\n' "$*" $((SECONDS - start)); }

failed=()
for preset in "${presets[@]}"; do
    say "$preset: build"
    cmake --preset "$preset" > /dev/null
    cmake --build --preset "$preset"
    say "$preset: test"
    if [ "$preset" = fuzz ]; then
        tests/fuzz/run.sh "${FUZZ_SECONDS:-60}" || failed+=(fuzz)
    else
        ctest --preset "$preset" --output-on-failure || failed+=("$preset")
    fi
done

if [ ${#failed[@]} -gt 0 ]; then printf '\nfailed: %s\n' "${failed[*]}"; exit 1; fi
