#!/bin/bash
# Trains a model with paramd, from nothing: installs the packages that are missing, builds, starts paramd on a free port
# of this machine, and lets several worker processes train a classifier of Fashion-MNIST. Writes weights, log, picture.
set -euo pipefail

usage() {
    cat << 'EOF'
usage: deploy/quickstart.sh [--workers N] [--out PREFIX] [--optimizer NAME] [--epochs N] [--batch N] [--seed N]
                            [--constant-lr] [name=value ...]

  --workers N       worker processes; they share each batch [4]
  --out PREFIX      writes PREFIX.safetensors, PREFIX.jsonl and PREFIX.svg [fashion]
  --optimizer NAME  the optimizer that paramd runs [sgd]; its hyperparameters follow as name=value
  --epochs N        passes over the training images [8]
  --batch N         images in a step, of all workers together [256]
  --seed N          of the initial weights and of the order of the images [1]
  --constant-lr     keeps the learning rate; without this option it follows half a cosine down to zero
EOF
}

workers=4 out=fashion optimizer=sgd epochs=8 batch=256 seed=1 constant=no hypers=()
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help) usage; exit 0 ;;
    --*=*) set -- "${1%%=*}" "${1#*=}" "${@:2}"; continue ;;
    --workers | --out | --optimizer | --epochs | --batch | --seed)
        if [ $# -lt 2 ]; then echo "$1 needs a value" >&2; exit 2; fi
        declare "${1#--}=$2"
        shift 2 ;;
    --constant-lr) constant=yes; shift ;;
    [!-]*=*) hypers+=("$1"); shift ;;
    *) echo "unknown option: $1" >&2; usage >&2; exit 2 ;;
    esac
done
# number OPTION VALUE MOST: ends the script if the value is not a number from 1 to MOST.
number() {
    if ! [[ $2 =~ ^[1-9][0-9]{0,4}$ && $2 -le $3 ]]; then echo "$1 $2: expected a number from 1 to $3" >&2; exit 2; fi
}
number --workers "$workers" 999
number --epochs "$epochs" 10000
number --batch "$batch" 8192
case $out in /*) ;; *) out=$PWD/$out ;; esac

# Hyperparameters that suit this model (tests/bench/steps_to.c tries others). Those of the command line follow, and win.
case $optimizer in
sgd) preset='lr=0.1 momentum=0.9' ;;
scalable_shampoo) preset='learning_rate=0.05 beta2=0.99 block_size=128 preconditioning_compute_steps=20
                          root_method=eigh' ;;
shampoo) preset='lr=0.002 betas=0.9,0.999 grafting_config=Adam use_merge_dims=no precondition_frequency=10' ;;
kron) preset='learning_rate=0.001 merge_small_dims=no partition_grads_into_blocks=no
              preconditioner_update_probability=0.2 preconditioner_lr=0.3 preconditioner_init_scale=100' ;;
adafactor) preset='learning_rate=0.04 beta1=0.9 decay_rate=0.95' ;;
*) preset='' ;;
esac
rule="* $optimizer" steps=$((60000 / batch * epochs))
for hyper in $preset "${hypers[@]}"; do
    if [[ $constant = no && $hyper =~ ^(lr|learning_rate)=[0-9.e-]+$ ]]; then
        hyper="${hyper%%=*}=cosine(peak=${hyper#*=},steps=$steps)"
    fi
    rule+=" $hyper"
done

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
export PATH=/usr/bin:/bin:/usr/sbin:/sbin           # Debian's own tools, whatever else lies on the path
. deploy/packages.sh
install_packages build run

echo "building"
cmake --preset release > /dev/null
cmake --build build/release --target paramd paramctl fashion paramd-plot -- --quiet
bin=$root/build/release/bin

# OpenBLAS chooses its kernels by what the processor can do, since it does not know every processor by name.
export OMP_WAIT_POLICY=passive OPENBLAS_CORETYPE=${OPENBLAS_CORETYPE-auto}
logs=$(mktemp -d "${TMPDIR:-/tmp}/paramd-quickstart.XXXXXX")
daemon='' pids=()                                   # pids: workers that still run, by rank

# gone PID SECONDS: waits for a process to end. Fails if it does not end in time.
gone() {
    local tenths=$(($2 * 10))
    while kill -0 "$1" 2> /dev/null; do
        [ $((tenths--)) -gt 0 ] || return 1
        sleep 0.1
    done
}

# Stops the workers that still run, then the daemon: with SIGTERM, and with SIGKILL if they do not end.
stop() {
    local pid
    for pid in "${pids[@]}"; do kill "$pid" 2> /dev/null || true; done
    for pid in "${pids[@]}"; do gone "$pid" 3 || kill -KILL "$pid" 2> /dev/null || true; done
    pids=()
    if [ -n "$daemon" ]; then
        kill "$daemon" 2> /dev/null || true
        gone "$daemon" 10 || kill -KILL "$daemon" 2> /dev/null || true
        daemon=''
    fi
}

on_exit() {
    local status=$?
    trap - EXIT INT TERM HUP
    stop
    if [ $status = 0 ]; then rm -rf "$logs"; else echo "status $status; see the logs in $logs" >&2; fi
    exit $status
}
trap on_exit EXIT
trap 'echo; exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

# fail TEXT LOG: prints the text and the end of the log, and ends the script.
fail() {
    echo "$1" >&2
    tail -n 15 "$2" >&2
    exit 1
}

touch "$logs/paramd.log"                            # sed below may come before the daemon's shell creates it
"$bin/paramd" --listen 127.0.0.1:0 > "$logs/paramd.log" 2>&1 &
daemon=$!
for _ in {1..100}; do
    url=$(sed -n 's/.*listening on \(127\.0\.0\.1:[0-9]*\).*/tcp:\/\/\1/p' "$logs/paramd.log")
    if [ -n "$url" ]; then break; fi
    kill -0 "$daemon" 2> /dev/null || fail "paramd did not start" "$logs/paramd.log"
    sleep 0.1
