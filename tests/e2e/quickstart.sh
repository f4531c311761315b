#!/bin/bash
# Runs deploy/quickstart.sh as a user does. It trains the model, to the same weights with 1 and with 4 workers. It
# leaves no process behind, whether it ends by itself, fails or is interrupted.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PATH=/usr/bin:/bin:/usr/sbin:/sbin
[ -d /usr/share/datasets/fashion-mnist ] || { echo "skip: dataset-fashion-mnist is not installed"; exit 77; }

export TMPDIR
TMPDIR=$(mktemp -d /tmp/paramd-quickstart-test.XXXXXX)
session=''
trap 'if [ -n "$session" ]; then pkill -KILL -s "$session" || true; fi; rm -rf "$TMPDIR"' EXIT

complain() { echo "$1"; cat "$TMPDIR/said"; exit 1; }

# start ARGUMENT...: in a session of its own, so that whatever it leaves behind can be found
start() {
    setsid deploy/quickstart.sh --out "$TMPDIR/fashion" "$@" > "$TMPDIR/said" 2>&1 &
    session=$!
}

# ended STATUS: the run is over, with this status and nobody left
ended() {
    local status=0 tries=50
    wait "$session" || status=$?
    [ "$status" = "$1" ] || complain "ended with $status, expected $1"
    while pgrep -s "$session" > /dev/null && [ $((tries--)) -gt 0 ]; do sleep 0.1; done
    if pgrep -l -s "$session"; then complain "left these processes"; fi
    session=''
}

start --epochs 2 --workers 4
ended 0
accuracy=$(sed -n 's/.*"test_accuracy": \([0-9.]*\).*/\1/p' "$TMPDIR/fashion.jsonl" | tail -n 1)
losses=$(grep -c '"train_loss": [0-9]' "$TMPDIR/fashion.jsonl")
[ "$losses" = 468 ] || complain "expected the training losses of 468 steps, got $losses"
grep -qE "^rank 0 (created|joined) the job, step 0 of 468$" "$TMPDIR/said" || complain "does not print its first step"
grep -q "^final test accuracy" "$TMPDIR/said" || complain "does not tell the final accuracy"
[ -z "$(ls -d "$TMPDIR"/paramd-quickstart.* 2> /dev/null)" ] || complain "left its logs though all went well"
grep -q '>train loss 0\.' "$TMPDIR/fashion.svg" || complain "the picture does not label the training loss"
if command -v rsvg-convert > /dev/null; then rsvg-convert "$TMPDIR/fashion.svg" > "$TMPDIR/fashion.png"; fi
python3 - "$TMPDIR/fashion.safetensors" << 'EOF'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
size, = struct.unpack("<Q", data[:8])
header = json.loads(data[8:8 + size])
assert header["layers.0.weight"]["shape"] == [256, 784], header
assert max(t["data_offsets"][1] for name, t in header.items() if name != "__metadata__") == len(data) - 8 - size
EOF

awk -v accuracy="$accuracy" 'BEGIN { exit !(accuracy >= 0.865) }' ||
    complain "test accuracy $accuracy after 2 epochs: expected at least 0.865"

# Few steps of large batches: rounding has no time to grow, so all numbers of workers must end at the same weights.
for workers in 1 3 4; do
    start --epochs=1 --batch=8192 --workers=$workers
    ended 0
    mv "$TMPDIR/fashion.safetensors" "$TMPDIR/by$workers"
done
python3 - "$TMPDIR"/by{1,3,4} << 'EOF' || complain "the number of workers changes what is learnt"
import sys
import numpy
alone, *others = [numpy.frombuffer(open(path, "rb").read()[-4 * 235146:], "<f4") for path in sys.argv[1:]]
for other in others:
    assert numpy.linalg.norm(alone - other) < 1e-3 * numpy.linalg.norm(alone), numpy.linalg.norm(alone - other)
EOF

start --optimizer scalable_shampoo --epochs 1 --workers 2
ended 0
loss=$(sed -n 's/.*"test_loss": \([0-9.]*\).*/\1/p' "$TMPDIR/fashion.jsonl" | tail -n 1)
awk -v loss="$loss" 'BEGIN { exit !(loss > 0 && loss < 0.40) }' ||
    complain "test loss $loss after an epoch of second order: expected less than 0.40"

start --optimizer nonsense
ended 1
grep -q nonsense "$TMPDIR/said" || complain "does not say what is wrong with the optimizer"
[ -s "$(echo "$TMPDIR"/paramd-quickstart.*/paramd.log)" ] || complain "keeps no logs of a failure"

start --epochs 1000
tries=3000
until grep -q "^epoch 1/" "$TMPDIR/said"; do
    kill -0 "$session" 2> /dev/null || complain "has ended before the first epoch has"
    [ $((tries--)) -gt 0 ] || complain "does not end the first epoch within five minutes"
    sleep 0.1
done
kill -TERM "$session"
ended 143
echo "test accuracy of 4 workers after 2 epochs: $accuracy"
