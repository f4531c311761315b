#!/bin/bash
# Draws deploy/curves.svg, the picture in README.md: the training loss of momentum SGD and of other optimizers over the steps.
# The same trainings give the figures steps_to_sgd_NAME, which are printed. Takes some twenty minutes on two cores.
# Usage: tests/bench/curves.sh [OPTIMIZER...]     scalable_shampoo kron adafactor where nothing is said
set -eu
cd "$(dirname "$0")/../.."
export PATH=/usr/bin:/bin:/usr/sbin:/sbin           # Debian's own tools, whatever else lies on the path
cmake --preset release > /dev/null
cmake --build build/release --target figure_steps_to -- --quiet
[ $# -gt 0 ] || set -- scalable_shampoo kron adafactor
build/release/bin/figure_steps_to "$@" --svg deploy/curves.svg --json build/curves.jsonl
echo "picture: deploy/curves.svg    every curve: build/curves.jsonl"
