#!/bin/bash
# Installs a wheel of paramd in an environment of its own, without a compiler, and takes training steps there.
# Usage: deploy/wheel_try.sh WHEEL [PYTHON [LENDER]]
#   PYTHON: makes the environment [python3]
#   LENDER: an interpreter of the same version that has PyTorch, which the environment borrows for a second training
set -euo pipefail
cd "$(dirname "$0")/.."
wheel=$(realpath "$1")
python=${2:-python3} lender=${3:-}
room=$(mktemp -d /tmp/paramd-wheel-XXXXXX)
trap 'rm -rf "$room"' EXIT

"$python" -m venv "$room/venv"
"$room/venv/bin/pip" -q install --only-binary :all: "$wheel"
cp deploy/wheel_try.py deploy/wheel_try_torch.py "$room"
cd "$room"
# Nothing of this machine but the environment: no compiler, no paramd on the PATH, no settings.
alone() {
    env -i HOME="$room" PATH="$room/venv/bin" TMPDIR="$room" OMP_NUM_THREADS=1 PARAMD_IDLE_EXIT=3s python "$@"
}
alone wheel_try.py
if [ -n "$lender" ]; then
    packages=$(echo venv/lib/*/site-packages)
    "$lender" -c 'import os, torch; print(os.path.dirname(torch.__path__[0]))' > "$packages/lent.pth"
    alone wheel_try_torch.py
    alone -c 'import wheel_try; wheel_try.await_end()'
fi
