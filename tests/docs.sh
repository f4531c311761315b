#!/bin/bash
# Checks the documents: runs the commands of their sh blocks against a daemon of its own, compiles their C blocks, and
# checks links, mentioned files, README's length and the width of lines. See docs.py. Needs a release build.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=/usr/bin:/bin:/usr/sbin:/sbin
export PARAMD_BIN=${PARAMD_BIN:-$PWD/build/release/bin}
[ -d /usr/share/datasets/fashion-mnist ] || { echo "skip: dataset-fashion-mnist is not installed"; exit 77; }
exec python3 tests/docs.py
