#!/bin/bash
# deploy/slurm.sbatch on a made-up cluster: srun and scontrol are scripts that run tasks on this machine. A daemon and
# three workers start, train over TLS and end. A worker that fails makes the job fail. deploy/slurm-cluster.sbatch
# starts a daemon for each node, and ends all.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PATH=/usr/bin:/bin:/usr/sbin:/sbin
unset PARAMD_URL PARAMD_JOB PARAMD_TOKEN_FILE RANK WORLD_SIZE

scratch=$(mktemp -d /tmp/paramd-slurm.XXXXXX)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/bin"
fail() { printf '%s\n' "$@"; cat "$scratch/run/paramd.log" 2> /dev/null || true; exit 1; }

cat > "$scratch/bin/scontrol" << 'END'
#!/bin/bash
[ "$*" = "show hostnames node[1-3]" ] && echo "${FIRST_NODE:-localhost}" && echo "${SECOND_NODE:-node2}"
END
cat > "$scratch/bin/srun" << 'END'
#!/bin/bash
# Runs the command behind the options as often as --ntasks says, with SLURM_PROCID, and fails if one fails. Ends all if
# it is ended.
tasks=1 status=0 pids=()
while [[ ${1-} == --* ]]; do
    case $1 in --ntasks=*) tasks=${1#*=} ;; esac
    shift
done
if [ "$tasks" = 1 ]; then SLURM_PROCID=0 exec "$@"; fi
trap 'kill "${pids[@]}"; wait; exit 143' TERM
for ((i = 0; i < tasks; i++)); do SLURM_PROCID=$i "$@" & pids+=($!); done
for pid in "${pids[@]}"; do wait "$pid" || status=$?; done
exit $status
END
chmod +x "$scratch"/bin/*

# submit COMMAND... : what sbatch would run for a job of three tasks
submit() {
    timeout 60 env PATH="$scratch/bin:${PARAMD_BIN:?}:$PATH" SLURM_SUBMIT_DIR="$scratch" SLURM_JOB_ID=$((20000 + $$)) \
        SLURM_JOB_NODELIST='node[1-3]' SLURM_NTASKS=3 RUN_FOLDER="$scratch/run" PARAMD_JOB=slurm \
        deploy/"${SCRIPT:-slurm.sbatch}" "$@" > "$scratch/said" 2>&1
}

submit "$PARAMD_BIN/minimal" || fail "the job failed:" "$(cat "$scratch/said")"
[ "$(grep -c 'y = 3.000 x + 2.000' "$scratch/said")" = 3 ] || fail "not three results:" "$(cat "$scratch/said")"
grep -q "listening on tls://" "$scratch/run/paramd.log" || fail "the daemon does not speak TLS:"
grep -q "stopped$" "$scratch/run/paramd.log" || fail "the daemon did not stop well:"
[ "$(stat -c %a "$scratch/run/token")" = 600 ] || fail "others can read the token"

if submit false; then fail "a worker that fails does not fail the job"; fi
if submit; then fail "a job without a worker is accepted"; fi

# 192.0.2.1 is nobody's address: the daemon runs, but this node does not reach it.
if FIRST_NODE=192.0.2.1 DAEMON_TIMEOUT=1 submit "$PARAMD_BIN/minimal"; then fail "workers reach nobody's address"; fi
grep -q "tls://192.0.2.1:[0-9]* does not answer" "$scratch/said" || fail "does not say why:" "$(cat "$scratch/said")"

# ---- a daemon on each node ----

export SCRIPT=slurm-cluster.sbatch SECOND_NODE=127.0.0.1
rm -rf "$scratch/run"
submit "$PARAMD_BIN/paramctl" ping || fail "the cluster's job failed:" "$(cat "$scratch/said")"
[ "$(grep -c 'tls://localhost:.* answers' "$scratch/said")" = 3 ] &&
    [ "$(grep -c 'tls://127.0.0.1:.* answers' "$scratch/said")" = 3 ] ||
    fail "not every task has reached both daemons:" "$(cat "$scratch/said")"
for i in 0 1; do
    log=$scratch/run/paramd-$i.log
    grep -q "stopped$" "$log" || fail "daemon $i did not stop well:" "$(cat "$log")"
    [ -d "$scratch/run/state/$i" ] || fail "daemon $i has no directory"
done
if submit false; then fail "a worker that fails does not fail the cluster's job"; fi
if SECOND_NODE=192.0.2.1 DAEMON_TIMEOUT=1 submit true; then fail "workers start without one of the daemons"; fi
grep -q "not all daemons answer" "$scratch/said" || fail "does not say why:" "$(cat "$scratch/said")"
