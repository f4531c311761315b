#!/bin/bash
# deploy/docker-compose.yml for real: builds both images, brings up one daemon and four workers that train over TLS with
# tokens, and does so again while the daemon's container is killed in the midst: the weights are the same bytes. Looks
# whether the workers learnt something, whether the daemon was healthy, and whether it ends well. Starts a container
# engine of its own in a private mount namespace and takes everything away again. Runs when PARAMD_TEST_CONTAINERS=1
# asks for it: it needs root, a Debian mirror, a release build and the packages of "# containers" in
# deploy/packages.txt, and touches the network of the machine while it runs. Skips otherwise.
# Takes some minutes: the images install their packages and build from the sources.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PATH=/usr/bin:/bin:/usr/sbin:/sbin

if [ "${PARAMD_TEST_CONTAINERS-}" != 1 ]; then echo "skip: PARAMD_TEST_CONTAINERS=1 is not set"; exit 77; fi
if [ "$(id -u)" != 0 ]; then echo "skip: needs root"; exit 77; fi
for tool in dockerd docker docker-compose mmdebstrap iptables unshare tini; do
    command -v $tool > /dev/null || { echo "skip: no $tool"; exit 77; }
done
[ -x "${PARAMD_BIN:-build/release/bin}/paramctl" ] || { echo "skip: no paramctl in $PARAMD_BIN"; exit 77; }
if ip link show docker0 > /dev/null 2>&1; then echo "skip: a container engine runs here already"; exit 77; fi

# A namespace of our own: engines of this age do not know both generations of cgroups side by side.
if [ -z "${PARAMD_COMPOSE_INSIDE-}" ]; then
    PARAMD_COMPOSE_INSIDE=1 exec unshare -m --propagation private "$0" "$@"
fi
if mountpoint -q /sys/fs/cgroup/unified; then umount /sys/fs/cgroup/unified; fi

scratch=$(mktemp -d /var/tmp/paramd-compose.XXXXXX)
export DOCKER_HOST=unix://$scratch/docker.sock DOCKER_BUILDKIT=0 COMPOSE_DOCKER_CLI_BUILD=0 \
    COMPOSE_PROJECT_NAME=paramdtest
export PARAMD_BASE=paramd-test-base PARAMD_SLIM=paramd-test-slim EPOCHS=4 SECRETS=$scratch/secrets
rules=$(iptables-save 2> /dev/null || true) forwarding=$(cat /proc/sys/net/ipv4/ip_forward)
engine=''

compose() { docker-compose -f deploy/docker-compose.yml "$@"; }

