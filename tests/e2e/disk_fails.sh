#!/bin/bash
# A disk that fails or hangs under a real daemon (failing_disk.c): the job goes on or pauses, `paramctl jobs` shows the
# error, and checkpoints come again when the disk is well. Also on a full file system, where root may mount one.
set -euo pipefail
export PATH=/usr/bin:/bin:/usr/sbin:/sbin
bin=${PARAMD_BIN:?the folder of paramd, paramctl and crash_worker}
[ -x "$bin/crash_worker" ] || { echo "skip: no crash_worker in $bin"; exit 77; }

scratch=$(mktemp -d /tmp/paramd-disk.XXXXXX)
daemon='' worker='' mounted=''
clean() {
    if [ -n "$worker" ]; then kill -9 "$worker" 2> /dev/null || true; fi
    if [ -n "$daemon" ]; then kill -9 "$daemon" 2> /dev/null || true; fi
    wait 2> /dev/null || true
    if [ -n "$mounted" ]; then umount -l "$mounted"; fi
    rm -rf "$scratch"
}
trap clean EXIT

complain() {
    echo "$1"
    tail -n 3 "$scratch/worker.log" "$scratch/worker.errors" || true
    tail -n 20 "$scratch/daemon.log"
    job || true
    exit 1
}

# await TEXT COMMAND... : repeats a command until it succeeds
await() {
    local until=$((SECONDS + 30)) text=$1
    shift
    until "$@"; do
        [ $SECONDS -lt $until ] || complain "waited in vain for $text"
        kill -0 "$daemon" 2> /dev/null || complain "the daemon has ended by itself"
        kill -0 "$worker" 2> /dev/null || complain "the worker has ended by itself"
        sleep 0.05
    done
}

# job NAME : a field of the job's entry, as JSON
job() { "$bin/paramctl" -s "tcp://127.0.0.1:$(cat "$scratch/port")" -j jobs; }
field() {
    job | python3 -c '
import json, sys
jobs = json.load(sys.stdin)
jobs = jobs["jobs"] if isinstance(jobs, dict) else jobs
print((jobs[0].get(sys.argv[1]) if jobs else "") or "")' "$1"
}

step() { tail -n 1 "$scratch/worker.log" 2> /dev/null | awk '{ print $3 + 0 }'; }
has_stepped_beyond() { [ "$(step)" -gt "$1" ]; }
durable() { local step; step=$(field durable_step); echo "${step:-0}"; }
is_durable_beyond() { [ "$(durable)" -gt "$1" ]; }
shows_error() { [[ "$(field checkpoint_error)" == *"$1"* ]]; }
shows_none() { [ -z "$(field checkpoint_error)" ]; }

# launch FOLDER : a daemon that keeps its checkpoints there
launch() {
    rm -f "$scratch/port"
    FAILING_DISK="$scratch/trouble" FAILING_DISK_FOLDER="$1" LD_PRELOAD="$bin/../lib/libfailing_disk.so" \
        "$bin/paramd" --listen 127.0.0.1:0 --port-file "$scratch/port" --state-dir "$1" --drain-timeout 1s \
        --checkpoint-timeout 1s >> "$scratch/daemon.log" 2>&1 &
    daemon=$!
    worker=$daemon
}

# start FOLDER [OPTION...] : a daemon that keeps its checkpoints there, and a worker that trains with these options
start() {
    local options=() option
    for option in checkpoint_every=5 "${@:2}"; do options+=(--option "$option"); done
    rm -f "$scratch/worker.log"
    launch "$1"
    await 'the daemon to listen' test -s "$scratch/port"
    "$bin/crash_worker" --url "tcp://127.0.0.1:$(cat "$scratch/port")" --mode window --rule '* adamw lr=0.01' \
        "${options[@]}" --delay 0.002 --steps 1000000000 --out "$scratch/result" \
        > "$scratch/worker.log" 2> "$scratch/worker.errors" &
    worker=$!
    await 'a first durable step' is_durable_beyond 0
}

