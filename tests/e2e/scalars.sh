#!/bin/bash
# Scalars that workers give to their rounds, against means that NumPy takes.
set -euo pipefail
cd "$(dirname "$0")"
[ -x "${PARAMD_BIN:?}/paramd" ] || { echo "skip: no paramd in $PARAMD_BIN"; exit 77; }
/usr/bin/python3 -c "import numpy" 2> /dev/null || { echo "skip: no NumPy (python3-numpy)"; exit 77; }
exec timeout 120 /usr/bin/python3 -B scalars.py
