#!/bin/bash
# Builds everything for ARM64 with the cross compiler of Debian, and runs unit and golden tests in an emulator (qemu).
#   tests/cross.sh [REGEX]      the tests whose names match, all by default; about half an hour on two cores
# The packages for ARM64 are unpacked below build/arm64/sysroot: nothing of them is installed on this machine.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=/usr/bin:/bin:/usr/sbin:/sbin           # Debian's own tools, whatever else lies on the path
. deploy/packages.sh
install_packages build cross
build=$PWD/build/arm64
sysroot=$build/sysroot
if [ ! -e "$sysroot/complete" ]; then
    rm -rf "$sysroot"
    mkdir -p "$build"
    libraries=$(packages_of build | grep -e '-dev$' | paste -sd,)
    mmdebstrap --quiet --variant=extract --arch=arm64 --include="$libraries" bookworm "$sysroot"
    touch "$sysroot/complete"
fi
cmake -G Ninja -S . -B "$build" --toolchain tests/cross.cmake -DPD_SYSROOT="$sysroot" -DPD_WERROR=ON \
    -DCMAKE_BUILD_TYPE=RelWithDebInfo -DPD_TEST_TIMEOUT=1800 > /dev/null
cmake --build "$build"
ctest --test-dir "$build" --output-on-failure -j "$(nproc)" -R "${1:-^(unit|golden)\.}"
