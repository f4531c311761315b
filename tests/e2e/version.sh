#!/bin/bash
# The version of include/paramd/version.h is that of the programs, the libraries and the Python package, and of the
# files that must repeat it.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PATH=/usr/bin:/bin:/usr/sbin:/sbin
build=$(cd "${PARAMD_BIN:?}/.." && pwd)
version=$(sed -n 's/^#define PARAMD_VERSION_\(MAJOR\|MINOR\|PATCH\) //p' include/paramd/version.h | paste -sd.)
failed=0
# expect WHAT VERSION
expect() { [ "$2" = "$version" ] || { echo "$1: expected version $version, got ${2:-none}"; failed=1; }; }
# found FILE PATTERN: the version is the group of a sed pattern in the file's first line that matches
found() { expect "$1" "$(sed -n "s/$2/\1/p" "$1" | head -n 1)"; }

for name in paramd paramctl; do expect $name "$("$build/bin/$name" --version | sed -n "1s/^$name //p")"; done
for name in libparamd libparamd_optim; do
    file=$(realpath "$build/lib/$name.so")
    expect $name "${file##*.so.}"
done
found "$build/client/paramd.pc" '^Version: *\(.*\)'
found "$build/client/paramdConfigVersion.cmake" '^set(PACKAGE_VERSION "\(.*\)")'
expect client/python "$(PYTHONPATH=client/python python3 -c 'import paramd; print(paramd.__version__)')"
found deploy/debian/changelog '^paramd (\(.*\)) .*'
found deploy/kubernetes/daemon.yaml '^ *image: paramd:\([0-9.]*\)$'
found CHANGELOG.md '^## \([0-9.]*\).*'
exit $failed
