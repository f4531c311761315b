#!/bin/bash
# Draws curves of quorum_slow, async_hetero and DiLoCo's figures, and prints one figure of each: test loss over time and
# over examples, medians of three seeds. Takes about nine minutes. Writes deploy/NAME.svg; every curve is in
# build/NAME.jsonl.
# Usage: tests/bench/rounds.sh [quorum_slow|async_hetero|diloco_h|dylu|diloco_stream|diloco_int4]...     without
#                                                                         arguments: all
#        DRAW=1 tests/bench/rounds.sh ...                        draws the curves of an earlier run
set -eu
cd "$(dirname "$0")/../.."
export PATH=/usr/bin:/bin:/usr/sbin:/sbin           # Debian's own tools, whatever else is on the path
cmake --preset release > /dev/null
cmake --build build/release --target figure_quorum_slow figure_async_hetero figure_diloco paramd paramd-plot -- --quiet
[ $# -gt 0 ] || set -- quorum_slow async_hetero diloco_h dylu diloco_stream diloco_int4

# draw NAME LEFT_OUT TITLE NOTE: the curves of all methods but LEFT_OUT.
draw() {
    grep -v "\"method\": \"$2\"" "build/$1.jsonl" > "build/$1-drawn.jsonl"
    build/release/bin/paramd-plot "build/$1-drawn.jsonl" --by method --out "deploy/$1.svg" --title "$3" --note "$4" \
        --log-panel "Test loss over time=seconds:smooth_loss" \
        --log-panel "Test loss over examples that counted=examples:smooth_loss"
    echo "picture: deploy/$1.svg    every curve: build/$1.jsonl"
}

# diloco FIGURE TITLE: trains, if nothing is drawn again, and draws the curves.
diloco() {
    [ -n "${DRAW-}" ] || build/release/bin/figure_diloco "$1" --json "build/$name.jsonl"
    draw "$name" "" "$2" "the quickstart's model after a warm start; medians of three seeds, means of five looks"
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
    diloco_h) diloco h20_loss "Four workers synchronize after 1, 20 and 100 inner steps" ;;
    dylu) diloco dylu_loss "Speeds 0.58 : 0.75 : 1.51 : 3.33, and as many inner steps as each can take" ;;
    diloco_stream) diloco stream_loss "One fragment, and four that are sent while workers compute" ;;
    diloco_int4) diloco int4_loss "Differences of weights in float32, and in 4 bits" ;;
    *) echo "rounds.sh: $name: expected quorum_slow, async_hetero, diloco_h, dylu, diloco_stream or diloco_int4" >&2
        exit 2 ;;
    esac
done
