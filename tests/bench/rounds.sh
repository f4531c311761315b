#!/bin/bash
# Draws the curves of quorum_slow and async_hetero, and prints both figures: test loss over time and over examples,
# medians of three seeds. Takes about six minutes. Writes deploy/NAME.svg; every curve is in build/NAME.jsonl.
# Usage: tests/bench/rounds.sh [quorum_slow|async_hetero]...     without arguments: both
#        DRAW=1 tests/bench/rounds.sh ...                        draws the curves of an earlier run
set -eu
cd "$(dirname "$0")/../.."
export PATH=/usr/bin:/bin:/usr/sbin:/sbin           # Debian's own tools, whatever else is on the path
cmake --preset release > /dev/null
cmake --build build/release --target figure_quorum_slow figure_async_hetero paramd paramd-plot -- --quiet
[ $# -gt 0 ] || set -- quorum_slow async_hetero

# draw NAME LEFT_OUT TITLE NOTE: the curves of all methods but LEFT_OUT.
draw() {
    grep -v "\"method\": \"$2\"" "build/$1.jsonl" > "build/$1-drawn.jsonl"
    build/release/bin/paramd-plot "build/$1-drawn.jsonl" --by method --out "deploy/$1.svg" --title "$3" --note "$4" \
        --log-panel "Test loss over time=seconds:smooth_loss" \
        --log-panel "Test loss over examples that counted=examples:smooth_loss"
    echo "picture: deploy/$1.svg    every curve: build/$1.jsonl"
}

for name; do
    case $name in
    quorum_slow)
        [ -n "${DRAW-}" ] || build/release/bin/figure_quorum_slow time --json build/quorum_slow.jsonl
        draw quorum_slow "" "One of four workers is ten times slower" \
            "the quickstart's model, momentum SGD, batches of 8; medians of three seeds, means of five looks" ;;
    async_hetero)
        [ -n "${DRAW-}" ] || build/release/bin/figure_async_hetero loss --json build/async_hetero.jsonl
        # What diverges is so high that nothing could be seen of the others.
        draw async_hetero "Nesterov at 0.7" "Four workers whose speeds are 0.58 : 0.75 : 1.51 : 3.33" \
            "the quickstart's model after a warm start, 20 local steps; medians of three seeds, means of five looks" ;;
    *) echo "rounds.sh: $name: expected quorum_slow or async_hetero" >&2; exit 2 ;;
    esac
done
