#!/bin/bash
# A network that is cut for 8 s, in namespaces of its own: training goes on a moment after it is whole again, and no
# call outlives its deadline (tests/bench/cuts.py). TCP alone would go on after 12.6 s. Skips where this user may not
# make network namespaces, and without NumPy.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PATH=/usr/bin:/bin:/usr/sbin:/sbin
python=$(tests/python/environment.sh --find)
export PYTHONPATH=client/python PYTHONDONTWRITEBYTECODE=1 PARAMD_LIBRARY=$PARAMD_BIN/../lib/libparamd.so
"$python" -c 'import numpy' 2> /dev/null || { echo "skip: no NumPy"; exit 77; }

# holds BAR NAME ARGUMENT... : measures a figure, and fails if it is more than the bar
holds() {
    local line
    line=$("$python" tests/bench/cuts.py "${@:3}") || exit $?
    echo "$2: $line"
    awk -v value="${line%%$'\t'*}" -v bar="$1" 'BEGIN { exit !(value <= bar) }' || { echo "more than $1"; exit 1; }
}

holds 1.2 'lost beyond a second, of a cut of 8 s' cost 8
holds 0.5 'the longest overrun of a deadline, in seconds' overrun
