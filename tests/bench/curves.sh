#!/bin/bash
# Draws deploy/curves.svg, the picture in README.md: the training loss of momentum SGD and of a second-order optimizer over the steps.
# The same trainings give the figure steps_to_sgd_NAME, which is printed. Takes some ten minutes on two cores.
# Usage: tests/bench/curves.sh [OPTIMIZER]     scalable_shampoo where nothing is said
set -eu
cd "$(dirname "$0")/../.."
export PATH=/usr/bin:/bin:/usr/sbin:/sbin           # Debian's own tools, whatever else lies on the path
cmake --preset release > /dev/null
cmake --build build/release --target figure_steps_to -- --quiet
build/release/bin/figure_steps_to "${1-scalable_shampoo}" --svg deploy/curves.svg --json build/curves.jsonl
echo "picture: deploy/curves.svg    every curve: build/curves.jsonl"
