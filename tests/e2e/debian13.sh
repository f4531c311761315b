#!/bin/bash
# Builds everything on Debian 13, and runs the unit, golden and end-to-end tests there (tests/debian13.sh). Runs when
# PARAMD_TEST_DEBIAN13=1 asks for it: it needs root, a Debian mirror, and half an hour on two cores. Skips otherwise.
set -euo pipefail
cd "$(dirname "$0")/../.."

if [ "${PARAMD_TEST_DEBIAN13-}" != 1 ]; then echo "skip: PARAMD_TEST_DEBIAN13=1 is not set"; exit 77; fi
if [ "$(id -u)" != 0 ]; then echo "skip: needs root"; exit 77; fi
exec env -u PARAMD_TEST_DEBIAN13 -u PARAMD_BIN tests/debian13.sh
