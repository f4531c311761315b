#!/bin/bash
# paramctl doctor with the real daemon: it needs none, asks one that is named, reads the configuration as the daemon
# does, and its exit status says whether a check failed.
set -euo pipefail
export PATH=/usr/bin:/bin:/usr/sbin:/sbin
unset PARAMD_URL STATE_DIRECTORY
bin=${PARAMD_BIN:?}

scratch=$(mktemp -d /tmp/paramd-doctor.XXXXXX)
daemon=
trap 'if [ -n "$daemon" ]; then kill "$daemon" || true; fi; rm -rf "$scratch"' EXIT
fail() { printf '%s\n' "$@"; cat "$scratch/said" 2> /dev/null || true; exit 1; }

# expect STATUS ARGUMENT... : runs the doctor, whose output goes to the file `said`.
expect() {
    local wanted=$1 status=0
    shift
    "$bin/paramctl" doctor "$@" > "$scratch/said" 2>&1 || status=$?
    [ "$status" = "$wanted" ] || fail "doctor $*: status $status instead of $wanted:"
}
# finds NAME STATUS TEXT : the JSON report has a check of this name and status (or one of ok,warn), with this text.
finds() {
    python3 - "$scratch/said" "$@" << 'END' || fail "expected $*:"
import json, sys
path, name, status, text = sys.argv[1:]
[check] = [check for check in json.load(open(path))["checks"] if check["name"] == name]
sys.exit(check["status"] not in status.split(",") or text not in check["found"] + " " + check["advice"])
END
}

mkdir "$scratch/state"
"$bin/paramd" --print-config --state-dir="$scratch/state" > "$scratch/paramd.conf"
expect 0 --config "$scratch/paramd.conf" --json
finds program ok "$("$bin/paramd" --version | head -n 1)"
finds configuration ok "$scratch/paramd.conf"
finds libraries ok libopenblas
finds daemon ok "not asked"
finds network ok "over a round trip of 50 ms: buffers let one connection carry about "
grep -q "$scratch/state: .*B/s" "$scratch/said" || fail "the disk of state_dir was not measured:"
[ -z "$(ls -A "$scratch/state")" ] || fail "the doctor left files behind: $(ls -A "$scratch/state")"

# A mistyped key is a failure, and so is a daemon that is not there.
sed -i 's/^max_jobs/max_jbos/' "$scratch/paramd.conf"
expect 1 --config "$scratch/paramd.conf" -o json
finds configuration fail max_jobs
expect 1 --server "unix://$scratch/socket"
grep -q "^daemon  *fail" "$scratch/said" || fail "no failure of the daemon:"
grep -q "^[0-9]* ok, [0-9]* warn, 1 fail$" "$scratch/said" || fail "no sum:"

"$bin/paramd" --listen "unix://$scratch/socket" --state-dir "$scratch/kept" > "$scratch/log" 2>&1 &
daemon=$!
deadline=$((SECONDS + 20))
until grep -q "listening on" "$scratch/log"; do
    kill -0 "$daemon" || fail "the daemon has ended:" "$(cat "$scratch/log")"
    [ $SECONDS -lt $deadline ] || fail "the daemon does not listen after 20 s:" "$(cat "$scratch/log")"
    sleep 0.05
done
expect 0 --server "unix://$scratch/socket" --json
finds daemon ok,warn "up "               # a busy machine lets its loop wait
# The configuration is that of the daemon, with its directory, unless a file is named.
finds configuration ok "of the daemon at unix://$scratch/socket: --server-listen=unix://$scratch/socket"
finds configuration ok "--server-state-dir=$scratch/kept"
finds disk ok,warn "$scratch/kept"
expect 0 --server "unix://$scratch/socket" --config /dev/null --json
finds configuration ok "/dev/null"
kill "$daemon" && wait "$daemon"
daemon=
