#!/bin/bash
# Measures a figure of the Python package, for run.sh: figure_python.sh NAME [ARGUMENT...]
# NAME: wheel_mb, or that of a program figure_NAME.py beside this script, which prints "VALUE<tab>NOTE".
set -euo pipefail
cd "$(dirname "$0")/../.."
name=$1
shift
if [ "$name" = wheel_mb ]; then
    deploy/wheel.sh --no-try > build/wheel_mb.log 2>&1 || { tail -5 build/wheel_mb.log >&2; exit 1; }
    bytes=$(stat -c %s build/wheel/done/*.whl)
    installed=$(python3 -c 'import sys, zipfile
print(sum(file.file_size for file in zipfile.ZipFile(sys.argv[1]).infolist()))' build/wheel/done/*.whl)
    awk -v b="$bytes" -v i="$installed" 'BEGIN { printf "%.1f\tinstalled %.1f MB, with daemon, paramctl, OpenBLAS\n",
        b / 1e6, i / 1e6 }'
    exit
fi
export PARAMD_BIN=$PWD/build/release/bin PARAMD_LIBRARY=$PWD/build/release/lib/libparamd.so PYTHONPATH=client/python
unset PARAMD_URL PARAMD_JOB RANK WORLD_SIZE TORCHELASTIC_RUN_ID
exec "$(tests/python/environment.sh --find)" "tests/bench/figure_$name.py" "$@"
