#!/bin/bash
# What tshark can read on the loopback interface while a job trains: over tcp:// every name and number, over tls://
# none. Skips without tshark, and where this user may not capture (it needs root, or CAP_NET_RAW for dumpcap). e2e.tls
# makes the same comparison everywhere, with a proxy that records.
set -euo pipefail
cd "$(dirname "$0")"
export PATH=/usr/bin:/bin:/usr/sbin:/sbin
library=${PARAMD_BIN:?}/../lib/libparamd.so
[ -x "$PARAMD_BIN/paramd" ] || { echo "skip: no paramd in $PARAMD_BIN"; exit 77; }
[ -e "$library" ] || { echo "skip: no $library"; exit 77; }
command -v tshark > /dev/null || { echo "skip: no tshark (Debian's package tshark)"; exit 77; }
python3 -c "import numpy" 2> /dev/null || { echo "skip: no NumPy (Debian's package python3-numpy)"; exit 77; }
said=$(tshark -i lo -a duration:0 -w /dev/null 2>&1) \
    || { echo "skip: tshark cannot capture on lo: $(grep -m 1 '^tshark: ' <<< "$said")"; exit 77; }
unset PARAMD_URL PARAMD_JOB PARAMD_TOKEN_FILE RANK WORLD_SIZE
export PARAMD_LIBRARY=$library PYTHONPATH=$PWD/../../client/python
exec timeout 240 python3 -B capture.py
