#!/bin/bash
# Trains with a real daemon and four real workers (crash_worker), kills the daemon, a worker, or both at once again and
# again, and starts them anew. At the end the weights must have the bytes of a run on one daemon that nobody disturbed.
#   tests/e2e/crash_loop.sh [--mode window|rewind|log] [--shards N] [--only daemons] [--kills N] [--seed S] [--keep]
# --mode window: workers keep their last pushes and do not see that the daemon was killed, but for a process that began
# after the step to which the daemon goes back; rewind: they go back with it; log: the job has a log, so they go back by
# the steps only that the disk did not have yet. --shards: so many daemons share the job, and one of them is killed at a
# time, or now and then two or all. --only daemons: no worker is killed; with windows no shard may then go back, and no
# worker. --seed chooses victims, moments and optimizers. --keep: the folder with all logs stays.
# Prints a line for each kill, and at the end one JSON object.
set -euo pipefail
export PATH=/usr/bin:/bin:/usr/sbin:/sbin
bin=${PARAMD_BIN:?the folder of paramd and crash_worker}
[ -x "$bin/crash_worker" ] || { echo "skip: no crash_worker in $bin"; exit 77; }

mode=window kills=10 seed=1 keep='' shards=1 only=''
while [ $# -gt 0 ]; do
    case $1 in
    --mode) mode=${2:?} && shift ;;
    --shards) shards=${2:?} && shift ;;
    --only) only=${2:?} && shift ;;
    --kills) kills=${2:?} && shift ;;
    --seed) seed=${2:?} && shift ;;
    --keep) keep=yes ;;
    *) sed -n '4s/^# *//p' "$0" >&2; exit 2 ;;
    esac
    shift
done

scratch=$(mktemp -d /tmp/paramd-crash.XXXXXX)
world=4 begun=$SECONDS
pids=('' '' '' '') daemons=()
exec {held}< <(exec python3 -B "$(dirname "$0")/../support/hold_ports.py" "$shards")
holder=$!
read -r -a ports <&"$held"
declare -A killed=([daemon]=0 [worker]=0 [both]=0 [two]=0 [all]=0)
RANDOM=$seed
# A new process of the same run takes its rank over, also if the daemon has not noticed yet that the old one is gone.
export PARAMD_RUN=crash

end_all() {
    local pid
    for pid in "${daemons[@]}" "${pids[@]}" "$holder"; do kill -9 "$pid" 2> /dev/null || true; done
    wait 2> /dev/null || true
    if [ -z "$keep" ]; then rm -rf "$scratch"; fi
}
trap end_all EXIT

# Three sets of optimizers, which the modes take in turn: the three modes with one seed have all of them.
case $mode in rewind) turn=1 ;; log) turn=2 ;; *) turn=0 ;; esac
case $(((seed + turn) % 3)) in
0) rules=('embedding ademamix lr=0.01 alpha=8 alpha_warmup=50'
    'middle scalable_shampoo learning_rate=0.02 block_size=8 preconditioning_compute_steps=5
        start_preconditioning_step=5 root_delay=4'
    'head muon lr=0.02 hyperball=yes' '* schedule_free lr=0.01 warmup_steps=20') ;;
1) rules=('embedding mars lr=0.01 last_grad_dtype=bfloat16'
    'middle shampoo lr=0.02 max_preconditioner_dim=16 precondition_frequency=5 start_preconditioning_step=5
        root_delay=3'
    'head kron learning_rate=0.01 root_delay=0' '* sgd lr=0.02 momentum=0.9') ;;
*) rules=('embedding gpa lr=0.01' 'middle soap lr=0.01 block_size=8 precondition_frequency=3 root_delay=2'
    'head kl_shampoo lr=0.01 precondition_frequency=2 orthogonalize=yes' '* adamw lr=0.01') ;;
esac
job=(--option "seed=$seed" --option checkpoint_every=20 --option checkpoint_keep=2)
for rule in "${rules[@]}"; do job+=(--rule "$(tr -s '\n ' ' ' <<< "$rule")"); done

if [ "$mode" = log ]; then job+=(--option durability=log); fi
# Jobs of several daemons in which parameters count their steps together take them as a whole.
if [ "$shards" -gt 1 ]; then job+=(--option nonfinite_scope=job --whole); fi

# ---- processes ----

# start_daemon SHARD FOLDER : starts a daemon on the same port as before, with a state directory in the folder
start_daemon() {
    local shard=$1
    mkdir -p "$2"
    "$bin/paramd" --listen "127.0.0.1:${ports[shard]},unix://$scratch/socket$shard" \
        --port-file "$scratch/port$shard" --state-dir "$2/$shard" >> "$scratch/daemon$shard.log" 2>&1 &
    daemons[shard]=$!
    [ -s "$scratch/port$shard" ] || await 60 'the daemon to listen' test -s "$scratch/port$shard"
}

