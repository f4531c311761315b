#!/bin/bash
# Runs one file of Python tests: tests/python/run.sh BUILD FILE [PYTEST'S ARGUMENTS...]
#   BUILD: a build folder with paramd, paramctl and libparamd, such as build/release
# Ends with 77 (skipped, for ctest) if there is no pytest, or if the file has no test that can run here.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd) file=$2
shift 2
python=$("$here/environment.sh" --find)
"$python" -c 'import pytest' 2> /dev/null || { echo "skip: pytest is not installed (python3-pytest)"; exit 77; }
export PARAMD_BIN=$build/bin PARAMD_LIBRARY=$build/lib/libparamd.so OMP_WAIT_POLICY=passive
# Keeps bytecode, outside the source tree: without it each start of PyTorch compiles for seconds.
export PYTHONPYCACHEPREFIX=$build/pycache
unset PYTHONDONTWRITEBYTECODE
export PYTHONPATH=$here/../../client/python:$here
unset PARAMD_URL PARAMD_JOB RANK WORLD_SIZE TORCHELASTIC_RUN_ID
status=0
"$python" -m pytest -q -p no:cacheprovider -rs --tb=short "$here/$file" "$@" || status=$?
if [ $status -eq 5 ]; then status=77; fi        # no test was collected
exit $status
