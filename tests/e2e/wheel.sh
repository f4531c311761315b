#!/bin/bash
# The wheel and the archive of the sources (sdist). deploy/wheel.sh makes the wheel of the archive's files and of the
# programs that this build has. It trains in an environment without a compiler: with NumPy, and with the PyTorch of the
# Python tests. The archive has every file that the build reads.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PATH=/usr/bin:/bin:/usr/sbin:/sbin
build=$(cd "${PARAMD_BIN:?}/.." && pwd)
scratch=$(mktemp -d /tmp/paramd-wheel-test.XXXXXX)
trap 'rm -rf "$scratch"' EXIT
skip() { printf 'skip: %s\n' "$*"; exit 77; }
glibc=$(getconf GNU_LIBC_VERSION)
if [ "${glibc#glibc 2.}" -ge 38 ]; then skip "no wheels are built with $glibc (deploy/wheel.sh)"; fi
# quietly COMMAND...: shows the output only if the command fails.
quietly() { "$@" > "$scratch/output" 2>&1 || { printf '%s failed:\n' "$*"; cat "$scratch/output"; exit 1; }; }

tools=$build/wheel/tools
if [ ! -x "$tools/bin/pip" ]; then
    python3 -m venv "$tools" > "$scratch/output" 2>&1 || skip "no environment (python3-venv): $(cat "$scratch/output")"
fi
"$tools/bin/pip" download -q --no-deps --retries 1 --timeout 20 --dest "$scratch" wheel > "$scratch/output" 2>&1 \
    || skip "PyPI cannot be reached: $(tail -n 1 "$scratch/output")"

quietly deploy/wheel.sh --no-try --built "$build"
lender=$(tests/python/environment.sh --find)
"$lender" -c 'import torch' 2> /dev/null || lender=
deploy/wheel_try.sh "$build"/wheel/done/*.whl python3 "$lender"

# ---- the archive ----
tar -xf "$build"/wheel/done/*.tar.gz -C "$scratch"
tree=$(echo "$scratch"/paramd-*)
quietly cmake -G Ninja -S "$tree" -B "$scratch/build" -DBUILD_TESTING=OFF
# What the build reads: Ninja's inputs, and the headers, which are known only to a build that has compiled.
ninja -C "$build" -t inputs python_wheel > "$scratch/inputs"
mapfile -t objects < <(grep '\.o$' "$scratch/inputs")
ninja -C "$build" -t deps "${objects[@]}" | sed -n 's/^    //p' >> "$scratch/inputs"
(cd "$build" && sort -u "$scratch/inputs" | xargs realpath -m) | sed -n "s:^$PWD/::p" | grep -v "^${build#"$PWD/"}/" |
    sort -u > "$scratch/read"
[ "$(wc -l < "$scratch/read")" -gt 500 ] || { echo "the build reads too few files of this tree"; exit 1; }
while read -r file; do
    [ -e "$tree/$file" ] || { echo "the archive of the sources lacks $file"; exit 1; }
done < "$scratch/read"
echo "the archive has the $(wc -l < "$scratch/read") files that the build reads"
