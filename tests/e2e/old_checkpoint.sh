#!/bin/bash
# Lets a daemon go on from checkpoints that earlier versions have written: every version since 0.1.0 must be readable.
#   tests/e2e/old_checkpoint.sh          for each folder of tests/golden/checkpoints
#   tests/e2e/old_checkpoint.sh --make   writes the folder of this version, before it is released
# In `plain` are optimizers without products of matrices, so training gives the same bits on every machine: the hash of
# the weights ten steps later is recorded. `roots` has matrix roots and quantized state; it must go on for ten steps.
set -euo pipefail
export PATH=/usr/bin:/bin:/usr/sbin:/sbin
cd "$(dirname "$0")/../.."
bin=${PARAMD_BIN:?the folder of paramd and crash_worker}
[ -x "$bin/crash_worker" ] || { echo "skip: no crash_worker in $bin"; exit 77; }

case ${1:-} in
    '' | --make) ;;
    *) sed -n '3,4s/^# *//p' "$0" >&2; exit 2 ;;
esac

all=tests/golden/checkpoints
scratch=$(mktemp -d /tmp/paramd-old.XXXXXX)
daemon=
trap '[ -z "$daemon" ] || kill -9 "$daemon" 2> /dev/null; rm -rf "$scratch"' EXIT
plain=(--rule 'embedding adamw lr=0.01' --rule 'middle nadam lr=0.01' --rule 'head lamb lr=0.01'
    --rule '* sgd lr=0.02 momentum=0.9')
roots=(--rule 'embedding shampoo lr=0.02 max_preconditioner_dim=32 precondition_frequency=5 root_delay=2'
    --rule 'middle scalable_shampoo learning_rate=0.02 block_size=16 best_effort_memory_usage_reduction=yes'
    --rule 'head kron learning_rate=0.01' --rule '* adafactor learning_rate=0.01')

# train KIND STEPS : trains the job to this step, by the daemon that runs in $scratch/KIND
train() {
    local rules=("${plain[@]}")
    if [ "$1" = roots ]; then rules=("${roots[@]}"); fi
    timeout 60 "$bin/crash_worker" --url "unix://$scratch/socket" --rank 0 --world 1 --seed 5 --mode rewind \
        --deadline 20 --option checkpoint_every=20 --steps "$2" --out "$scratch/result" "${rules[@]}" > "$scratch/log"
}

start() {
    "$bin/paramd" --listen "unix://$scratch/socket" --port-file "$scratch/port" --state-dir "$scratch/$1" \
        > "$scratch/daemon.log" 2>&1 &
    daemon=$!
    timeout 20 bash -c "until $bin/paramctl -s unix://$scratch/socket jobs; do sleep 0.1; done" > "$scratch/jobs" 2>&1 \
        || { cat "$scratch/daemon.log"; exit 1; }
}

stop() {
    kill -9 "$daemon"
    wait "$daemon" 2> /dev/null || true
    daemon=
    rm -f "$scratch/socket"
}

# go_on KIND FOLDER : goes on from the checkpoint of step 20 in the folder, and leaves the hash in $scratch/result
go_on() {
    cp -r "$2/$1" "$scratch/$1"
    chmod -R go-rwx "$scratch/$1"
    start "$1"
    grep -q 'is back at step 20' "$scratch/daemon.log" || { cat "$scratch/daemon.log"; exit 1; }
    train "$1" 30
    stop
    rm -rf "${scratch:?}/$1"
}

if [ "${1:-}" = --make ]; then
    folder=$all/$("$bin/paramd" --version | sed 's/^paramd \([0-9.]*\).*/\1/; q')
    mkdir "$folder"
    for kind in plain roots; do
        mkdir -m 700 "$scratch/$kind"
        start $kind
        train $kind 20
        stop
        rm "$scratch/$kind/lock"
        cp -r "$scratch/$kind" "$folder"
        rm -r "${scratch:?}/$kind"
    done
    go_on plain "$folder"
    awk '{ print $1 }' "$scratch/result" > "$folder/plain.hash"
    exit
fi

for folder in "$all"/*/; do
    go_on roots "$folder"
    go_on plain "$folder"
    if [ "$(awk '{ print $1 }' "$scratch/result")" != "$(cat "$folder/plain.hash")" ]; then
        echo "$folder: expected weights of hash $(cat "$folder/plain.hash") after step 30, got $(cat "$scratch/result")"
        exit 1
    fi
done
