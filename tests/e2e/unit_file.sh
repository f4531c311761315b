#!/bin/bash
# The unit file as it is installed: systemd accepts it, and finds little that it could do besides its work.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PATH=/usr/bin:/bin:/usr/sbin:/sbin
command -v systemd-analyze > /dev/null || { echo "skip: no systemd-analyze"; exit 77; }
[ -x "${PARAMD_BIN:?}/paramd" ] || { echo "skip: no paramd in $PARAMD_BIN"; exit 77; }

scratch=$(mktemp -d /tmp/paramd-unit.XXXXXX)
trap 'rm -rf "$scratch"' EXIT

# systemd looks whether the program is there: here it stands where it was built.
unit=$scratch/paramd.service
sed "s|/usr/bin/paramd|$PARAMD_BIN/paramd|" deploy/paramd.service > "$unit"
grep -q "^ExecStart=$PARAMD_BIN/paramd " "$unit"

# Its reload is the signal that the daemon knows. No ExecStartPre checks the configuration: systemd 252 gives it no
# credentials. The daemon checks it by itself, before it does anything else.
started=$(sed -n 's/^ExecStart=//p' "$unit")
if grep -q '^ExecStartPre=' "$unit"; then echo "ExecStartPre has no credentials"; exit 1; fi
grep -qx 'ExecReload=/bin/kill -HUP $MAINPID' "$unit" || { echo "no ExecReload by SIGHUP"; exit 1; }

# A secret that is not there does not stop the start: each credential has a text in its place.
credentials() { sed -n "s/^$1=\([^:]*\):.*/\1/p" "$unit" | sort; }
[ -n "$(credentials LoadCredential)" ] && [ "$(credentials LoadCredential)" = "$(credentials SetCredential)" ] \
    || { echo "loaded: $(credentials LoadCredential); in their place: $(credentials SetCredential)"; exit 1; }

# A good file passes, a wrong one stops the start with status 2, which systemd does not repeat, and says where.
conf=$scratch/paramd.conf
"$PARAMD_BIN/paramd" --print-config > "$conf"
${started/\/etc\/paramd\/paramd.conf/$conf} --check-config > /dev/null \
    || { echo "the printed configuration is refused"; exit 1; }
cp "$conf" "$scratch/good.conf"
grep -qx 'RestartPreventExitStatus=2 3' "$unit" || { echo "a wrong configuration is started again and again"; exit 1; }
sed -i 's/^listen = 127.*/listen = 127.0.0.1:70700/' "$conf"
status=0
said=$(${started/\/etc\/paramd\/paramd.conf/$conf} 2>&1) || status=$?
[ $status = 2 ] && [[ $said == *"larger than 65535"* ]] || { echo "a wrong port: status $status: $said"; exit 1; }

cp deploy/paramd.socket deploy/paramd-tls.socket "$scratch/"

# The daemon knows the socket for TLS by its name, and systemd passes it to the daemon's service.
grep -qx 'FileDescriptorName=tls' "$scratch/paramd-tls.socket" && grep -qx 'Service=paramd.service' \
    "$scratch/paramd-tls.socket" || { echo "paramd-tls.socket does not pass a socket named tls"; exit 1; }

said=$(systemd-analyze verify --man=no "$unit" "$scratch/paramd.socket" "$scratch/paramd-tls.socket" 2>&1) \
    || { echo "$said"; echo "systemd-analyze verify refuses the unit file"; exit 1; }
[ -z "$said" ] || { echo "$said"; echo "systemd-analyze verify has something to say"; exit 1; }

# The template for several daemons differs from the unit in the names of its instance alone, and its variables are keys.
template=$scratch/paramd@.service
sed "s|/usr/bin/paramd|$PARAMD_BIN/paramd|" 'deploy/paramd@.service' > "$template"
rest() {
    sed -n '/^\[Unit\]/,$p' "$1" | grep -v '^Environment=PARAMD_\|^EnvironmentFile=' |
        sed 's| on port %i||; s|^StateDirectory=paramd/%i|StateDirectory=paramd|; s|paramd-%i|paramd|'
}
diff <(rest "$unit") <(rest "$template") || { echo "paramd@.service differs from paramd.service"; exit 1; }
variables=$(sed -n 's/^Environment=\(PARAMD_.*\)/\1/p' "$template" | sed 's/%i/7070/g')
# shellcheck disable=SC2086     # one word for each variable
env $variables PARAMD_SLICE=1/1 "$PARAMD_BIN/paramd" --config "$scratch/good.conf" --check-config > /dev/null \
    || { echo "the variables of paramd@.service are refused"; exit 1; }
said=$(systemd-analyze verify --man=no "$scratch/paramd@7070.service" 2>&1) || { echo "$said"; exit 1; }
[ -z "$said" ] || { echo "$said"; echo "systemd-analyze verify has something to say of paramd@.service"; exit 1; }

# The user of the unit is the one that sysusers.d makes, and stopping leaves time for all that the daemon waits for.
grep -qx 'u paramd - .*' deploy/paramd.sysusers && grep -qx 'User=paramd' "$unit" && ! grep -q DynamicUser "$unit" \
    || { echo "the unit and deploy/paramd.sysusers differ in the user"; exit 1; }
grep -qx 'StateDirectory=paramd' "$unit" && grep -qx 'StateDirectoryMode=0700' "$unit" \
    || { echo "the unit has no directory for checkpoints"; exit 1; }
seconds() { sed -n "s/^$1 = \([0-9]*\)s$/\1/p; s/^$1 = \([0-9]*\)m$/\1 * 60/p" "$conf"; }
stop=$(sed -n 's/^TimeoutStopSec=//p' "$unit")
needed=$(( $(seconds drain_timeout) + $(seconds checkpoint_timeout) + 5 ))
[ "$stop" -ge "$needed" ] || { echo "TimeoutStopSec=$stop is shorter than the daemon may take: $needed s"; exit 1; }
if command -v systemd-sysusers > /dev/null && ! id paramd > /dev/null 2>&1; then
    said=$(systemd-sysusers --dry-run "$PWD/deploy/paramd.sysusers" 2>&1) || { echo "$said"; exit 1; }
    [[ $said == *"Creating user 'paramd'"* ]] || { echo "sysusers makes no user: $said"; exit 1; }
fi

# From 0 (can do nothing) to 10 (can do all); a service that listens and keeps state ends near 1.2.
systemd-analyze security --offline=true --threshold=15 "$unit" | tail -n 1
