#!/bin/bash
# Draws deploy/lm_curves.svg, the picture in README.md: the validation loss of a character-level Transformer with
# torch's AdamW and with optimizers of paramd, over steps and over wall time. Each trains as many steps as lm_steps has
# found that it needs to reach AdamW's loss, with three seeds. Takes ten minutes of two cores with nothing beside it.
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
        for training in adamw:400 kl_shampoo:340 soap:300 shampoo:260; do
            PARAMD_JOB=${training%:*}-$seed "$python" client/python/examples/char_lm.py --optimizer "${training%:*}" \
                --steps "${training#*:}" --seed "$seed" --threads 1 --every 20 --json "$log"
        done
    done
fi
build/release/bin/paramd-plot "$log" --by optimizer --out deploy/lm_curves.svg \
    --title "A character-level Transformer: AdamW and optimizers of paramd, medians of three seeds" \
    --note "4,096 characters a step, two cores; each learning rate ends at zero; wall time of training alone" \
    --panel "Validation loss per step=step:validation" --panel "Validation loss over wall time=seconds:validation"
echo "picture: deploy/lm_curves.svg    every curve: $log"
