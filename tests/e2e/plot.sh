#!/bin/bash
# Checks what paramd-plot draws, and that every picture in deploy/ is legible on light and on dark pages.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PATH=/usr/bin:/bin:/usr/sbin:/sbin
command -v rsvg-convert > /dev/null || { echo "skip: rsvg-convert is not installed"; exit 77; }
scratch=$(mktemp -d /tmp/paramd-plot.XXXXXX)
trap 'rm -rf "$scratch"' EXIT
plot=${PARAMD_BIN:?}/paramd-plot log=$scratch/log.jsonl picture=$scratch/picture.svg
fail() { echo "$*"; exit 1; }

# refuses TEXT ARGUMENT... : paramd-plot fails, and its error contains TEXT
refuses() {
    local text=$1
    shift
    if "$plot" "$log" --out "$picture" "$@" 2> "$scratch/said"; then fail "accepts $*"; fi
    grep -q "$text" "$scratch/said" || fail "$*: expected \"$text\", got: $(cat "$scratch/said")"
}

# check PICTURE LABEL... : checks the structure of a picture and that each label is at the end of a line
check() { tests/e2e/pictures.py "$@"; }

# Two runs of 1,000 steps: the loss falls, and one loss is higher than the other.
for ((step = 1; step <= 1000; step++)); do
    printf '{"optimizer": "first <one>", "step": %d, "loss": %s}\n' $step "$(printf '%.5f' $((2000 - step))e-3)"
    printf '{"optimizer": "second", "step": %d, "loss": %s}\n' $step "$(printf '%.5f' $((2100 - step))e-3)"
done > "$log"
"$plot" "$log" --out "$picture" --by optimizer --title "a < b" --note "x & y" \
    --log-panel "Loss=step:loss" --panel "Again=step:loss"
check "$picture" "first <one>" second
grep -q "<title>a &#60; b</title>" "$picture" || fail "the title is not escaped"
grep -q "<desc>x &#38; y.*first &#60;one&#62; 1.* second 1.1" "$picture" || fail "the description lacks the last values"
[ "$(wc -c < "$picture")" -lt 100000 ] || fail "many steps make a heavy picture"

# A few points, two fields in one panel, one in another, and objects that have neither.
printf '{"step": %d, "test_loss": 0.%d, "accuracy": 0.9}\n{"step": 1}\n' 10 5 20 4 30 3 > "$log"
printf '{"step": %d, "train_loss": 0.%d}\n' 10 4 20 3 30 2 >> "$log"
"$plot" "$log" --out "$picture" --log-panel "Loss=step:test_loss,train_loss" --panel "Accuracy=step:accuracy"
check "$picture" "test loss 0.3" "train loss 0.2" 0.9
[ "$(grep -c "<circle" "$picture")" = 9 ] || fail "expected a dot for each of 9 points"

# A loss that grows over many decades still has tick labels that fit.
for decades in 1 4 16 64 300; do
    printf '{"step": 1, "loss": 2.3}\n{"step": 2, "loss": 2.3e%d}\n' $decades > "$log"
    "$plot" "$log" --out "$picture" --log-panel "Loss=step:loss"
    check "$picture"
    ticks=$(grep -c "faint end" "$picture")
    [ "$ticks" -ge 2 ] && [ "$ticks" -le 13 ] || fail "$decades decades: $ticks ticks"
done

# A value that is always the same, and a single point.
printf '{"step": 1, "loss": 0}\n' > "$log"
"$plot" "$log" --out "$picture" --panel "Loss=step:loss" --log-panel "Loss=step:loss"
check "$picture" 0 0

refuses "TITLE=X:Y" --panel "Loss"
refuses "no object has numbers" --panel "Loss=step:nothing"
refuses "at least one panel"
many=(--panel={a..i}"=step:loss")
refuses "more than 8 panels" "${many[@]}"
echo "not JSON" >> "$log"
refuses "log.jsonl:2: expected a JSON object" --panel "Loss=step:loss"
if "$plot" /nonexistent --panel "Loss=step:loss" 2> "$scratch/said"; then fail "accepts a log that does not exist"; fi
grep -q "/nonexistent: No such file" "$scratch/said" || fail "$(cat "$scratch/said")"
sed -i 2d "$log"
if "$plot" "$log" --out /dev/full --panel "Loss=step:loss" 2> /dev/null; then fail "does not notice a full disk"; fi

for picture in deploy/*.svg; do check "$picture"; done
check deploy/curves.svg sgd scalable_shampoo kron adafactor
