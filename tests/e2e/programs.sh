#!/bin/bash
# The commands of paramctl that are programs of their own: which one it executes, what it hands on, and what comes back.
set -euo pipefail
export PATH=/usr/bin:/bin:/usr/sbin:/sbin

scratch=$(mktemp -d /tmp/paramd-programs.XXXXXX)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/alone" "$scratch/path"
cp "${PARAMD_BIN:?}/paramctl" "$scratch/alone/"
fail() { echo "$*"; exit 1; }

# program FOLDER : a paramctl-plan that shows its arguments
program() {
    printf '#!/bin/bash\necho "%s $*"; exit 7\n' "${1##*/}" > "$1/paramctl-plan"
    chmod +x "$1/paramctl-plan"
}

# expect STATUS TEXT ARGUMENT... : what paramctl without programs beside it does
expect() {
    local wanted=$1 text=$2 status=0
    shift 2
    PATH=$scratch/path:$PATH "$scratch/alone/paramctl" "$@" > "$scratch/said" 2>&1 || status=$?
    [ "$status" = "$wanted" ] || fail "paramctl $*: status $status instead of $wanted: $(cat "$scratch/said")"
    [ "$(cat "$scratch/said")" = "$text" ] || fail "paramctl $*: $(cat "$scratch/said")"
}

# There is none: the error names it.
expect 1 "paramctl: cannot run paramctl-plan, neither beside paramctl nor from PATH: No such file or directory" plan x
# One on PATH is executed; options before the command's name reach it, and its exit status comes back.
program "$scratch/path"
expect 7 "path x --verbose" plan x --verbose
expect 7 "path --server=unix:///s --json --timeout=2.5 -- a b" -s unix:///s --json --timeout 2.5 plan -- a b
# The one beside paramctl goes first.
program "$scratch/alone"
expect 7 "alone " plan

# It is the same process, so a signal for paramctl reaches the program.
printf '#!/bin/bash\ntrap "exit 9" TERM; echo ready; while :; do sleep 0.1; done\n' > "$scratch/alone/paramctl-plan"
"$scratch/alone/paramctl" plan > "$scratch/said" &
child=$!
deadline=$((SECONDS + 20))
until grep -q ready "$scratch/said"; do
    kill -0 $child || fail "the program ended by itself"
    [ $SECONDS -lt $deadline ] || { kill -KILL $child; fail "the program does not run after 20 s"; }
    sleep 0.05
done
kill -TERM $child
status=0
wait $child || status=$?
[ $status = 9 ] || fail "a signal gave status $status"

# Each program is beside paramctl in the build, and lists the common options.
for name in replay plan bench optimizers doctor; do
    [[ $("$PARAMD_BIN/paramctl" $name --help) == *"--server ADDRESS"* ]] || fail "no help of $name"
    [[ $("$PARAMD_BIN/paramctl-$name" --help) == "Usage: paramctl $name [OPTION]..."* ]] ||
        fail "paramctl-$name calls itself something else"
done
# paramctl itself needs neither BLAS nor regular expressions.
! ldd "$PARAMD_BIN/paramctl" | grep -E 'blas|lapack|pcre|gomp' || fail "paramctl links too much"
