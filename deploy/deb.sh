#!/bin/bash
# Builds the Debian packages in build/deb from the sources of this checkout, and reads them with lintian.
# Usage: deploy/deb.sh [--no-lintian] [--version VERSION]
#   --version: another version for the packages, such as 0.1.0+1, to try an upgrade
# Prints the packages' files and sizes at the end. Needs Debian 12 or 13 and the packages of deploy/packages.txt,
# sections build and packages. Nothing is fetched, and nothing outside of build/deb is written.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=/usr/bin:/bin:/usr/sbin:/sbin
lint=yes version=
while [ $# -gt 0 ]; do
    case $1 in
        -h | --help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' deploy/deb.sh; exit ;;
        --no-lintian) lint=no ;;
        --version) version=${2:?--version needs a version}; shift ;;
        *) echo "deb.sh: $1: expected --no-lintian or --version VERSION" >&2; exit 2 ;;
    esac
    shift
done
fail() { echo "deb.sh: $*" >&2; exit 1; }

for tool in dpkg-buildpackage dh dh_python3 lintian; do
    command -v $tool > /dev/null || fail "$tool is missing: install the section \"packages\" of deploy/packages.txt"
done
. deploy/packages.sh
for package in $(packages_of build); do
    case $package in gcc | libc6-dev | libcmocka-dev) continue ;; esac      # every build has them; for tests
    grep -qx " $package,\?" deploy/debian/control || fail "deploy/debian/control does not build-depend on $package"
done
released=$(sed -n '1s/.*(\(.*\)).*/\1/p' deploy/debian/changelog)
numbers=$(sed -n 's/^#define PARAMD_VERSION_\(MAJOR\|MINOR\|PATCH\) //p' include/paramd/version.h | paste -sd.)
[ "$released" = "$numbers" ] || fail "deploy/debian/changelog has version $released, the headers have $numbers"

# The sources, as they are: committed or not.
out=$PWD/build/deb tree=$PWD/build/deb/paramd-$numbers
rm -rf "$tree" "$out"/*.deb "$out"/*.changes "$out"/*.buildinfo
mkdir -p "$tree"
if git rev-parse --is-inside-work-tree > /dev/null 2>&1; then
    git ls-files -z --cached --others --exclude-standard
else
    find . -path ./build -prune -o -type f -print0
fi | tar --null --files-from - --ignore-failed-read -cf - 2> /dev/null | tar -xf - -C "$tree"
cp -r deploy/debian "$tree/"
if [ -n "$version" ]; then sed -i "1s/([^)]*)/($version)/" "$tree/debian/changelog"; fi

export CCACHE_DIR=${CCACHE_DIR:-$HOME/.cache/ccache}        # debhelper gives builds another home
(cd "$tree" && dpkg-buildpackage --build=binary --no-sign) > "$out/build.log" 2>&1 \
    || { tail -n 30 "$out/build.log" >&2; fail "the build failed ($out/build.log)"; }
if [ $lint = yes ]; then
    lintian --fail-on error,warning --display-info --tag-display-limit 0 "$out"/*.changes > "$out/lintian.log" 2>&1 \
        || { grep '^[EW]:' "$out/lintian.log" >&2; fail "lintian finds errors or warnings ($out/lintian.log)"; }
fi
for file in "$out"/*.deb; do
    case $file in *-dbgsym_*) continue ;; esac
    printf '%s  %.1f KB, installed %d KB\n' "${file#"$PWD/"}" "$(stat -c %s "$file")e-3" \
        "$(dpkg-deb -f "$file" Installed-Size)"
done
