#!/bin/bash
# Lets a daemon go on from state directories that earlier versions have written: every version since 0.1.0 must be
# readable.
#   tests/e2e/old_checkpoint.sh          for each folder of tests/golden/checkpoints
#   tests/e2e/old_checkpoint.sh --make   writes what the folder of this version lacks, before it is released
# Each folder has a state directory of each kind, and the hash of the weights to which its version went on from there:
#   plain      a checkpoint; optimizers without products of matrices, so that every machine makes the same bits
#   roots      a checkpoint with matrix roots and quantized state
#   log        a checkpoint, a step log, and a value that an operator set; optimizers as in `plain`
#   log_roots  the same with roots that steps took when they were ready; it goes on to the step of the kill only
#   decisions  a checkpoint, and a control log with roots that were taken when ready, and a value that an operator set;
#              it goes on to the step of the kill only
# The last three were killed with SIGKILL. Bits of roots are compared unless the checkpoint is foreign to this machine.
set -euo pipefail
export PATH=/usr/bin:/bin:/usr/sbin:/sbin
cd "$(dirname "$0")/../.."
bin=${PARAMD_BIN:?the folder of paramd and crash_worker}
[ -x "$bin/crash_worker" ] || { echo "skip: no crash_worker in $bin"; exit 77; }

case ${1:-} in
    '' | --make) ;;
    *) sed -n '4,5s/^# *//p' "$0" >&2; exit 2 ;;
esac

all=tests/golden/checkpoints
scratch=$(mktemp -d /tmp/paramd-old.XXXXXX)
daemon='' worker=''
trap '[ -z "$daemon$worker" ] || kill -9 $daemon $worker 2> /dev/null; rm -rf "$scratch"' EXIT
kinds=(plain roots log log_roots decisions)
killed=11 # the step of the last three kinds when they were killed

# What a kind trains with, the step of its checkpoint, and the step to which it goes on.
declare -A checkpoint=([plain]=20 [roots]=20 [log]=6 [log_roots]=6 [decisions]=6)
declare -A target=([plain]=30 [roots]=30 [log]=21 [log_roots]=$killed [decisions]=$killed)
plain=(--rule 'embedding adamw lr=0.01' --rule 'middle nadam lr=0.01' --rule 'head lamb lr=0.01'
    --rule '* sgd lr=0.02 momentum=0.9')
roots=(--rule 'embedding shampoo lr=0.02 max_preconditioner_dim=32 precondition_frequency=5 root_delay=2'
    --rule 'middle scalable_shampoo learning_rate=0.02 block_size=16 best_effort_memory_usage_reduction=yes'
    --rule 'head kron learning_rate=0.01' --rule '* adafactor learning_rate=0.01')
ready=(--rule 'embedding adamw lr=0.01'
    --rule 'middle shampoo lr=0.02 max_preconditioner_dim=32 precondition_frequency=1 start_preconditioning_step=2
        root_delay=ready'
    --rule 'head shampoo lr=0.02 max_preconditioner_dim=32 precondition_frequency=2 root_delay=ready'
    --rule '* adamw lr=0.01')

# describe KIND STEPS : sets `command` to the worker of the job up to this step
describe() {
    local rules=("${plain[@]}")
    case $1 in
    roots) rules=("${roots[@]}") ;;
    log_roots | decisions) rules=("${ready[@]//$'\n'/ }") ;;
    esac
    case $1 in log*) rules+=(--option durability=log) ;; esac
    command=(timeout 60 "$bin/crash_worker" --url "unix://$scratch/socket" --rank 0 --world 1 --seed 5 --mode rewind
        --deadline 20 --option "checkpoint_every=${checkpoint[$1]}" --steps "$2" --out "$scratch/result" "${rules[@]}")
}

work() { describe "$1" "$2" && "${command[@]}" > "$scratch/worker.log"; }

start() {
    OPENBLAS_CORETYPE=Haswell PARAMD_CPU=avx2 "$bin/paramd" --listen "unix://$scratch/socket" \
        --port-file "$scratch/port" --state-dir "$scratch/$1" > "$scratch/daemon.log" 2>&1 &
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

await_step() { timeout 20 bash -c "until grep -q ' step $1 ' '$scratch/worker.log' 2> /dev/null; do sleep 0.02; done"; }

# interrupt KIND : trains up to the last step, sets a value on the way, and kills the daemon and its worker
interrupt() {
    describe "$1" $killed
    "${command[@]}" --delay 0.5 > "$scratch/worker.log" &
    worker=$!
    await_step 8
    "$bin/paramctl" -s "unix://$scratch/socket" set crash '*' lr=0.005 > "$scratch/set"
    await_step $killed
    sleep 0.2 # less than the worker's delay: what the last step has written is on the disk then
    stop
    kill "$worker"
    wait "$worker" 2> /dev/null || true
    worker=
}

# is_foreign : whether other BLAS kernels or another instruction set than those of this machine made the checkpoint
is_foreign() { grep -q 'made the checkpoint, here are' "$scratch/daemon.log"; }

# go_on KIND FOLDER : goes on from the state directory in the folder, and leaves the hash in $scratch/result
go_on() {
    local back=${checkpoint[$1]}
    case $1 in log*) back=$killed ;; esac
    cp -r "$2/$1" "$scratch/$1"
    chmod -R go-rwx "$scratch/$1"
    start "$1"
    grep -q "is back at step $back:" "$scratch/daemon.log" || { cat "$scratch/daemon.log"; exit 1; }
    work "$1" "${target[$1]}"
    stop
    rm -rf "${scratch:?}/$1"
}

if [ "${1:-}" = --make ]; then
    folder=$all/$("$bin/paramd" --version | sed 's/^paramd \([0-9.]*\).*/\1/; q')
    mkdir -p "$folder"
    for kind in "${kinds[@]}"; do
        [ ! -d "$folder/$kind" ] || continue
        mkdir -m 700 "$scratch/$kind"
        start "$kind"
        case $kind in plain | roots) work "$kind" 20 && stop ;; *) interrupt "$kind" ;; esac
        rm -f "$scratch/$kind/lock"
        cp -r "$scratch/$kind" "$folder"
        rm -r "${scratch:?}/$kind"
        go_on "$kind" "$folder"
        awk '{ print $1 }' "$scratch/result" > "$folder/$kind.hash"
    done
    exit
fi

for folder in "$all"/*/; do
    for kind in "${kinds[@]}"; do
        go_on "$kind" "$folder"
        [ -f "$folder$kind.hash" ] || continue
        case $kind in *roots | decisions) ! is_foreign || continue ;; esac
        hash=$(awk '{ print $1 }' "$scratch/result")
        if [ "$hash" != "$(cat "$folder$kind.hash")" ]; then
            echo "$folder$kind: expected weights of hash $(cat "$folder$kind.hash"), got $hash"
            exit 1
        fi
    done
done
