#!/bin/bash
# The element-wise optimizers against an installed PyTorch, with random configurations that change while they run.
set -euo pipefail
cd "$(dirname "$0")"
[ -e "${PARAMD_BIN:?}/../lib/libparamd_optim.so" ] \
    || { echo "skip: no libparamd_optim.so beside $PARAMD_BIN"; exit 77; }
/usr/bin/python3 -c "import torch" 2> /dev/null || { echo "skip: no PyTorch (python3-torch)"; exit 77; }
exec timeout 300 /usr/bin/python3 -B torch_optim.py "$@"
