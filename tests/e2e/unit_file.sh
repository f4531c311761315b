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

cp deploy/paramd.socket "$scratch/"

said=$(systemd-analyze verify --man=no "$unit" "$scratch/paramd.socket" 2>&1) || { echo "$said"; echo "systemd-analyze verify refuses the unit file"; exit 1; }
[ -z "$said" ] || { echo "$said"; echo "systemd-analyze verify has something to say"; exit 1; }

# From 0 (can do nothing) to 10 (can do all); a service that listens and keeps state ends near 1.2.
systemd-analyze security --offline=true --threshold=15 "$unit" | tail -n 1
