#!/bin/bash
# Draws deploy/lm_curves.svg, the picture in README.md: the validation loss of a character-level Transformer with
# torch's AdamW and with two optimizers of paramd, over steps and over wall time. Each trains as many steps as lm_steps
# has found that it needs to reach AdamW's loss. Takes four minutes of two cores with nothing beside it.
# PYTHON=FILE: a Python with PyTorch 2 [that of tests/python/environment.sh].
# Usage: tests/bench/lm_curves.sh
#        LOG=FILE tests/bench/lm_curves.sh    draws the curves of an earlier run, which are in build/lm_curves.jsonl
set -eu
cd "$(dirname "$0")/../.."
export PATH=/usr/bin:/bin:/usr/sbin:/sbin           # Debian's own tools, whatever else is on the path
cmake --preset release > /dev/null
cmake --build --preset release -- --quiet
log=${LOG:-build/lm_curves.jsonl}
if [ -z "${LOG-}" ]; then
    rm -f "$log"
    python=${PYTHON:-$(tests/python/environment.sh --find)}
    export PARAMD_BIN=build/release/bin PARAMD_LIBRARY=build/release/lib/libparamd.so PYTHONPATH=client/python
    for seed in 0 1 2; do
        for training in adamw:400 soap:300 shampoo:260; do
            PARAMD_JOB=${training%:*}-$seed "$python" client/python/examples/char_lm.py --optimizer "${training%:*}" \
                --steps "${training#*:}" --seed "$seed" --threads 1 --every 20 --json "$log"
        done
    done
fi
/usr/bin/python3 - "$log" > build/lm_medians.jsonl << 'END'
import itertools, json, statistics, sys
points = [json.loads(line) for line in open(sys.argv[1])]
place = lambda point: (point["optimizer"], point["step"])
for (optimizer, step), same in itertools.groupby(sorted(points, key=place), place):
    same = list(same)
    medians = {name: statistics.median(point[name] for point in same) for name in ("seconds", "validation")}
    print(json.dumps({"optimizer": optimizer, "step": step, **medians}))
END
build/release/bin/paramd-plot build/lm_medians.jsonl --by optimizer --out deploy/lm_curves.svg \
    --title "A character-level Transformer with three optimizers" \
    --note "medians of three seeds; 4,096 characters a step; the rate ends at zero; time of training on two cores" \
    --log-panel "Validation loss per step=step:validation" \
    --log-panel "Validation loss over wall time=seconds:validation"
echo "picture: deploy/lm_curves.svg    every curve: $log"
