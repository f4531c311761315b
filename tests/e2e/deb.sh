#!/bin/bash
# The Debian packages for real: deploy/deb.sh builds them and lintian finds nothing; they are installed in a fresh
# Debian with systemd, whose service starts, is upgraded while two workers train, removed and purged. Runs when
# PARAMD_TEST_PACKAGES=1 asks for it: it needs root, a Debian mirror and the section "packages" of deploy/packages.txt.
# Skips otherwise. Takes some minutes: the packages are built twice.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PATH=/usr/bin:/bin:/usr/sbin:/sbin LC_ALL=C.UTF-8

if [ "${PARAMD_TEST_PACKAGES-}" != 1 ]; then echo "skip: PARAMD_TEST_PACKAGES=1 is not set"; exit 77; fi
if [ "$(id -u)" != 0 ]; then echo "skip: needs root"; exit 77; fi
for tool in dh dh_python3 lintian mmdebstrap systemd-nspawn; do
    command -v $tool > /dev/null || { echo "skip: no $tool"; exit 77; }
done

scratch=$(mktemp -d /var/tmp/paramd-deb.XXXXXX)
root=$scratch/root machine='' leader=''
clean() {
    local status=$?
    trap - EXIT
    if [ -n "$leader" ]; then kill -KILL "$leader" 2> /dev/null || true; fi
    if [ -n "$machine" ]; then wait "$machine" 2> /dev/null || true; fi
    if mountpoint -q "$root/proc"; then umount -l "$root/proc"; fi
    rm -rf "$scratch"
    exit $status
}
trap clean EXIT
trap 'exit 130' INT TERM

say() { printf '== %s (%d s)\n' "$*" "$SECONDS"; }
die() { printf '%s\n' "$@" >&2; exit 1; }
quietly() { "$@" > "$scratch/output" 2>&1 || die "$* failed:" "$(tail -n 30 "$scratch/output")"; }

# await SECONDS COMMAND... : runs the command until it succeeds.
await() {
    local end=$((SECONDS + $1))
    shift
    until "$@" > /dev/null 2>&1; do
        [ $SECONDS -lt $end ] || die "waited in vain for: $*" "$(tail -n 5 "$scratch"/*.log 2> /dev/null)"
        sleep 0.1
    done
}

