#!/bin/bash
# deploy/docker-compose.yml and docker-compose.cluster.yml for real: builds both images, and lets four workers train
# over TLS with tokens. The weights are the same bytes with one daemon; when its container is killed in the midst; with
# three daemons; when the containers of each and of a worker are killed; and when etcd and a spare are there, the
# container of an owner is stopped for good, and then etcd's. Looks whether the workers learnt something, whether the
# daemon was healthy, and whether it ends well.
#   tests/e2e/compose.sh [TRIAL...]     one, killed, three, three_killed, etcd: all by default
# container_engine.sh starts a container engine. Runs when PARAMD_TEST_CONTAINERS=1 asks for it: it needs root, a Debian
# mirror, a release build and the packages of "# containers" in deploy/packages.txt, and touches the network of the
# machine while it runs. Skips otherwise. Takes some minutes: the images install their packages and build from the
# sources.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PATH=/usr/bin:/bin:/usr/sbin:/sbin

bin=${PARAMD_BIN:-build/release/bin}
[ -x "$bin/paramctl" ] || { echo "skip: no paramctl in $bin"; exit 77; }
. tests/support/container_engine.sh
export EPOCHS=4 SECRETS=$scratch/secrets
file=deploy/docker-compose.yml profile=()

compose() { docker-compose -f "$file" "${profile[@]}" "$@"; }
container() { compose ps -q "$1"; }
in_daemon() { docker exec "$(container "$1")" "${@:2}"; }
die() { echo "$*"; compose logs --no-color --tail 40; exit 1; }
up() { compose up -d > "$scratch/up.log" 2>&1 || { cat "$scratch/up.log"; die "the containers do not start"; }; }
down() { compose down -v > "$scratch/down.log" 2>&1; }

# Waits for a condition: eventually SECONDS COMMAND...
eventually() {
    local deadline=$((SECONDS + $1))
    until "${@:2}"; do
        [ $SECONDS -lt $deadline ] || die "not within $1 s: ${*:2}"
        sleep 0.05
    done
}

has_ended() { [ "$(docker inspect -f '{{.State.Status}}' "$(container "$1")")" = exited ]; }

# Waits until the workers have ended well, copies the weights to a file, and ends the containers.
finish() {
    local rank status
    for rank in 0 1 2 3; do
        eventually 300 has_ended "worker$rank"
        status=$(docker inspect -f '{{.State.ExitCode}}' "$(container "worker$rank")")
        [ "$status" = 0 ] || die "worker$rank ended with $status"
    done
    docker cp "$(container worker0):/out/fashion.safetensors" "$scratch/$1.safetensors"
    docker cp "$(container worker0):/out/fashion.jsonl" "$scratch/"
}

# Compares the weights of a trial with those of the first one that ran.
same_as_first() {
    [ -e "$scratch/first.safetensors" ] || cp "$scratch/$1.safetensors" "$scratch/first.safetensors"
    cmp "$scratch/first.safetensors" "$scratch/$1.safetensors" || die "$1: other weights than of the first trial"
}

# Returns whether a container has logged a line of a pattern. Reads all of the log: a grep that ends early would break
# the pipe.
has_logged() { [ "$(docker logs "$(container "$1")" 2>&1 | grep -c "$2")" -gt 0 ]; }
# Returns whether a step beyond the initial weights (step 0) is durable.
is_durable() { has_logged "$1" "step [1-9][0-9]* is durable"; }

restarts() { docker inspect -f '{{.RestartCount}}' "$(container "$1")"; }
has_restarted() { [ "$(restarts "$1")" -ge 1 ]; }

# Kills a container's process, and waits until the engine has started it again. `docker kill` would keep it down.
kill_container() {
    kill -KILL "$(docker inspect -f '{{.State.Pid}}' "$(container "$1")")"
    eventually 60 has_restarted "$1"
    ! has_ended worker0 || die "the training ended before the kill of $1"
}

