#!/bin/bash
# From nothing to a trained model: installs the packages that are missing, builds, starts paramd on a free port of this machine,
# and lets several worker processes train a classifier of Fashion-MNIST through it. Leaves weights, training curve and log.
set -euo pipefail

usage() {
    cat << 'EOF'
usage: deploy/quickstart.sh [--workers N] [--out PREFIX] [--optimizer NAME] [--epochs N] [--batch N] [--seed N] [--constant-lr]
                            [--train-loss N] [name=value ...]

  --workers N       worker processes; the images are divided among them [4]
  --out PREFIX      leaves PREFIX.safetensors, PREFIX.svg and PREFIX.jsonl [fashion]
  --optimizer NAME  which optimizer paramd runs [sgd]; its hyperparameters follow as name=value
  --epochs N        times over the training images [8]
  --batch N         images a step, of all workers together [256]
  --seed N          of the first weights and of the images' order [1]
  --train-loss N    every N steps: the loss on 10,000 training images, always the same, into PREFIX.jsonl [0: never]
  --constant-lr     keep the learning rate; without this it follows a cosine to zero
EOF
}

workers=4 out=fashion training=()
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help) usage; exit 0 ;;
    --*=*) set -- "${1%%=*}" "${1#*=}" "${@:2}"; continue ;;
    --workers | --out | --optimizer | --epochs | --batch | --seed | --train-loss)
        if [ $# -lt 2 ]; then echo "$1 needs a value" >&2; exit 2; fi
        case $1 in
        --workers) workers=$2 ;;
        --out) out=$2 ;;
        *) training+=("$1" "$2") ;;
        esac
        shift 2 ;;
    --constant-lr | [!-]*=*) training+=("$1"); shift ;;
    *) echo "$1: not understood" >&2; usage >&2; exit 2 ;;
    esac
done
if ! [[ $workers =~ ^[1-9][0-9]{0,2}$ ]]; then echo "--workers $workers: expected a number from 1 to 999" >&2; exit 2; fi
case $out in /*) ;; *) out=$PWD/$out ;; esac

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
export PATH=/usr/bin:/bin:/usr/sbin:/sbin           # Debian's own tools, whatever else lies on the path
. deploy/packages.sh
install_packages build run

echo "building"
cmake --preset release > /dev/null
cmake --build build/release --target paramd paramctl fashion -- --quiet
bin=$root/build/release/bin

# One BLAS thread a process, and kernels chosen by what the processor can do: OpenBLAS does not know every processor by name.
export OMP_WAIT_POLICY=passive OPENBLAS_CORETYPE=${OPENBLAS_CORETYPE-auto}
logs=$(mktemp -d "${TMPDIR:-/tmp}/paramd-quickstart.XXXXXX")
daemon='' pids=()                                   # of the workers still running, by rank

# gone PID SECONDS: waits for a process to end; false if it does not.
gone() {
    local tenths=$(($2 * 10))
    while kill -0 "$1" 2> /dev/null; do
        [ $((tenths--)) -gt 0 ] || return 1
        sleep 0.1
    done
}

# Stops what still runs, daemon last; asks first.
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
    if [ $status = 0 ]; then rm -rf "$logs"; else echo "stopped with status $status; what daemon and workers said is in $logs" >&2; fi
    exit $status
}
trap on_exit EXIT
trap 'echo; exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

# fail WHAT LOG: shows the end of a log and ends.
fail() {
    echo "$1" >&2
    tail -n 15 "$2" >&2
    exit 1
}

touch "$logs/paramd.log"                            # the daemon's own shell may be late
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

# Rank 0 tells how it goes; the others' words are kept in case something fails.
for ((rank = 0; rank < workers; rank++)); do
    command=("$bin/fashion" --url "$url" --job quickstart --rank "$rank" --world-size "$workers" --out "$out" "${training[@]}")
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
wait "$daemon" || fail "paramd did not end well" "$logs/paramd.log"
daemon=''
echo "done in $SECONDS s"