say "packages"
version=$(sed -n '1s/.*(\(.*\)).*/\1/p' deploy/debian/changelog)
deploy/deb.sh
mkdir "$scratch/first" "$scratch/second"
rm build/deb/*-dbgsym_*
mv build/deb/*.deb "$scratch/first/"
deploy/deb.sh --no-lintian --version "$version+1" > /dev/null
rm build/deb/*-dbgsym_*
mv build/deb/*.deb "$scratch/second/"

say "a fresh Debian"
release=$(. /etc/os-release && echo "$VERSION_CODENAME")        # the packages are of this machine's release
mmdebstrap --quiet --variant=minbase --include=usr-is-merged,systemd,systemd-sysv,dbus "$release" "$root" \
    > "$scratch/base.log" 2>&1 \
    || { tail -n 5 "$scratch/base.log"; echo "skip: no base can be made (no mirror?)"; exit 77; }
cp -r "$scratch/first" "$scratch/second" "$root/"
all=(paramd libparamd0 libparamd-optim0 libparamd-dev python3-paramd)

# Fails if files that paramd's packages brought or wrote are left.
nothing_is_left() {
    local left
    left=$(find "$root"/{etc,usr,var/lib} -xdev -iname '*paramd*' -not -path '*/var/lib/systemd/*' \
        -not -path '*/var/lib/apt/*')
    [ -z "$left" ] || die "purged, but these files are left:" "$left"
}

say "install without systemd"
mount -t proc proc "$root/proc"
quietly chroot "$root" env DEBIAN_FRONTEND=noninteractive sh -c \
    'apt-get update -qq && apt-get install -y -qq --no-install-recommends /first/*.deb'
uid=$(chroot "$root" id -u paramd) || die "the package makes no user paramd"
[ "$uid" -lt 1000 ] || die "the user paramd is no system user: $uid"
for path in /lib/systemd/system/paramd.service /lib/systemd/system/paramd@.service /lib/systemd/system/paramd.socket \
    /lib/systemd/system/paramd-tls.socket /usr/share/man/man8/paramd.8.gz \
    /usr/share/man/man1/paramctl-doctor.1.gz /usr/share/bash-completion/completions/paramctl \
    /usr/share/zsh/vendor-completions/_paramctl /usr/share/doc/paramd/README.md /usr/include/paramd/client.h; do
    [ -s "$root$path" ] || die "not installed: $path"
done
conffiles=$(chroot "$root" dpkg-query -W -f "\${Conffiles}" paramd | awk '{ print $1 }' | paste -sd' ')
[ "$conffiles" = /etc/paramd/paramd.conf ] || die "paramd.conf is not the one conffile: $conffiles"
quietly chroot "$root" apt-get purge -y -qq "${all[@]}"
nothing_is_left
umount "$root/proc"

say "the fresh Debian starts"
# A namespace of its own: systemd of this age does not know both generations of control groups side by side. A network
# of its own: the daemon of the service listens on its usual port.
# shellcheck disable=SC2016     # $1 is the inner shell's
unshare -m --propagation private sh -c 'umount /sys/fs/cgroup/unified 2> /dev/null
    exec systemd-nspawn --quiet --directory="$1" --register=no --keep-unit --private-network --boot --console=pipe' \
    - "$root" < /dev/null > "$scratch/machine.log" 2>&1 &
machine=$!
has_leader() { leader=$(pgrep -P "$machine"); }
inside() { nsenter --target "$leader" --mount --pid --uts --ipc --net --root --wd "$@"; }
# Returns whether the system has come up. "degraded" will do: some units of a real machine fail here.
is_up() { [[ "$(inside systemctl is-system-running 2> /dev/null)" =~ ^(running|degraded)$ ]]; }
deadline=$((SECONDS + 60))
until has_leader && is_up; do
    kill -0 "$machine" || { cat "$scratch/machine.log"; machine=''; echo "skip: systemd does not start here"; exit 77; }
    [ $SECONDS -lt $deadline ] || die "systemd is not up after 60 s:" "$(cat "$scratch/machine.log")"
    sleep 0.1
done

say "install"
quietly inside dpkg -i -R /first
await 20 inside paramctl ping
is_active() { [ "$(inside systemctl is-active "$1")" = "$2" ]; }
is_active paramd.service active || die "the service is not active: $(inside systemctl status paramd.service)"
if is_active paramd.socket active; then die "the socket is active without being asked for"; fi
main_pid() { inside systemctl show -P MainPID paramd.service; }
[ "$(inside stat -c %U "/proc/$(main_pid)")" = paramd ] || die "the service does not run as the user paramd"
[ "$(inside stat -c '%U %a' /var/lib/paramd)" = "paramd 700" ] || die "/var/lib/paramd is not the daemon's alone"
inside paramctl doctor --server :7070 > "$scratch/doctor" \
    || die "the doctor finds a failure:" "$(cat "$scratch/doctor")"
inside systemctl reload paramd.service
[ "$(inside systemctl show -P Result paramd.service)" = success ] || die "the reload failed"

cp deploy/debian/tests/train "$root/"
quietly inside sh /train

# Two workers with the Python package. A step takes 5 ms beside the daemon's work, as if a gradient was computed, so
# that the upgrade falls into the training.
cat > "$root/worker.py" << 'END'
import hashlib, os, pathlib, sys, time
import numpy, paramd
job, steps, pause, rank = sys.argv[1], 1500, float(sys.argv[2]), int(os.environ["RANK"])
weights = {"w": numpy.zeros(1000, numpy.float32)}
with paramd.Client(job=job, rules="* adam lr=0.01") as client:
    client.declare(weights)
    client.init(weights)
    for step in range(steps):
        gradients = {"w": numpy.sin(numpy.arange(1000) + step + rank).astype(numpy.float32)}
        client.push_pull(gradients, weights).wait()
        if step == 50:
            pathlib.Path(f"/trains-{job}-{rank}").touch()
        time.sleep(pause)
pathlib.Path(f"/done-{job}-{rank}").write_text(hashlib.sha256(weights["w"].tobytes()).hexdigest())
END
# train JOB PAUSE : starts two workers.
train() {
    local rank
    workers=()
    for rank in 0 1; do
        inside env RANK=$rank WORLD_SIZE=2 PARAMD_URL=tcp://127.0.0.1:7070 python3 /worker.py "$1" "$2" \
            > "$scratch/worker-$1-$rank.log" 2>&1 &
        workers+=($!)
    done
}
ended() {
    local pid
    for pid in "${workers[@]}"; do wait "$pid" || die "a worker failed:" "$(cat "$scratch"/worker*)"; done
}
train undisturbed 0
ended

say "upgrade while two workers train"
echo "# a line of the operator" >> "$root/etc/paramd/paramd.conf"
before=$(main_pid)
train upgraded 0.005
await 30 test -e "$root/trains-upgraded-0" -a -e "$root/trains-upgraded-1"
quietly inside dpkg -i -R /second
[ "$(inside dpkg-query -W -f "\${Version}" paramd)" = "$version+1" ] || die "it was not upgraded"
if [ -e "$root/done-upgraded-0" ]; then die "the training ended before the upgrade did"; fi
await 20 inside paramctl ping
[ "$(main_pid)" != "$before" ] || die "the upgrade did not restart the service"
ended
for rank in 0 1; do
    cmp "$root/done-undisturbed-0" "$root/done-upgraded-$rank" || die "the upgrade changed the weights of rank $rank"
done
tail -n 1 "$root/etc/paramd/paramd.conf" | grep -q "^# a line of the operator$" \
    || die "the upgrade replaced paramd.conf"
[ "$(inside id -u paramd)" = "$uid" ] || die "the user has another number after the upgrade"

say "systemd holds the port"
inside systemctl stop paramd.service
inside systemctl start paramd.socket
inside paramctl --timeout 20 ping > /dev/null || die "a connection to the socket does not start the service"
is_active paramd.service active || die "the socket did not start the service"
inside systemctl stop paramd.socket paramd.service

say "tokens as credentials"
inside paramctl token new worker | (umask 077; tee "$root/token" > "$root/etc/paramd/tokens")
# shellcheck disable=SC2016     # systemd sets this variable for the daemon
sed -i -e 's|^listen = .*|listen = tls://*:7070|' -e 's|^tokens =.*|tokens = ${CREDENTIALS_DIRECTORY}/tokens|' \
    "$root/etc/paramd/paramd.conf"
inside systemctl start paramd.service || die "no start with tokens:" "$(inside journalctl -n 20 -u paramd.service)"
inside env PARAMD_URL=tls://127.0.0.1:7070 PARAMD_TOKEN_FILE=/token paramctl ping > /dev/null \
    || die "the token does not let its owner in"
if inside paramctl --timeout 2 ping > /dev/null 2>&1; then die "the daemon answers without TLS"; fi

say "systemd holds the port of TLS"
inside systemctl stop paramd.service
inside systemctl start paramd-tls.socket
inside env PARAMD_URL=tls://127.0.0.1:7071 PARAMD_TOKEN_FILE=/token paramctl --timeout 20 ping > /dev/null \
    || die "a connection to the socket for TLS is not answered:" "$(inside journalctl -n 20 -u paramd.service)"
is_active paramd.service active || die "the socket for TLS did not start the service"
inside systemctl stop paramd-tls.socket paramd.service
rm "$root/etc/paramd/tokens"

say "remove and purge"
quietly inside apt-get remove -y -qq "${all[@]}"
if [ -e "$root/usr/bin/paramd" ]; then die "removed, but /usr/bin/paramd is there"; fi
[ -s "$root/etc/paramd/paramd.conf" ] || die "removing took the configuration"
[ -n "$(ls -A "$root/var/lib/paramd")" ] || die "removing took the checkpoints"
quietly inside dpkg --purge "${all[@]}"
nothing_is_left
say "the packages of $version install, upgrade a running job to the same bits, and leave nothing"
