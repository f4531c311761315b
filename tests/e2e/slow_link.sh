#!/bin/bash
# A worker behind a slow link that delays and loses packets: training ends, with the bits of workers beside the daemon.
# Skips where this user may not make network namespaces, and without NumPy.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PATH=/usr/bin:/bin:/usr/sbin:/sbin
python=$(tests/python/environment.sh --find)
export PYTHONPATH=client/python PYTHONDONTWRITEBYTECODE=1 PARAMD_LIBRARY=$PARAMD_BIN/../lib/libparamd.so
"$python" -c 'import numpy' 2> /dev/null || { echo "skip: no NumPy"; exit 77; }

train() { "$python" tests/e2e/slow_link.py "$@"; }

near=$(train) || exit $?
far=$(train rate=2e7 delay=0.03 jitter=0.03 loss=0.01 queue=0.2)
echo "checksum and seconds beside the daemon: $near; over a slow link: $far"
[ "${near%% *}" = "${far%% *}" ] || { echo "the weights differ"; exit 1; }
awk -v far="${far##* }" 'BEGIN { exit !(far >= 1.9) }' || { echo "the link was not slow: 4.7 MB need 1.9 s"; exit 1; }