done
[ -n "$url" ] || fail "paramd did not start to listen" "$logs/paramd.log"
echo "paramd listens on $url; $workers workers train on Fashion-MNIST"

# The workers share the machine's cores. With more threads than cores OpenBLAS's wait for each other, newer releases
# without giving the core away.
share=$(($(nproc) / workers))
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((share > 0 ? share : 1))}

# Rank 0 prints to the terminal. The output of the others goes to logs, which are kept if something fails.
for ((rank = 0; rank < workers; rank++)); do
    command=("$bin/fashion" --url "$url" --job quickstart --rank "$rank" --world-size "$workers" --rule "$rule"
        --epochs "$epochs" --batch "$batch" --seed "$seed" --out "$out")
    if [ "$rank" = 0 ]; then
        "${command[@]}" 2> "$logs/worker-0.log" &
    else
        "${command[@]}" > "$logs/worker-$rank.log" 2>&1 &
    fi
    pids[rank]=$!
done
while [ ${#pids[@]} -gt 0 ]; do
    status=0
    wait -n -p ended "${pids[@]}" || status=$?
    for rank in "${!pids[@]}"; do
        if [ "${pids[rank]}" = "$ended" ]; then break; fi
    done
    unset "pids[rank]"
    [ $status = 0 ] || fail "worker $rank failed" "$logs/worker-$rank.log"
done

kill "$daemon"
wait "$daemon" || fail "paramd did not end with status 0" "$logs/paramd.log"
daemon=''
"$bin/paramd-plot" "$out.jsonl" --out "$out.svg" --title "Fashion-MNIST trained through paramd" \
    --note "$optimizer, $workers workers, $batch images a step; the training loss is the mean of all workers" \
    --log-panel "Loss=step:train_loss,test_loss" --panel "Test accuracy=step:test_accuracy"
accuracy=$(sed -n 's/.*"test_accuracy": \([0-9.]*\).*/\1/p' "$out.jsonl" | tail -n 1)
awk -v a="$accuracy" -v s=$SECONDS 'BEGIN { printf "final test accuracy %.2f %%  after %d s\n", 100 * a, s }'
cat << EOF
look at
  $out.svg          the losses and the accuracy, in a browser
  $out.safetensors  the weights
  $out.jsonl        the numbers of the picture, one JSON object a line
EOF