# What the engine changed outside of its namespace: network and control groups.
put_back() {
    local table
    if ip link show docker0 > /dev/null 2>&1; then ip link delete docker0; fi
    iptables -P FORWARD ACCEPT || true
    for table in filter nat; do iptables -t $table -F && iptables -t $table -X; done || true
    if [ -n "$rules" ]; then iptables-restore <<< "$rules" || true; fi
    echo "$forwarding" > /proc/sys/net/ipv4/ip_forward || true
    find /sys/fs/cgroup/*/docker -depth -type d -exec rmdir {} + 2> /dev/null || true
}

clean() {
    local status=$? tries=100
    trap - EXIT
    if [ -n "$engine" ]; then
        compose down -v --remove-orphans > "$scratch/down.log" 2>&1 || true
        kill "$engine" 2> /dev/null || true
        while kill -0 "$engine" 2> /dev/null && [ $((tries--)) -gt 0 ]; do sleep 0.1; done
        kill -KILL "$engine" 2> /dev/null || true
    fi
    put_back
    if [ $status != 0 ] && [ $status != 77 ]; then tail -n 20 "$scratch/dockerd.log" >&2 || true; fi
    grep -o " ${scratch}[^ ]*" /proc/self/mounts | tac | xargs -r -n 1 umount -l || true
    rm -rf "$scratch"
    exit $status
}
trap clean EXIT
trap 'exit 130' INT TERM

say() { printf '== %s (%d s)\n' "$*" "$SECONDS"; }

say "base images"
PARAMCTL=${PARAMD_BIN:-build/release/bin}/paramctl deploy/secrets.sh "$SECRETS"
# As the official images are made: the slim one has neither documents nor locales, and no Perl but the least.
slim=(--customize-hook='chroot "$1" apt-get purge -y -qq --auto-remove usrmerge perl perl-modules-5.36 libperl5.36')
for folder in doc info locale man; do slim+=(--dpkgopt="path-exclude=/usr/share/$folder/*"); done
base() {
    mmdebstrap --quiet --variant=minbase --include=usr-is-merged "${@:2}" bookworm "$scratch/$1.tar" \
        > "$scratch/base.log" 2>&1 \
        || { tail -n 5 "$scratch/base.log"; echo "skip: no base image can be made (no mirror?)"; exit 77; }
}
base base
base slim "${slim[@]}" --dpkgopt='path-include=/usr/share/doc/*/copyright' --aptopt='Acquire::Languages "none"'

say "engine"
dockerd --data-root "$scratch/data" --exec-root "$scratch/run" --pidfile "$scratch/dockerd.pid" -H "$DOCKER_HOST" \
    --default-ulimit nofile=8192:8192 > "$scratch/dockerd.log" 2>&1 &
engine=$!
deadline=$((SECONDS + 60))
until docker version > /dev/null 2>&1; do
    kill -0 "$engine" 2> /dev/null \
        || { tail -n 5 "$scratch/dockerd.log"; echo "skip: the engine does not start here"; engine=''; exit 77; }
    [ $SECONDS -lt $deadline ] || { echo "the engine does not answer after 60 s"; exit 1; }
    sleep 0.1
done
docker import "$scratch/base.tar" "$PARAMD_BASE" > /dev/null
docker import "$scratch/slim.tar" "$PARAMD_SLIM" > /dev/null
rm "$scratch/base.tar" "$scratch/slim.tar"

say "images"
compose config -q
compose build > "$scratch/build.log" 2>&1 || { tail -n 40 "$scratch/build.log"; exit 1; }
docker images --format '{{.Repository}} {{.Size}}' | grep -v none | sort -u
mb=$(docker image inspect -f '{{.Size}}' paramd | awk '{ print int($1 / 1e6) }')
echo "image_mb $mb"
[ "$mb" -le 150 ] || { echo "the daemon's image has $mb MB: expected at most 150"; exit 1; }

container() { compose ps -q "$1"; }
daemon() { docker exec "$(container paramd)" "$@"; }
up() { compose up -d > "$scratch/up.log" 2>&1 || { cat "$scratch/up.log"; compose logs --no-color; exit 1; }; }
# Waits until the workers have ended, and copies the weights to a file.
finish() {
    local rank status
    for rank in 0 1 2 3; do
        status=$(timeout 300 docker wait "$(container worker$rank)")
        [ "$status" = 0 ] || { compose logs --no-color; echo "worker$rank ended with $status"; exit 1; }
    done
    docker cp "$(container worker0):/out/fashion.safetensors" "$scratch/$1"
    docker cp "$(container worker0):/out/fashion.jsonl" "$scratch/"
}

say "training"
up
health=$(docker inspect -f '{{.State.Health.Status}}' "$(container paramd)")
[ "$health" = healthy ] || { echo "the daemon's health was: $health"; exit 1; }
daemon paramctl status > "$scratch/status" || { echo "the operator's token is refused"; exit 1; }
if daemon env PARAMD_TOKEN_FILE= PARAMD_URL=tcp://127.0.0.1:7070 paramctl ping 2> /dev/null; then
    echo "the daemon answers without TLS"; exit 1
fi
finish undisturbed.safetensors
docker logs "$(container worker0)"
[ "$(daemon id -u)" = 10001 ] || { echo "the daemon runs as root"; exit 1; }
compose down -v > "$scratch/down.log" 2>&1

say "training, and the daemon is killed"
up
id=$(container paramd)
pid=$(docker inspect -f '{{.State.Pid}}' "$id")
# Returns whether a step beyond the initial weights (step 0) is durable. Reads all of the log: a grep that ends early
# would break the pipe.
is_durable() { [ "$(docker logs "$id" 2>&1 | grep -c "step [1-9][0-9]* is durable")" -gt 0 ]; }
deadline=$((SECONDS + 120))
until is_durable; do
    [ $SECONDS -lt $deadline ] || { docker logs "$id"; echo "no step is durable after 120 s"; exit 1; }
    sleep 0.05
done
kill -KILL "$pid"                           # `docker kill` would keep the container from starting again
running() { docker inspect -f '{{.State.Running}}' "$(container "$1")"; }
[ "$(running worker0)" = true ] || { echo "the training ended before the kill"; docker logs "$id"; exit 1; }
finish killed.safetensors
[ "$(docker inspect -f '{{.RestartCount}}' "$id")" = 1 ] || { echo "the container did not start again"; exit 1; }
docker logs "$id" 2>&1 | grep "is back at step" || { docker logs "$id"; echo "no checkpoint was loaded"; exit 1; }
cmp "$scratch/undisturbed.safetensors" "$scratch/killed.safetensors" \
    || { echo "the kill changed the weights"; exit 1; }

say "what is left"
[ "$(stat -c %s "$scratch/killed.safetensors")" -gt 900000 ] || { echo "fashion.safetensors is too small"; exit 1; }
accuracy=$(sed -n 's/.*"test_accuracy": \([0-9.]*\).*/\1/p' "$scratch/fashion.jsonl" | tail -n 1)
awk -v a="$accuracy" 'BEGIN { exit !(a >= 0.85) }' \
    || { echo "test accuracy $accuracy after $EPOCHS epochs: expected at least 0.85"; exit 1; }

say "stop"
id=$(container paramd)
compose stop > /dev/null 2>&1
status=$(docker inspect -f '{{.State.ExitCode}}' "$id")
[ "$status" = 0 ] || { docker logs "$id"; echo "the daemon ended with $status on SIGTERM"; exit 1; }
say "one daemon and four workers trained to $accuracy in containers, with the same bytes after a kill"