# start_daemons FOLDER : starts all daemons in use
start_daemons() {
    local shard
    for ((shard = 0; shard < used; shard++)); do start_daemon "$shard" "$1"; done
}

# urls tcp|unix : the addresses of the daemons in use
urls() {
    local shard list=()
    for ((shard = 0; shard < used; shard++)); do
        case $1 in tcp) list+=("tcp://127.0.0.1:${ports[shard]}") ;; *) list+=("unix://$scratch/socket$shard") ;; esac
    done
    echo "${list[*]}"
}

# start_worker RANK ARGUMENT... : even ranks use TCP, odd ones the Unix socket and shared memory
start_worker() {
    local rank=$1 url
    shift
    if [ $((rank % 2)) = 1 ]; then url=$(urls unix); else url=$(urls tcp); fi
    "$bin/crash_worker" --url "$url" --rank "$rank" --world $world --seed "$seed" --mode "$mode" "${job[@]}" \
        --out "$scratch/rank$rank.result" "$@" >> "$scratch/rank$rank.log" 2>> "$scratch/rank$rank.errors" &
    pids[rank]=$!
}

disturbed() { start_worker "$1" --delay 0.005 --steps 1000000000 --until "$scratch/until"; }

end() { kill -9 "$1"; wait "$1" 2> /dev/null || true; }

# ---- waiting ----

# complain TEXT : says what is wrong and who waits for what, and ends the test
complain() {
    local rank
    keep=yes
    echo "$1 (seed $seed, mode $mode; all logs are in $scratch)"
    for ((rank = 0; rank < world; rank++)); do
        echo "rank $rank: $(tail -n 1 "$scratch/rank$rank.log" 2>&1)" "$(tail -n 2 "$scratch/rank$rank.errors" 2>&1)"
    done
    for ((rank = 0; rank < used; rank++)); do
        "$bin/paramctl" -s "127.0.0.1:${ports[rank]}" jobs 2>&1 || true
        "$bin/paramctl" -s "127.0.0.1:${ports[rank]}" workers crash 2>&1 || true
        "$bin/paramctl" -s "127.0.0.1:${ports[rank]}" params crash 2>&1 || true
        echo "the last lines of daemon $rank:"
        tail -n 20 "$scratch/daemon$rank.log"
    done
    exit 1
}

# await SECONDS TEXT COMMAND... : repeats a command until it succeeds
await() {
    local until=$((SECONDS + $1)) text=$2
    shift 2
    until "$@"; do
        [ $SECONDS -lt $until ] || complain "waited in vain for $text"
        all_live
        sleep 0.02
    done
}

# Checks that no process has ended by itself.
all_live() {
    local rank
    for rank in "${!daemons[@]}"; do
        [ -z "${daemons[rank]}" ] || kill -0 "${daemons[rank]}" 2> /dev/null \
            || complain "daemon $rank has ended by itself"
    done
    for ((rank = 0; rank < world; rank++)); do
        [ -z "${pids[rank]}" ] || kill -0 "${pids[rank]}" 2> /dev/null || [ -s "$scratch/rank$rank.result" ] \
            || complain "rank $rank has ended by itself"
    done
}

# Prints the largest number in a column of the workers' last lines: 3 is the step, 4 the durable step.
largest() {
    tail -qn 1 "$scratch"/rank?.log 2> /dev/null \
        | awk -v column="$1" '$column > most { most = $column } END { print most + 0 }'
}
is_beyond() { [ "$(largest "$1")" -gt "$2" ]; }

# Returns whether every rank has taken a step beyond this one.
all_beyond() {
    tail -qn 1 "$scratch"/rank?.log \
        | awk -v step="$1" -v world=$world '$2 == "step" && $3 > step { n++ } END { exit n != world }'
}

all_done() {
    local rank
    for ((rank = 0; rank < world; rank++)); do
        [ -z "${pids[rank]}" ] || ! kill -0 "${pids[rank]}" 2> /dev/null || return 1
        [ -s "$scratch/rank$rank.result" ] || return 1
    done
}

# pause : up to 0.4 s
pause() { sleep "0.$((RANDOM % 4))$((RANDOM % 10))"; }

# ---- the disturbed run ----

