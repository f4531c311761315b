#!/bin/bash
# The examples of proto/PROTOCOL.md, played against the real daemon.
set -euo pipefail
cd "$(dirname "$0")"
[ -x "${PARAMD_BIN:?}/paramd" ] || { echo "skip: no paramd in $PARAMD_BIN"; exit 77; }
command -v /usr/bin/python3 > /dev/null || { echo "skip: no python3"; exit 77; }
exec timeout 120 /usr/bin/python3 -B protocol_examples.py
