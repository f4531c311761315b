# Sourced by compose.sh: starts a container engine in a private mount namespace, with base images for the Dockerfile,
# and takes everything away again at the end. Skips (77) where it cannot. Sets $scratch, a folder, and the names of the
# images. The caller defines compose, which runs docker-compose, and calls engine_start.
# shellcheck shell=bash

if [ "${PARAMD_TEST_CONTAINERS-}" != 1 ]; then echo "skip: PARAMD_TEST_CONTAINERS=1 is not set"; exit 77; fi
if [ "$(id -u)" != 0 ]; then echo "skip: needs root"; exit 77; fi
for tool in dockerd docker docker-compose mmdebstrap iptables unshare tini; do
    command -v $tool > /dev/null || { echo "skip: no $tool"; exit 77; }
done
if ip link show docker0 > /dev/null 2>&1; then echo "skip: a container engine runs here already"; exit 77; fi

# A namespace of our own: engines of this age do not know both generations of cgroups side by side.
if [ -z "${PARAMD_COMPOSE_INSIDE-}" ]; then
    PARAMD_COMPOSE_INSIDE=1 exec unshare -m --propagation private "$0" "$@"
fi
if mountpoint -q /sys/fs/cgroup/unified; then umount /sys/fs/cgroup/unified; fi

scratch=$(mktemp -d /var/tmp/paramd-compose.XXXXXX)
export DOCKER_HOST=unix://$scratch/docker.sock DOCKER_BUILDKIT=0 COMPOSE_DOCKER_CLI_BUILD=0 \
    COMPOSE_PROJECT_NAME=paramdtest
export PARAMD_BASE=paramd-test-base PARAMD_SLIM=paramd-test-slim ETCD=paramd-test-etcd
rules=$(iptables-save 2> /dev/null || true) forwarding=$(cat /proc/sys/net/ipv4/ip_forward)
engine=''

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

# As the official images are made: the slim one has neither documents nor locales, and no Perl but the least.
# shellcheck disable=SC2016 # mmdebstrap's shell expands
slim=(--customize-hook='chroot "$1" apt-get purge -y -qq --auto-remove usrmerge perl perl-modules-5.36 libperl5.36'
      --dpkgopt='path-include=/usr/share/doc/*/copyright' --aptopt='Acquire::Languages "none"')
for folder in doc info locale man; do slim=(--dpkgopt="path-exclude=/usr/share/$folder/*" "${slim[@]}"); done

# Makes the archive of a base image: base NAME OPTION...
base() {
    mmdebstrap --quiet --variant=minbase "${@:2}" bookworm "$scratch/$1.tar" > "$scratch/base.log" 2>&1 \
        || { tail -n 5 "$scratch/base.log"; echo "skip: no base image can be made (no mirror?)"; exit 77; }
}

# Makes an image of an archive, which it removes.
take() {
    docker import "$scratch/$1.tar" "paramd-test-$1" > /dev/null
    rm "$scratch/$1.tar"
}

engine_start() {
    local deadline=$((SECONDS + 60))
    dockerd --data-root "$scratch/data" --exec-root "$scratch/run" --pidfile "$scratch/dockerd.pid" -H "$DOCKER_HOST" \
        --default-ulimit nofile=8192:8192 > "$scratch/dockerd.log" 2>&1 &
    engine=$!
    until docker version > /dev/null 2>&1; do
        kill -0 "$engine" 2> /dev/null \
            || { tail -n 5 "$scratch/dockerd.log"; echo "skip: the engine does not start here"; engine=''; exit 77; }
        [ $SECONDS -lt $deadline ] || { echo "the engine does not answer after 60 s"; exit 1; }
        sleep 0.1
    done
}
