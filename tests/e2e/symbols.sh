#!/bin/bash
# Every symbol that the wheel's programs and libraries take from glibc exists in the glibc that the wheel's name
# promises (deploy/wheel.sh, platform). A newer one is named, with its version and its file.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PATH=/usr/bin:/bin:/usr/sbin:/sbin
build=$(cd "${PARAMD_BIN:?}/.." && pwd)
fail() { printf '%s\n' "$*"; exit 1; }
glibc=$(getconf GNU_LIBC_VERSION)
if [ "${glibc#glibc 2.}" -ge 38 ]; then echo "skip: no wheels are built with $glibc (deploy/wheel.sh)"; exit 77; fi

promised=$(sed -n 's/^platform=manylinux_\([0-9]*\)_\([0-9]*\)_.*/\1.\2/p' deploy/wheel.sh)
[ -n "$promised" ] || fail "deploy/wheel.sh: expected platform=manylinux_X_Y_MACHINE"
grep -q "glibc $promised " deploy/README.md || fail "deploy/README.md does not say that the wheel needs glibc $promised"

shipped=$(mktemp -d /tmp/paramd-symbols.XXXXXX)
trap 'rm -rf "$shipped"' EXIT
cmake --install "$build" --component python --prefix "$shipped" > "$shipped/log" 2>&1 || fail "$(cat "$shipped/log")"
mapfile -t files < <(find "$shipped/paramd/bin" "$shipped/paramd/lib" -type f)
[ ${#files[@]} -ge 2 ] || fail "the wheel has neither programs nor libraries: $(cat "$shipped/log")"

# readelf writes NAME@VERSION (NUMBER) for each symbol that comes from elsewhere.
for file in "${files[@]}"; do
    readelf -W --dyn-syms "$file" | awk -v file="${file#"$shipped/paramd/"}" -v promised="$promised" '
        BEGIN { split(promised, most, ".") }
        $7 == "UND" && split($8, symbol, "@+GLIBC_") == 2 {
            split(symbol[2], version, ".")
            read++
            if (version[1] > most[1] || version[1] == most[1] && version[2] + 0 > most[2] + 0)
                printf "%s wants %s of glibc %s; the wheel promises %s\n", file, symbol[1], symbol[2], promised
        }
        END { if (read == 0) print file ": found no symbols of glibc" }'
done > "$shipped/newer"
[ ! -s "$shipped/newer" ] || fail "$(cat "$shipped/newer")"
echo "${#files[@]} files need no glibc newer than $promised"