stop() {
    kill -9 "$worker" "$daemon"
    wait 2> /dev/null || true
    worker='' daemon=''
}

# Writes the next line of FAILING_DISK, whole at once.
trouble() { echo "$1" > "$scratch/trouble.new" && mv "$scratch/trouble.new" "$scratch/trouble"; }

# endures CALL ERROR COUNT TEXT : the disk fails, the job goes on, the error is shown, and goes when the disk is well
endures() {
    local before
    trouble "$1 $2 $3"
    await "paramctl jobs to show a failed $1 ($2)" shows_error "$4"
    before=$(step)
    await "a step after a failed $1 ($2)" has_stepped_beyond $((before + 20))
    before=$(durable)
    rm "$scratch/trouble"
    await "a checkpoint after a failed $1 ($2)" is_durable_beyond "$before"
    await "the error of $1 ($2) to go" shows_none
    echo "a failed $1 ($2, after $3 calls): the job went on, the error was shown, the disk healed"
}

mkdir "$scratch/state"
start "$scratch/state"
for count in 0 3; do
    endures write ENOSPC $count 'No space left'
    endures write EIO $count 'Input/output error'
    endures fsync EIO $count 'Input/output error'
done
endures rename EIO 0 'Input/output error'
endures rename ENOSPC 0 'No space left'
stop

# What is on the disk after all that loads: the daemon goes on from the last durable step.
before=$(find "$scratch/state" -name 'step-*' | sed -n 's/.*step-0*\([0-9][0-9]*\)$/\1/p' | sort -n | tail -n 1)
start "$scratch/state"
[ "$(awk '$2 == "begins" { print $3 }' "$scratch/worker.log")" = "$before" ] \
    || complain "a new worker began at another step than the durable step $before"
stop

# hangs FOLDER [OPTION...] : fsync does not return any more, and `paramctl jobs` shows it
hangs() {
    start "$scratch/$1" disk_timeout=200ms "${@:2}"
    trouble 'fsync HANG 0'
    await 'paramctl jobs to show that the disk hangs' shows_error 'has not answered'
}

# heals TEXT : fsync returns, and steps become durable again
heals() {
    local before
    before=$(durable)
    rm "$scratch/trouble"
    await "a durable step after $1" is_durable_beyond "$before"
    await "the error of $1 to go" shows_none
}

waits_for_checkpoint() { [ "$(field waits_for)" = 'a checkpoint' ]; }
logged() { grep -q "$1" "$scratch/daemon.log"; }

hangs hung
before=$(step)
await 'a step while the disk hangs' has_stepped_beyond $((before + 20))
logged 'the disk has not answered for' || complain 'the log does not say that the disk hangs'
heals 'a disk that hung'
stop
echo 'a disk that hangs: the job went on, it was told, and it healed'

hangs paused on_disk_error=pause
await 'the job to pause' waits_for_checkpoint
before=$(step)
heals 'a pause'
await 'a step after a pause' has_stepped_beyond $((before + 20))
stop
echo 'a disk that hangs: a job that is to pause paused until it was well'

hangs log durability=log
await 'the log to be left' logged 'WAL records; steps up to'
before=$(step)
await 'a step while the log hangs' has_stepped_beyond $((before + 20))
heals 'a log that hung'
stop
echo 'a log that hangs: the job went on without, and logged again later'

# A daemon that is told to stop ends although its disk hangs, and says what is lost.
hangs stopped
kill -TERM "$daemon"
kill -9 "$worker"
timeout 60 tail --pid="$daemon" -f /dev/null || complain 'the daemon has not ended within a minute'
if wait "$daemon"; then complain 'a daemon that has lost steps ended as if all was well'; fi
worker='' daemon=''
rm "$scratch/trouble"
logged 'will be lost' || complain 'the log does not say which steps are lost'
# The disk may also have hung when the checkpoint writer removed old checkpoints, before it came to the last one.
logged 'disk not responding: \(last checkpoint of job\|old checkpoints\)' ||
    complain 'the log does not say what is not written'
echo 'a disk that hangs: the daemon stopped, and said what it had not written'

