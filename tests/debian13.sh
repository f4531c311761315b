#!/bin/bash
# Builds everything on Debian 13 (GCC 14, OpenSSL 3.5) in a tree of that release, and runs tests there. Needs root, and
# a Debian mirror the first time.
#   tests/debian13.sh [REGEX]        runs the tests whose names match; by default unit, golden and e2e tests
#   tests/debian13.sh -- COMMAND...  runs a command there, in the checkout, such as tests/bench/run.sh tls_throughput
# The tree is build/debian13/root. There, build/release is the folder that is build/debian13/release here.
set -euo pipefail
case ${1:-} in
    -h | --help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0"; exit ;;
esac
cd "$(dirname "$0")/.."
export PATH=/usr/bin:/bin:/usr/sbin:/sbin           # Debian's own tools, whatever else lies on the path
if [ "$(id -u)" != 0 ]; then echo "debian13.sh: needs root" >&2; exit 2; fi
. deploy/packages.sh
install_packages debian13
folder=$PWD/build/debian13
root=$folder/root
if [ ! -e "$folder/complete" ]; then
    rm -rf "$root"
    mkdir -p "$folder"
    packages=$(packages_of build run test packages | paste -sd,)
    mmdebstrap --quiet --variant=apt --include="ca-certificates,$packages" trixie "$root"
    touch "$folder/complete"
fi
mkdir -p build/release "$folder/release"

# there COMMAND... : runs a command in the tree, with the checkout in the place that it has here
there() {
    # shellcheck disable=SC2016 # the inner shell expands
    unshare --mount --propagation private sh -ec '
        root=$1; shift
        # Network namespaces want the root to be a mount point.
        mount --bind "$root" "$root"
        mkdir -p "$root$PWD"
        mount --bind "$PWD" "$root$PWD"
        mount --bind build/debian13/release "$root$PWD/build/release"
        mount --rbind /dev "$root/dev"
        mount --rbind /sys "$root/sys"
        mount -t proc proc "$root/proc"
        # The tree has no compiler cache.
        exec env -u CMAKE_C_COMPILER_LAUNCHER chroot "$root" sh -ec "cd \"$PWD\"; exec \"\$@\"" sh "$@"' sh "$root" "$@"
}

if [ "${1:-}" = -- ]; then shift; there "$@"; exit; fi
there cmake --preset release > /dev/null
there cmake --build --preset release
there ctest --preset release -j "$(nproc)" -R "${1:-^(unit|golden|e2e)\.}"
