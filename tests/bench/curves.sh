#!/bin/bash
# Draws deploy/curves.svg, a picture in tests/bench/README.md: training loss and test loss of momentum SGD and of other
# optimizers, over steps and over CPU time. Prints the figures steps_to_sgd_NAME, which come from the same trainings.
# Takes about ten minutes of two cores, twice that on a busy machine.
# Usage: tests/bench/curves.sh [OPTIMIZER...]     without arguments: scalable_shampoo kron adafactor
#        LOG=FILE tests/bench/curves.sh           draws the curves of an earlier run, which are in build/curves.jsonl
set -eu
cd "$(dirname "$0")/../.."
export PATH=/usr/bin:/bin:/usr/sbin:/sbin           # Debian's own tools, whatever else is on the path
cmake --preset release > /dev/null
cmake --build build/release --target figure_steps_to paramd-plot -- --quiet
[ $# -gt 0 ] || set -- scalable_shampoo kron adafactor
log=${LOG:-build/curves.jsonl}
[ -n "${LOG-}" ] || build/release/bin/figure_steps_to "$@" --json "$log"
build/release/bin/paramd-plot "$log" --by optimizer --out deploy/curves.svg \
    --title "The quickstart's model with four optimizers: medians of five seeds" \
    --note "256 images a step, 8 epochs; CPU time of one core for gradients and optimizer, so load does not count" \
    --log-panel "Training loss per step=step:train_loss" \
    --log-panel "Training loss over CPU time=cpu_seconds:train_loss" \
    --log-panel "Test loss per step=step:test_loss" --log-panel "Test loss over CPU time=cpu_seconds:test_loss"
echo "picture: deploy/curves.svg    every curve: $log"
