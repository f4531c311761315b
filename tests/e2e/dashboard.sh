#!/bin/bash
# The dashboard in headless Chromium, against what paramctl says of the same jobs. Prints the figure dashboard_kb.
# DASHBOARD_SHOTS=DIR writes screenshots, light and dark, wide and narrow, for people to look at.
set -euo pipefail
cd "$(dirname "$0")"
[ -x "${PARAMD_BIN:?}/paramd" ] || { echo "skip: no paramd in $PARAMD_BIN"; exit 77; }
[ -x "$PARAMD_BIN/paramctl" ] || { echo "skip: no paramctl in $PARAMD_BIN"; exit 77; }
command -v chromium > /dev/null || { echo "skip: no Chromium (Debian's package chromium)"; exit 77; }
command -v /usr/bin/python3 > /dev/null || { echo "skip: no python3"; exit 77; }
exec timeout 240 /usr/bin/python3 -B dashboard.py
