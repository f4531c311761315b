#!/bin/bash
# Builds both container images and trains one epoch of the example in them, without a container engine.
#   tests/image.sh           needs root, and Debian's buildah and debootstrap (apt-get install buildah debootstrap)
# The base image is made by debootstrap from this machine's own Debian mirror, so that no registry is needed.
# DEBIAN: the release, 12 or 13 (default 12). BASE: an image to build from instead. Everything is kept in one temporary
# folder, which is removed at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
for tool in buildah debootstrap; do
    if command -v "$tool" > /dev/null; then continue; fi
    echo "$tool is missing: apt-get install buildah debootstrap" >&2
    exit 2
done
work=$(mktemp -d)
daemon=
stop() {
    if [ -n "$daemon" ]; then kill "$daemon" 2> /dev/null || true; wait; fi
    buildah rm --all > /dev/null 2>&1 || true
    rm -rf "$work"
}
trap stop EXIT
printf '[storage]\ndriver = "vfs"\nrunroot = "%s/run"\ngraphroot = "%s/graph"\n' "$work" "$work" > "$work/storage.conf"
export CONTAINERS_STORAGE_CONF=$work/storage.conf BUILDAH_ISOLATION=chroot

case ${DEBIAN:-12} in
    12) suite=bookworm ;;
    13) suite=trixie ;;
    *) echo "DEBIAN=$DEBIAN: expected 12 or 13" >&2; exit 2 ;;
esac

# Makes an image of the release with the package sources of this machine.
make_base() {
    local root=$work/root container
    debootstrap --variant=minbase "$suite" "$root" "${MIRROR:-http://deb.debian.org/debian}" > "$work/base.log"
    cp /etc/apt/apt.conf.d/99* "$root/etc/apt/apt.conf.d/" 2> /dev/null || true
    container=$(buildah from scratch)
    buildah add -q "$container" "$root" / > /dev/null
    buildah commit -q "$container" localhost/base > /dev/null
    buildah rm "$container" > /dev/null
    rm -rf "$root"
}

# Builds one stage of the Dockerfile and prints the name of a container made from it.
build() {
    buildah bud --format docker --layers=false -f deploy/Dockerfile --target "$1" --build-arg "BASE=$BASE" \
        --build-arg "SLIM=$BASE" -t "paramd-$1" . > "$work/$1.log" 2>&1 || { tail -20 "$work/$1.log" >&2; exit 1; }
    buildah from "paramd-$1"
}

if [ -z "${BASE:-}" ]; then make_base; BASE=localhost/base; fi
server=$(build daemon)
worker=$(build worker)
entry=(paramd --config /etc/paramd/paramd.conf)         # as ENTRYPOINT has it; `buildah run` takes none

if buildah run "$server" -- "${entry[@]}" > "$work/refused" 2>&1; then
    echo 'the daemon started without --insecure' >&2; exit 1
fi
# Containers of this isolation share the host's network, so the worker finds the daemon on the default address.
buildah run "$server" -- "${entry[@]}" --insecure > "$work/paramd.log" 2>&1 &
daemon=$!
for _ in $(seq 100); do
    if buildah run "$server" -- paramctl ping --quiet 2> /dev/null; then break; fi
    sleep 0.2
done
buildah run "$server" -- paramctl ping                  # what HEALTHCHECK asks
train() { buildah run --env PARAMD_JOB=fashion "$worker" -- fashion --rank "$1" --world 2 --epochs 1; }
train 1 > "$work/rank1.log" 2>&1 &
train 0
wait $!
buildah images
