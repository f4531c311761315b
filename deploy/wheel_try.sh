#!/bin/bash
# Installs a wheel of paramd in an environment of its own, without a compiler, and takes training steps there.
# Usage: deploy/wheel_try.sh WHEEL [PYTHON]      PYTHON: [python3]
set -euo pipefail
cd "$(dirname "$0")/.."
wheel=$(realpath "$1")
python=${2:-python3}
room=$(mktemp -d /tmp/paramd-wheel-XXXXXX)
trap 'rm -rf "$room"' EXIT

"$python" -m venv "$room/venv"
"$room/venv/bin/pip" -q install --only-binary :all: "$wheel"
cp deploy/wheel_try.py "$room"
# Nothing of this machine but the environment: no compiler, no paramd on the PATH, no settings.
cd "$room"
env -i HOME="$room" PATH="$room/venv/bin" TMPDIR="$room" OMP_NUM_THREADS=1 PARAMD_IDLE_EXIT=3s python wheel_try.py