# kill_some VICTIM : kills, and starts again. One time in two the new process comes at once.
kill_some() {
    local rank=$((RANDOM % world)) gone=() dead='' shard
    case $1 in
    daemon | both) gone=($((RANDOM % shards))) ;;
    two) shard=$((RANDOM % shards)) && gone=("$shard" $(((shard + 1 + RANDOM % (shards - 1)) % shards))) ;;
    all) gone=("${!daemons[@]}") ;;
    esac
    case $1 in worker | both) dead=${pids[rank]} && kill -9 "$dead" ;; esac
    for shard in "${gone[@]}"; do end "${daemons[shard]}" && daemons[shard]=''; done
    if [ -n "$dead" ]; then wait "$dead" 2> /dev/null || true && pids[rank]=''; fi
    if [ $((RANDOM % 2)) = 0 ]; then pause; fi
    for shard in "${gone[@]}"; do start_daemon "$shard" "$scratch/state"; done
    if [ -n "$dead" ]; then disturbed "$rank"; fi
}

# choose_victim : sets `victim`
choose_victim() {
    case $((RANDOM % 4)) in 0 | 1) victim=daemon ;; 2) victim=worker ;; *) victim=both ;; esac
    if [ "$shards" -gt 1 ]; then case $((RANDOM % 12)) in 0 | 1) victim=all ;; 2 | 3) victim=two ;; esac; fi
    if [ "$only" = daemons ]; then case $victim in worker | both) victim=daemon ;; esac; fi
}

disturb() {
    local n victim before
    for ((n = 1; n <= kills; n++)); do
        choose_victim
        before=$(largest 3)
        kill_some "$victim"
        killed[$victim]=$((killed[$victim] + 1))
        echo "kill $n of $kills: $victim after step $before, durable step $(largest 4)"
        # One time in four the next kill comes before this one is overcome.
        if [ $((RANDOM % 4)) != 0 ] || [ "$n" = "$kills" ]; then
            await 40 "all ranks to take a step beyond $before after kill $n ($victim)" all_beyond "$before"
        fi
        pause
    done
}

# Checks that no process has begun at a step that is older than one that had been reported as durable. A rank that has
# not pushed a step holds the job back, so others may know of one later step only.
check_durable() {
    sort -n "$scratch"/rank?.log | awk '
        ($2 == "begins" || $2 == "rewound") && $3 + 1 < durable {
            printf "a worker %s at step %d after step %d was durable\n", $2, $3, durable
            wrong = 1
        }
        $4 > durable { durable = $4 }
        END { exit wrong }' || complain "durable steps were lost"
}

used=$shards
start_daemons "$scratch/state"
for ((rank = 0; rank < world; rank++)); do disturbed $rank; done
await 40 'the first durable step' is_beyond 4 0
disturb
last=$(($(largest 3) + 300))
echo "$last" > "$scratch/until.new"
mv "$scratch/until.new" "$scratch/until"
await 60 "step $last" all_done
check_durable
went_back=$(cat "$scratch"/daemon*.log | grep -c 'has gone back to step' || true)
rewinds=$(cat "$scratch"/rank?.log | grep -c rewound || true)
replayed=$(cat "$scratch"/rank?.result | awk '{ sum += $4 } END { print sum + 0 }')
if [ "$mode$only" = windowdaemons ] && [ "$((went_back + rewinds))" != 0 ]; then
    complain "a shard that was killed has touched others: they went back $went_back times, workers $rewinds times"
fi
for daemon in "${daemons[@]}"; do end "$daemon"; done
daemons=()

# ---- the undisturbed run ----

mkdir "$scratch/disturbed"
mv "$scratch"/rank?.* "$scratch/disturbed/"
used=1
start_daemons "$scratch/state2"
for ((rank = 0; rank < world; rank++)); do start_worker $rank --steps "$last"; done
await 60 "step $last of the undisturbed run" all_done
for ((rank = 0; rank < world; rank++)); do
    [ "$(cut -d' ' -f1,2 "$scratch/rank$rank.result")" = "$(cut -d' ' -f1,2 "$scratch/disturbed/rank$rank.result")" ] \
        || complain "rank $rank has other weights than in an undisturbed run: $(cat "$scratch/rank$rank.result"), and $(
            cat "$scratch/disturbed/rank$rank.result")"
done

printf '{"mode": "%s", "seed": %d, "shards": %d, "kills": {"daemon": %d, "worker": %d, "both": %d, "two": %d, ' \
    "$mode" "$seed" "$shards" "${killed[daemon]}" "${killed[worker]}" "${killed[both]}" "${killed[two]}"
printf '"all": %d}, ' "${killed[all]}"
printf '"steps": %d, "rewinds": %d, "replayed": %d, "went_back": %d, "seconds": %d}\n' "$last" "$rewinds" \
    "$replayed" "$went_back" $((SECONDS - begun))