# A daemon that stops on a full disk says that steps are lost: in the log, in the answer to `paramctl shutdown`, and by
# its exit status.
start "$scratch/lost"
trouble 'write ENOSPC 0'
await 'paramctl jobs to show that the disk is full' shows_error 'No space left'
kill -9 "$worker"
wait "$worker" 2> /dev/null || true
worker=$daemon
status=0
"$bin/paramctl" -s "tcp://127.0.0.1:$(cat "$scratch/port")" shutdown 2> "$scratch/shutdown.errors" || status=$?
[ "$status" = 1 ] || complain "paramctl shutdown exited with $status although steps were lost"
grep -q 'has failed: .*No space left.* are lost when the server stops' "$scratch/shutdown.errors" ||
    complain "paramctl shutdown does not say what is lost: $(cat "$scratch/shutdown.errors")"
status=0
wait "$daemon" || status=$?
[ "$status" = 3 ] || complain "a daemon that has lost steps ended with $status, not 3"
logged 'stopped, but 1 jobs lost steps after their durable one' || complain 'the log does not say it'
worker='' daemon=''
rm "$scratch/trouble"
echo 'a full disk: the daemon stopped with status 3, and paramctl shutdown said what was lost'

# Where the disk is well, the last checkpoint is written, and the daemon ends with 0.
start "$scratch/lost"
kill -TERM "$daemon"
kill -9 "$worker"
wait "$daemon" || complain "a daemon whose last checkpoint is on the disk ended with $?"
worker='' daemon=''

# A job whose workers are gone tries its checkpoint again when there is room.
start "$scratch/again"
trouble 'write ENOSPC 0'
await 'paramctl jobs to show that the disk is full' shows_error 'No space left'
kill -9 "$worker"
wait "$worker" 2> /dev/null || true
worker=$daemon
before=$(durable)
rm "$scratch/trouble"
await 'a job without workers to write its checkpoint' is_durable_beyond "$before"
shows_none || complain 'the error of the full disk is still shown'
echo 'a full disk: a job without workers wrote its checkpoint when there was room'
stop

# A daemon that is told to stop while it loads jobs ends before it has loaded them, and leaves the disk as it was.
start "$scratch/loaded" durability=log
stop
files() { find "$scratch/loaded" -type f ! -name lock -exec sha256sum {} + | sort; }
before=$(files)
trouble 'read HANG 0'
: > "$scratch/daemon.log"
launch "$scratch/loaded"
await 'the daemon to listen' logged 'listening'
kill -TERM "$daemon"
await 'the daemon to stop' logged 'stopping: '
rm "$scratch/trouble"
timeout 60 tail --pid="$daemon" -f /dev/null || complain 'a daemon that loads jobs has not ended within a minute'
wait "$daemon" || complain 'a daemon that was stopped while it loaded jobs ended with an error'
logged 'stopped before its jobs were loaded' || complain 'the daemon has loaded its jobs before it stopped'
diff <(echo "$before") <(files) || complain 'a daemon that was stopped while it loaded jobs has changed the disk'
worker='' daemon=''
echo 'a daemon that was stopped while it loaded jobs ended soon, and changed nothing'

# A file system that is full, and is not any more.
mkdir "$scratch/small"
if ! mount -t tmpfs -o size=1m tmpfs "$scratch/small" 2> /dev/null; then
    echo "skip: a full file system (tmpfs cannot be mounted here)"
    exit 0
fi
mounted=$scratch/small
mkdir "$scratch/small/state"
start "$scratch/small/state"
head -c 2m /dev/zero > "$scratch/small/filler" 2> /dev/null || true
await 'paramctl jobs to show that the file system is full' shows_error 'free'
before=$(step)
await 'a step on a full file system' has_stepped_beyond $((before + 20))
before=$(durable)
rm "$scratch/small/filler"
await 'a checkpoint when there is room again' is_durable_beyond "$before"
await 'the error of the full file system to go' shows_none
echo "a full file system: the job went on, the error was shown, and it healed"