expect_learnt() {
    local accuracy
    accuracy=$(sed -n 's/.*"test_accuracy": \([0-9.]*\).*/\1/p' "$scratch/fashion.jsonl" | tail -n 1)
    awk -v a="$accuracy" 'BEGIN { exit !(a >= 0.85) }' \
        || die "test accuracy $accuracy after $EPOCHS epochs: expected at least 0.85"
    [ "$(stat -c %s "$scratch/first.safetensors")" -gt 900000 ] || die "fashion.safetensors is too small"
    say "test accuracy $accuracy"
}

# Stops all containers; each of these daemons must end well.
expect_good_end() {
    local daemon status
    compose stop > /dev/null 2>&1
    for daemon; do
        status=$(docker inspect -f '{{.State.ExitCode}}' "$(container "$daemon")")
        [ "$status" = 0 ] || die "$daemon ended with $status on SIGTERM"
    done
}

one() {
    local health
    up
    health=$(docker inspect -f '{{.State.Health.Status}}' "$(container paramd)")
    [ "$health" = healthy ] || die "the daemon's health was: $health"
    in_daemon paramd paramctl status > "$scratch/status" || die "the operator's token is refused"
    if in_daemon paramd env PARAMD_TOKEN_FILE= PARAMD_URL=tcp://127.0.0.1:7070 paramctl ping 2> /dev/null; then
        die "the daemon answers without TLS"
    fi
    finish one
    [ "$(in_daemon paramd id -u)" = 10001 ] || die "the daemon runs as root"
    expect_good_end paramd
}

killed() {
    up
    eventually 120 is_durable paramd
    kill_container paramd
    finish killed
    has_logged paramd "is back at step" || die "no checkpoint was loaded"
}

three() {
    file=deploy/docker-compose.cluster.yml
    up
    finish three
    in_daemon paramd0 paramctl shards || die "the operator's token is refused"
    expect_good_end paramd0 paramd1 paramd2
}

three_killed() {
    local name
    file=deploy/docker-compose.cluster.yml
    up
    for name in paramd0 paramd1 paramd2; do eventually 120 is_durable "$name"; done
    for name in paramd0 worker2 paramd1 paramd2; do kill_container "$name"; done
    finish three_killed
}

etcd() {
    local name
    file=deploy/docker-compose.cluster.yml profile=(--profile etcd)
    export ENGINE=etcd://etcd:2379
    up
    for name in paramd0 paramd1 paramd2; do eventually 120 is_durable "$name"; done
    compose kill paramd1 > /dev/null 2>&1
    eventually 60 has_logged spare "owns shard 1 of 3"
    compose kill etcd > /dev/null 2>&1
    ! has_ended worker0 || die "the training ended before the takeover"
    in_daemon spare paramctl shards || true         # its list has the address of the daemon that was killed
    finish etcd
    unset ENGINE
}

say "base images"
PARAMCTL=$bin/paramctl deploy/secrets.sh "$SECRETS"
base base --include=usr-is-merged
base slim --include=usr-is-merged "${slim[@]}"
base etcd --include=usr-is-merged,etcd-server

say "images"
engine_start
for name in base slim etcd; do take $name; done
compose config -q
compose build > "$scratch/build.log" 2>&1 || { tail -n 40 "$scratch/build.log"; exit 1; }
docker images --format '{{.Repository}} {{.Size}}' | grep -v none | sort -u
mb=$(docker image inspect -f '{{.Size}}' paramd | awk '{ print int($1 / 1e6) }')
echo "image_mb $mb"
[ "$mb" -le 150 ] || { echo "the daemon's image has $mb MB: expected at most 150"; exit 1; }

[ $# -gt 0 ] || set -- one killed three three_killed etcd
for trial; do
    say "$trial"
    file=deploy/docker-compose.yml profile=()
    "$trial"
    same_as_first "$trial"
    down
done
expect_learnt
say "four workers trained in containers, with the same bytes in: $*"
