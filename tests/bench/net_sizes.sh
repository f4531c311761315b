#!/bin/bash
# Measures pushes and pulls of 4 workers with tensors from 1 KiB to 64 MiB on a release build, and prints rows of a
# Markdown table: size, tensors, GB/s of payload, share of bare TCP, CPU seconds per GB of the daemon and of bare TCP's
# server, of the clients and of bare TCP's clients, and system calls per MB of payload: all of the daemon's, its reads
# and writes, the clients' reads and writes.
# System calls are counted in runs of their own, by perf: that needs root (or kernel.perf_event_paranoid = -1). Without
# it these columns show "-".
# Usage: tests/bench/net_sizes.sh [KIB...]     without sizes: all of them
# Exit status: 0 when everything was measured; 1 when something could not be measured.
set -u
cd "$(dirname "$0")/../.." || exit
bin=build/release/bin workers=4
export PATH=/usr/bin:/bin:/usr/sbin:/sbin
folder=$(mktemp -d) daemon=
trap '[ -n "$daemon" ] && kill "$daemon"; rm -rf "$folder"' EXIT

# KiB of a tensor | tensors | rounds
table='1 2000 60
4 2000 20
16 1000 10
64 512 8
256 128 8
1024 32 8
4096 16 8
16384 4 6
65536 1 6'

field() { sed -n 's/^ *"'"$1"'": \([-0-9.eE+]*\),\{0,1\}$/\1/p' "$folder/bench"; }

# count FILE EVENT : prints how often perf counted the event, or nothing.
count() { awk -F, -v event="$2" '$3 == event && $1 ~ /^[0-9]+$/ { print $1 }' "$folder/$1" 2> /dev/null; }

# count_calls KIB TENSORS : prints the three numbers of system calls per MB.
count_calls() {
    local reads=syscalls:sys_enter_readv writes=syscalls:sys_enter_sendmsg all=raw_syscalls:sys_enter rounds=10
    "$bin"/paramd --listen=127.0.0.1:0 --port-file="$folder/port" 2> "$folder/log" &
    daemon=$!
    until [ -s "$folder/port" ]; do kill -0 $daemon || return 1; sleep 0.05; done
    perf stat -x, -o "$folder/clients" -e $reads,$writes -- perf stat -x, -o "$folder/daemon" -e $all,$reads,$writes \
        -p $daemon -- "$bin"/paramctl bench net --json --workers $workers --tensors "$2" --floats $(($1 * 256)) \
        --rounds $rounds --server "tcp://127.0.0.1:$(cat "$folder/port")" > "$folder/counted" 2>&1
    kill $daemon
    wait $daemon
    daemon=
    rm -f "$folder/port"
    # 3 rounds warm up; before them, one worker sends initial weights and all workers fetch them.
    awk -v kib="$1" -v tensors="$2" -v rounds=$((rounds + 3)) -v workers=$workers -v all="$(count daemon $all)" \
        -v server="$(($(count daemon $reads) + $(count daemon $writes)))" \
        -v clients="$(($(count clients $reads) + $(count clients $writes)))" 'BEGIN {
            mb = kib * 1024 * tensors * (2 * workers * rounds + workers + 1) / 1e6
            if (all == "") print "- | - | -"
            else printf "%.1f | %.1f | %.1f\n", all / mb, server / mb, clients / mb }'
}

# measure KIB TENSORS ROUNDS
measure() {
    local calls
    "$bin"/paramctl bench net --json --workers $workers --tensors "$2" --floats $(($1 * 256)) --rounds "$3" \
        > "$folder/bench" || return 1
    calls=$(count_calls "$1" "$2") || return 1
    printf '| %s KiB | %s | %.2f | %.2f | %.2f, %.2f | %.2f, %.2f | %s |\n' "$1" "$2" "$(field payload_gb_per_s)" \
        "$(field ratio)" "$(field cpu_s_per_gb)" "$(field bare_cpu_s_per_gb)" "$(field clients_cpu_s_per_gb)" \
        "$(field bare_clients_cpu_s_per_gb)" "$calls"
}

cmake --preset release > /dev/null && cmake --build build/release --target paramd paramctl > /dev/null \
    || { echo "net_sizes.sh: the release build failed" >&2; exit 1; }
status=0
while read -r kib tensors rounds; do
    [ $# -gt 0 ] && [[ " $* " != *" $kib "* ]] && continue
    measure "$kib" "$tensors" "$rounds" || { echo "net_sizes.sh: $kib KiB could not be measured" >&2; status=1; }
done <<< "$table"
exit $status
