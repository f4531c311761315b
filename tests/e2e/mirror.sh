#!/bin/bash
# A daemon with a mirror (server.mirror): its machine's disk is lost, and a state directory that paramctl makes from the
# mirror gives the bits of a run that nobody disturbed; a mirror that hangs slows neither steps nor the end of the
# daemon, and gets the rest later; what is newer is not overwritten.
set -euo pipefail
export PATH=/usr/bin:/bin:/usr/sbin:/sbin
bin=${PARAMD_BIN:?the folder of paramd, paramctl and crash_worker}
[ -x "$bin/crash_worker" ] || { echo "skip: no crash_worker in $bin"; exit 77; }

scratch=$(mktemp -d /tmp/paramd-mirror.XXXXXX)
daemon='' workers=()
exec {held}< <(exec python3 -B "$(dirname "$0")/../support/hold_ports.py" 1)
holder=$!
read -r port <&"$held"
export PARAMD_RUN=mirror
clean() {
    local pid
    for pid in $daemon "${workers[@]}" "$holder"; do kill -9 "$pid" 2> /dev/null || true; done
    wait 2> /dev/null || true
    rm -rf "$scratch"
}
trap clean EXIT

complain() {
    echo "$1"
    tail -n 3 "$scratch"/*/rank?.log "$scratch"/*/rank?.errors || true
    tail -n 20 "$scratch"/*/daemon.log
    job || true
    exit 1
}

# await TEXT COMMAND... : repeats a command until it succeeds
await() {
    local until=$((SECONDS + 60)) text=$1
    shift
    until "$@"; do
        [ $SECONDS -lt $until ] || complain "waited in vain for $text"
        [ -z "$daemon" ] || kill -0 "$daemon" 2> /dev/null || complain "the daemon has ended by itself"
        sleep 0.05
    done
}

job() { "$bin/paramctl" -s "tcp://127.0.0.1:$port" -j jobs; }
field() {
    job | python3 -c '
import json, sys
jobs = json.load(sys.stdin)
jobs = jobs["jobs"] if isinstance(jobs, dict) else jobs
print((jobs[0].get(sys.argv[1]) if jobs else "") or 0)' "$1"
}
metric() {
    python3 -c '
import sys, urllib.request
for line in urllib.request.urlopen(sys.argv[1]).read().decode().splitlines():
    if line.split("{")[0].split(" ")[0] == sys.argv[2]: print(int(float(line.split()[-1])))' \
        "http://$http/metrics" "$1"
}
metric_is() { [ "$(metric "$1")" = "$2" ]; }
step() { tail -n 1 "$scratch/$run/rank0.log" 2> /dev/null | awk '{ print $3 + 0 }'; }
has_stepped_beyond() { [ "$(step)" -gt "$1" ]; }
is_mirrored_beyond() { [ "$(field mirrored_step)" -gt "$1" ]; }
logged() { grep -q "$1" "$scratch/$run/daemon.log"; }

# launch RUN STATE [ARGUMENT...] : a daemon on the same port as before
launch() {
    run=$1
    mkdir -p "$scratch/$run"
    rm -f "$scratch/port"
    FAILING_DISK="$scratch/trouble" FAILING_DISK_FOLDER="$scratch/mirror" \
        LD_PRELOAD="$bin/../lib/libfailing_disk.so" "$bin/paramd" --listen "127.0.0.1:$port" \
        --port-file "$scratch/port" --http-listen 127.0.0.1:0 --state-dir "$2" --drain-timeout 2s "${@:3}" \
        >> "$scratch/$run/daemon.log" 2>&1 &
    daemon=$!
    await 'the daemon to listen' test -s "$scratch/port"
    http=$(sed -n 's/.*listening for HTTP on //p' "$scratch/$1/daemon.log" | tail -n 1)
}

roots='middle shampoo lr=0.02 max_preconditioner_dim=16 precondition_frequency=5 start_preconditioning_step=5'
roots+=' root_delay=3'

# work ARGUMENT... : two workers whose gradients depend on their seed and the weights alone
work() {
    local rank
    workers=()
    for rank in 0 1; do
        "$bin/crash_worker" --url "tcp://127.0.0.1:$port" --rank $rank --world 2 --seed 7 --mode window --loses-disks \
            --rule 'embedding adamw lr=0.01' --rule "$roots" --rule '* sgd lr=0.02 momentum=0.9' \
            --option checkpoint_every=20 "${options[@]}" --out "$scratch/$run/rank$rank.result" "$@" \
            >> "$scratch/$run/rank$rank.log" 2>> "$scratch/$run/rank$rank.errors" &
        workers+=($!)
    done
}
all_done() { [ -s "$scratch/$1/rank0.result" ] && [ -s "$scratch/$1/rank1.result" ]; }

end_daemon() { kill -9 "$daemon"; wait "$daemon" 2> /dev/null || true; daemon=''; }
end_workers() { kill -9 "${workers[@]}" 2> /dev/null || true; wait "${workers[@]}" 2> /dev/null || true; workers=(); }

weights() { cut -d' ' -f1,2 "$scratch/$1/rank$2.result"; }
fetch() { "$bin/paramctl" mirror fetch "$@"; }

# loses_its_disk RUN : the daemon is killed, its directory is lost, and another one is fetched from the mirror
loses_its_disk() {
    local mirrored last rank
    rm -rf "$scratch/mirror"
    launch "$1" "$scratch/state-$1" --mirror "$scratch/mirror"
    work --delay 0.005 --steps 1000000000 --until "$scratch/$1/until"
    await 'a mirrored checkpoint' is_mirrored_beyond 39
    if fetch "$scratch/mirror" "$scratch/state-$1" 2> "$scratch/refusal"; then
        complain 'paramctl fetched into the directory of a daemon that runs'
    fi
    grep -q 'in use by another process' "$scratch/refusal" || complain "$(cat "$scratch/refusal")"
    mirrored=$(field mirrored_step)
    end_daemon
    # What the daemon has left is newer than the mirror, or the same.
    if fetch "$scratch/mirror" "$scratch/state-$1" > "$scratch/$1/fetched" 2> "$scratch/refusal"; then
        grep -q 'was there already' "$scratch/$1/fetched" || complain 'paramctl has replaced a newer state'
    else
        grep -q 'newer state' "$scratch/refusal" || complain "$(cat "$scratch/refusal")"
    fi
    rm -rf "$scratch/state-$1"
    fetch "$scratch/mirror" "$scratch/state-$1" > "$scratch/$1/fetched" || complain 'paramctl has fetched nothing'
    [ "$(awk 'NR == 2 { print ($3 == "-" ? $2 : $3) }' "$scratch/$1/fetched")" -ge "$mirrored" ] \
        || complain "mirrored was step $mirrored, fetched: $(cat "$scratch/$1/fetched")"
    launch "$1" "$scratch/state-$1" --mirror "$scratch/mirror"
    await 'steps after the fetch' has_stepped_beyond $((mirrored + 60))
    last=$(($(step) + 100))
    echo $last > "$scratch/until.new" && mv "$scratch/until.new" "$scratch/$1/until"
    await "step $last" all_done "$1"
    wait "${workers[@]}"
    end_daemon
    launch "$1-plain" "$scratch/state-$1-plain"
    work --steps $last
    await "step $last of the undisturbed run" all_done "$1-plain"
    wait "${workers[@]}"
    workers=()
    end_daemon
    for rank in 0 1; do
        [ "$(weights "$1" $rank)" = "$(weights "$1-plain" $rank)" ] \
            || complain "rank $rank has other weights than in an undisturbed run"
    done
    echo "$1: fetched after step $mirrored was mirrored, and step $last has the bits of an undisturbed run"
}

options=()
loses_its_disk checkpoint
options=(--option durability=log)
loses_its_disk log

# ---- an empty state directory beside a mirror with jobs ----

launch empty "$scratch/state-empty" --mirror "$scratch/mirror"
await 'a line that says how to fetch' logged 'paramctl mirror fetch'
end_daemon

# ---- a mirror that hangs ----

# speed SECONDS : steps in that time
speed() { local before; before=$(step); sleep "$1"; echo $(($(step) - before)); }

rm -rf "$scratch/mirror" "$scratch/state-hung"
options=(--option durability=log)
launch hung "$scratch/state-hung" --mirror "$scratch/mirror"
work --delay 0.005 --steps 1000000000
await 'a mirrored step' is_mirrored_beyond 100
metric_is paramd_mirror_up 1 || complain 'a mirror that is well is not up'
before=$(speed 10)
echo 'fsync HANG 0' > "$scratch/trouble"
for _ in 1 2 3; do # another program may slow some of them, a mirror would slow all
    during=$(speed 20)
    [ "$during" -le "$before" ] || break
done
echo "a mirror that hangs: $before steps in 10 s before, $during in 20 s then"
[ "$during" -gt "$before" ] || complain "steps became slower: $before in 10 s before, $during in 20 s then"
metric_is paramd_mirror_up 0 || complain 'a mirror that hangs is up'
[ "$(metric paramd_mirror_lag_steps)" -gt 100 ] || complain 'a mirror that hangs has no lag'
durable=$(field durable_step)
[ "$durable" -gt $((before + 100)) ] || complain "steps are not durable while the mirror hangs: $durable"
[ "$(grep -c 'no answer for 10 s' "$scratch/hung/daemon.log")" = 1 ] || complain 'not said once that it hangs'
gap=$(awk '$2 == "step" { if (last && $1 - last > most) most = $1 - last; last = $1 } END { print most }' \
    "$scratch/hung/rank0.log")
echo "a mirror that hangs: the longest step took $gap s"
end_workers
begun=$SECONDS
kill -TERM "$daemon"
wait "$daemon" || complain 'a daemon whose mirror hangs ended with an error'
daemon=''
[ $((SECONDS - begun)) -lt 15 ] || complain "the daemon took $((SECONDS - begun)) s to end"
logged 'no answer: it does not have the last steps' || complain 'the log does not say what the mirror lacks'
echo "a mirror that hangs: the daemon ended within $((SECONDS - begun)) s"

# ---- it is well again ----

rm "$scratch/trouble"
launch hung "$scratch/state-hung" --mirror "$scratch/mirror"
reaches() { [ "$(field mirrored_step)" = "$(field durable_step)" ] && [ "$(field mirrored_step)" -gt 0 ]; }
await 'the mirror to get the rest' reaches
await 'the lag to be gone' metric_is paramd_mirror_lag_steps 0 # figures of jobs are copied once a second
end_daemon
echo 'a mirror that was away: it got the rest after the next start'
