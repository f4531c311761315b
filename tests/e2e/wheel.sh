#!/bin/bash
# Builds the Python wheel, and trains with it in an environment without a compiler. It compiles everything anew and
# fetches packages from PyPI, so it runs only with PARAMD_TEST_WHEEL=1.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "${PARAMD_TEST_WHEEL:-}" = 1 ] || { echo "skip: PARAMD_TEST_WHEEL=1 builds the wheel, which takes minutes"; exit 77; }
exec deploy/wheel.sh
