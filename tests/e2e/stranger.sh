#!/bin/bash
# A client in Python, written from proto/PROTOCOL.md alone, against the real daemon: the page is enough, and true.
set -euo pipefail
cd "$(dirname "$0")"
[ -x "${PARAMD_BIN:?}/paramd" ] || { echo "skip: no paramd in $PARAMD_BIN"; exit 77; }
command -v /usr/bin/python3 > /dev/null || { echo "skip: no python3"; exit 77; }
exec timeout 120 /usr/bin/python3 -B stranger.py
