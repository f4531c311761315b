#!/bin/bash
# Measures the project's figures on a release build with the default configuration and prints one JSON object a line:
# {"figure": "net_large", "cpu": "auto", "value": 0.88, "unit": "of bare TCP", "bar": ">= 0.85", "holds": true,
# "command": "...", "note": "...", "load": 0.1}
# Measure on a quiet machine: other work slows the daemon and what it is compared with by different amounts. "load" is
# the load average (running processes) just before.
# Usage: tests/bench/run.sh [NAME...]     without names: all but the slow ones (marked slow below)
#        tests/bench/run.sh --cpu avx2,avx512 [NAME...]     on each of these instruction sets; without names: the
#                                         figures that depend on them most (marked kernel)
# partition_cost, deadline_overrun_s and fat_link make network namespaces, as root; elsewhere they are skipped by name.
# PYTHON=FILE: the Python for figures in Python [that of tests/python/environment.sh]; without PyTorch 2 those that
# compare with it are skipped by name. So are the other peers that are not there: DeepSpeed in that Python, and ps-lite
# in PSLITE=FOLDER.
# Exit status: 0 when everything asked for was measured or skipped, whether or not it holds; 1 when something could not
# be measured; 2 usage.
set -u
cd "$(dirname "$0")/../.." || exit
bin=build/release/bin
python=${PYTHON:-$(tests/python/environment.sh --find)}
export PATH=/usr/bin:/bin:/usr/sbin:/sbin           # Debian's own tools, whatever else lies on the path

# Recorded runs: all of them where they lie beside the project, else the selection in the repository.
golden=../shared/golden
if [ ! -d $golden ]; then golden=tests/golden/traces; fi

# name | unit | bar | slow or kernel, or nothing | command
figures='
net_large    | of bare TCP                  | >= 1.0   |      | paramctl bench net --json
net_small    | of bare TCP                  | >= 0.85  |      | \
    paramctl bench net --json --tensors 2000 --floats 1024 --rounds 100
shm_large    | of TCP                       | >= 3     |      | \
    paramctl bench net --json --transport shm --beside tcp
shm_small    | of TCP                       | >= 2     |      | \
    paramctl bench net --json --transport shm --beside tcp --tensors 2000 --floats 1024 --rounds 100
net_tcp_cpu  | of the CPU time of a bare TCP server and a bare pass of the arithmetic | <= 1.0 | | \
    paramctl bench net --json
loop_lag_ms  | ms, 99.9th percentile        | <= 2     |      | figure_loop_lag_ms
memory       | of weights, accumulators, optimizer state and snapshots | <= 1.10 | | figure_memory
fairness_ms  | ms, 99th percentile          | <= 100   |      | figure_fairness_ms
flood_hello_ms | ms, 99th percentile         | <= 100   |      | figure_flood_hello_ms
hostile_step_ms | ms, 99th percentile, the worst attack | <= 50 | | figure_hostile_step_ms
read_only_step | of the step time alone, the worst attack | <= 1.1 | | figure_read_only_step
flood_memory_mib | MiB                       | <= 128   |      | figure_flood_memory_mib
cgroup_kill  | of the attacks leave the daemon alive | >= 1 | | figure_cgroup_kill
tls_throughput | of TCP                  | >= 0.5   |      | \
    paramctl bench net --json --transport tls --beside tcp
half_open_kib | KiB for each of 10,000 TLS handshakes | <= 8 |  | figure_half_open kib
half_open_p99 | of the step time alone       | <= 1.2   |      | figure_half_open p99
window_memory | MiB beyond the gradients of its steps | <= 32 |  | figure_window_memory
sim_seeds    | seeds a second, one core     | >= 50    |      | pd_sim --seeds 1..2000
fat_link     | of the rate of a link of 1 Gbit/s and 100 ms | >= 0.9 | slow | tests/bench/fat_link.py
fat_link_default | of the rate of a link of 1 Gbit/s and 50 ms | >= 0.85 | slow | tests/bench/fat_link.py delay=0.025
partition_cost | of the cut, beyond a second | <= 1.2   | slow | tests/bench/cuts.py cost
deadline_overrun_s | s, the most of all calls | <= 0.2   |      | tests/bench/cuts.py overrun
idle_1000    | of the step time alone       | <= 1.10  |      | figure_idle_1000
scrape_cost  | of the step time without scrapes | <= 1.02 |   | figure_scrape_cost
probe_ok     | of the probes of /healthz answered 200 in a second | >= 0.99 | | figure_probe_ok
hidden_job_list | of the time for a job that does not exist | >= 0 | | figure_hidden_job list
hidden_job_hello | of the time for a job that does not exist | >= 0 | | figure_hidden_job hello
checkpoint_rate | of one file written in sequence past the page cache, and synced | >= 0.8 | | figure_checkpoint_rate
log_rate_4mb | of one file written in sequence past the page cache, and synced | >= 0.7 | | figure_log_rate 4
log_rate_100mb | of one file written in sequence past the page cache, and synced | >= 0.7 | | figure_log_rate 100
log_cost_adamw | of the step time with durability = none | >= 0 | | figure_log_cost adamw
log_cost_sgd | of the step time with durability = none | >= 0 | | figure_log_cost sgd
root_scratch | of ssyevd                    | <= 1.20  | kernel | figure_root_scratch
root_tracked | of ssyevd and the product    | <= 0.50  | kernel | figure_root_tracked
root_tracked_fast | of ssyevd and the product | <= 1.10 | kernel | figure_root_tracked 1024 0.95 4 0 1 1024
root_stall_p50 | of the step time without roots | <= 1.05 |  | figure_root_stall p50
root_stall_p99 | of the step time without roots | <= 1.5  |  | figure_root_stall p99
root_fairness | of the step time alone       | <= 3     |      | figure_root_fairness
checkpoint_stall_p50_adamw | of the step time without checkpoints | <= 1.05 | slow | figure_checkpoint_stall adamw p50
checkpoint_stall_p99_adamw | of the step time without checkpoints | <= 1.3 | slow | figure_checkpoint_stall adamw p99
checkpoint_stall_p50_shampoo | of the step time without checkpoints | <= 1.05 | slow | \
    figure_checkpoint_stall shampoo p50
checkpoint_stall_p99_shampoo | of the step time without checkpoints | <= 1.5 | slow | \
    figure_checkpoint_stall shampoo p99
recovery     | of reading the checkpoint and taking the steps | <= 1.3 | slow | figure_recovery
cluster_one  | of the step time of commit 9935414f, the worst shape | <= 1.01 | slow | \
    tests/bench/plain_step.sh 9935414f
cluster_cpu  | of the CPU time of one daemon | <= 1.05 |      | figure_cluster cpu
cluster_skew | of the mean load of a shard  | <= 1.10  |      | figure_cluster skew
settle_cost  | of the step time without verdicts | >= 0 |     | figure_cluster settle
cluster_recovery | of the recovery of one daemon | <= 1.2 | slow | figure_cluster recovery
takeover_s   | s beyond lease, loading and steps | <= 3 | slow | figure_engine takeover
etcd_cost    | of the step time without an engine | <= 1.01 | slow | figure_engine cost
cluster_scale | of four times the payload of one daemon | >= 0.85 | slow | figure_cluster scale
python_push_pull | of the speed in C            | >= 0.95  |      | tests/bench/python_push_pull.py
torch_step   | of DDP with gloo and SGD     | <= 0.6   |      | tests/bench/torch_step.py
torch_overlap | of the step without overlap | <= 0.9   |      | tests/bench/torch_overlap.py
gpt2_tokens  | of the tokens per second of AdamW on the device | >= 0 | slow | tests/bench/gpt2.py
lines_to_adopt | lines, for one process     | <= 1     |      | tests/bench/lines_to_adopt.py
lm_steps     | of the steps of AdamW        | <= 0.65  | slow | tests/bench/lm_to_loss.py steps
lm_time      | of the time of AdamW         | <= 1     | slow | tests/bench/lm_to_loss.py time
lm_steps_newer | of the steps of AdamW, soap | >= 0     | slow | \
    tests/bench/lm_to_loss.py steps soap kl_shampoo muon ademamix mars
delay_cost   | nats that kl_shampoo loses by bases 10 steps late | <= 0.02 | slow | tests/bench/delay_cost.py
import_s     | s, without NumPy             | <= 0.15  |      | tests/bench/import_s.py
wheel_mb     | MB                           | <= 20    | slow | deploy/wheel.sh --no-try
accuracy_sgd | test accuracy, 4 workers     | >= 0.875 |      | deploy/quickstart.sh
roots_parallel | times the speed of one     | >= 1.9   |      | figure_roots_parallel
replay_distributed_kron | of the traces ok, here; a daemon would draw its own probes | >= 1 | | \
    figure_replay_folder GOLDEN/distributed_kron
replay_google_shampoo | of the traces ok, here and through a daemon | >= 1 | | \
    figure_replay_folder GOLDEN/google_shampoo
replay_meta_shampoo | of the traces ok, here and through a daemon | >= 1 | | figure_replay_folder GOLDEN/meta_shampoo
replay_torch_optim | of the traces ok, here and through a daemon | >= 1 | | figure_replay_folder GOLDEN/torch_optim
replay_t5x_adafactor | of the traces ok, here and through a daemon | >= 1 | | figure_replay_folder GOLDEN/t5x_adafactor
replay_psgd  | of the traces ok, here; a daemon would draw its own probes | >= 1 | | \
    figure_replay_folder GOLDEN/psgd
replay_soap  | of the traces ok, here and through a daemon | >= 1 | | figure_replay_folder GOLDEN/soap
replay_kl_methods | of the traces ok, here and through a daemon | >= 1 | | figure_replay_folder GOLDEN/kl_methods
replay_meta_head | of the traces ok, here and through a daemon | >= 1 | | figure_replay_folder GOLDEN/meta_head
replay_meta_soap | of the traces ok, here and through a daemon | >= 1 | | figure_replay_folder GOLDEN/meta_soap
replay_meta_kl | of the traces ok, here and through a daemon | >= 1 | | figure_replay_folder GOLDEN/meta_kl
replay_trax_average | of the traces ok, here and through a daemon | >= 1 | | figure_replay_folder GOLDEN/trax_average
first_order_bandwidth | of the bytes per second of a triad | >= 0.85 | kernel | figure_first_order_bandwidth
adafactor_bandwidth | of the bytes per second of a triad | >= 0.80 | kernel | figure_adafactor_bandwidth
adasum_bandwidth | bytes read, of the bytes per second of a triad | >= 0.60 | kernel | figure_adasum_bandwidth
quantize_bandwidth | of the bytes per second of a triad | >= 0.80 | kernel | figure_kernel_bandwidth quantize
convert_bandwidth | of the bytes per second of a triad | >= 0.88 | kernel | figure_kernel_bandwidth convert
robust_bandwidth | of the bytes per second of a triad | >= 0 | kernel | figure_kernel_bandwidth robust
q4_kernels   | of the bytes per second of a triad | >= 0.70 | kernel | figure_kernel_bandwidth add
shampoo_step_128 | of the sgemm peak of all cores | >= 0.60 | kernel | \
    figure_shampoo_step scalable_shampoo 4096x1024 preconditioning_compute_steps=1000000000 block_size=128
shampoo_step_1024 | of the sgemm peak of all cores | >= 0.90 | kernel | \
    figure_shampoo_step scalable_shampoo 4096x1024 preconditioning_compute_steps=1000000000 block_size=1024
soap_step_128 | of the sgemm peak of all cores | >= 0.50 | kernel | \
    figure_shampoo_step soap 4096x1024 precondition_frequency=1000000000 block_size=128
soap_step_1024 | of the sgemm peak of all cores | >= 0.80 | kernel | \
    figure_shampoo_step soap 4096x1024 precondition_frequency=1000000000 block_size=1024
kl_step_128  | of the sgemm peak of all cores | >= 0.50 | kernel | \
    figure_shampoo_step kl_shampoo 4096x1024 precondition_frequency=1000000000 block_size=128
kl_step_1024 | of the sgemm peak of all cores | >= 0.80 | kernel | \
    figure_shampoo_step kl_shampoo 4096x1024 precondition_frequency=1000000000 block_size=1024
kron_step    | of the sgemm peak of one core    | >= 0.55  | kernel | figure_kron_step 1024x1024
kron_step_1024 | of the sgemm peak of one core  | >= 0.75  | kernel | \
    figure_kron_step 1024x1024 partition_grads_into_blocks=no
gpt2_step    | of the sgemm peak of all cores | >= 0.85 | kernel | \
    figure_shampoo_step shampoo tests/support/gpt2_small.shapes precondition_frequency=1000000000 betas=0.9,0.999 \
    grafting_config=Adam weight_decay=1e-5
single_block_step | times the speed of one thread | >= 1.8 | kernel | figure_single_block_step
killed_worker_s | s, reconnect_grace of 1 s  | <= 1.2   | slow | figure_lost_worker killed
silent_worker_s | s, heartbeat_timeout of 5 s | <= 10   | slow | figure_lost_worker silent
quorum_slow  | of the time of sync to its loss | <= 0.2 | slow | figure_quorum_slow time
quorum_slow_loss | of the loss of sync       | <= 1.005 | slow | figure_quorum_slow loss
goodput_kill_wait | of the examples without kills | >= 0 | slow | figure_goodput_kill wait
goodput_kill_shrink | of the examples without kills | >= 0.75 | slow | figure_goodput_kill shrink
goodput_kill_quorum | of the examples without kills | >= 0.85 | slow | figure_goodput_kill quorum
goodput_kill_async | of the examples without kills | >= 0 | slow | figure_goodput_kill async
async_hetero | of the loss of sync           | <= 1.01  | slow | figure_async_hetero loss
async_hetero_time | of the time of sync      | <= 0.42  | slow | figure_async_hetero time
diloco_h20_loss | of the loss of synchronous AdamW | <= 1.005 | slow | figure_diloco h20_loss
diloco_h20_bytes | of the bytes of synchronous AdamW | <= 0.0556 | slow | figure_diloco h20_bytes
diloco_h100_loss | of the loss of synchronous AdamW | <= 1.02 | slow | figure_diloco h100_loss
diloco_h100_bytes | of the bytes of synchronous AdamW | <= 0.0111 | slow | figure_diloco h100_bytes
dylu_loss    | of the loss of 20 inner steps each | <= 1.01 | slow | figure_diloco dylu_loss
dylu_time    | of the time of 20 inner steps each | <= 0.42 | slow | figure_diloco dylu_time
dylu_share   | of the rounds count a worker ten times slower | >= 0.9 | slow | figure_diloco dylu_share
diloco_stream_loss | of the loss of one fragment | <= 1.01 | slow | figure_diloco stream_loss
diloco_stream_peak | of the peak of one fragment, in 100 ms | <= 0.35 | slow | figure_diloco stream_peak
diloco_int4_loss | of the loss of float32 | <= 1.003 | slow | figure_diloco int4_loss
diloco_int4_bytes | of the bytes upwards of float32 | <= 0.15 | slow | figure_diloco int4_bytes
int8_loss    | of the loss of float32, a push each step | <= 1.005 | slow | figure_diloco int8_loss
int8_bytes   | of the bytes upwards of float32 | <= 0.27 | slow | figure_diloco int8_bytes
server_kill  | values of the final weights that differ | <= 0 | slow | figure_server_kill
elastic_exact | indices of three epochs that counted twice or never | <= 0 | slow | figure_elastic_exact
plain_step   | of the step time of commit fe362bd6, the worst shape | <= 1.01 | slow | tests/bench/plain_step.sh
fsdp_exact   | largest difference           | <= 0     |      | figure_fsdp_exact
state_memory | of what the mathematics needs | <= 1.02 |       | figure_state_memory
steps_to_sgd_scalable_shampoo | of the steps of SGD | <= 0.65 | slow | figure_steps_to scalable_shampoo
steps_to_sgd_kron | of the steps of SGD              | <= 0.65  | slow | figure_steps_to kron
steps_to_sgd_adafactor | of the steps of SGD         | <= 1.0   | slow | figure_steps_to adafactor
meta_side_by_side_1024 | times the speed on PyTorch | >= 1.65 | slow | \
    tests/bench/meta_side_by_side.py 1024 build/release/bin/figure_amortised_step
meta_side_by_side_128 | times the speed on PyTorch | >= 3.3 | slow | \
    tests/bench/meta_side_by_side.py 128 build/release/bin/figure_amortised_step
peer_adamw   | of the bytes per second of AdamW of torch, fused | >= 0.93 | slow | tests/bench/peer_adamw.py torch
peer_adamw_deepspeed | of the bytes per second of AdamW of DeepSpeed | >= 0.93 | slow | \
    tests/bench/peer_adamw.py deepspeed
peer_gloo_2  | of the time of all-reduce by gloo and SGD of torch, 2 ranks | <= 1.05 | slow | tests/bench/peer_gloo.py 2
peer_gloo_4  | of the time of all-reduce by gloo and SGD of torch, 4 ranks | <= 1.0 | slow | tests/bench/peer_gloo.py 4
peer_ddp_2   | of DDP with gloo and SGD, over TCP, 2 ranks | <= 1.05 | slow | tests/bench/torch_step.py tcp 2
peer_ddp_4   | of DDP with gloo and SGD, over TCP, 4 ranks | <= 1.0 | slow | tests/bench/torch_step.py tcp 4
peer_pslite_2 | times the payload of ps-lite, 2 workers, 4 MiB | >= 1.02 | slow | \
    tests/bench/peer_pslite.py 2 25 1048576 1
peer_pslite_4 | times the payload of ps-lite, 4 workers, 4 MiB | >= 1.10 | slow | \
    tests/bench/peer_pslite.py 4 25 1048576 1
peer_pslite_small_2 | times the payload of ps-lite in batches, 2 workers, 4 KiB | >= 1.0 | slow | \
    tests/bench/peer_pslite.py 2 2000 1024 250
peer_pslite_small_4 | times the payload of ps-lite in batches, 4 workers, 4 KiB | >= 1.1 | slow | \
    tests/bench/peer_pslite.py 4 2000 1024 250
'

figures=${figures//\\$'\n'/}                            # a row that ends with a backslash goes on in the next line

trim() { local text=$1; text=${text#"${text%%[![:space:]]*}"}; printf '%s' "${text%"${text##*[![:space:]]}"}"; }

# measure NAME COMMAND : prints "VALUE<tab>NOTE".
measure() {
    local output name=$1
    shift
    case $1 in
    paramctl*)
        output=$("$bin"/$1) || return 1
        field() { sed -n 's/^ *"'"$1"'": \([-0-9.eE+]*\),\{0,1\}$/\1/p' <<< "$output"; }
        [ "$name" = net_tcp_cpu ] && {
            printf '%.3f\t%.3f s per GB of payload, bare TCP %.3f s, pass %.3f s\n' "$(field work_ratio)" \
                "$(field cpu_s_per_gb)" "$(field bare_cpu_s_per_gb)" "$(field pass_cpu_s_per_gb)"
            return
        }
        [[ $name == shm_* ]] && {
            printf '%.3f\t%.2f GB/s of payload; rounds of %.1f ms, over TCP %.1f, bare TCP %.1f\n' \
                "$(field beside_ratio)" "$(field payload_gb_per_s)" "$(field round_ms)" "$(field beside_round_ms)" \
                "$(field bare_round_ms)"
            return
        }
        printf '%.3f\t%.2f GB/s of payload, bare TCP %.2f GB/s; rounds of %.1f and %.1f ms\n' \
            "$(field ratio)" "$(field payload_gb_per_s)" "$(field bare_tcp_gb_per_s)" "$(field round_ms)" \
                "$(field bare_round_ms)" ;;
    pd_sim*)
        output=$("$bin"/$1) || { printf '%s\n' "$output" | tail -3 >&2; return 1; }
        sed -n 's/^\([0-9]*\) seeds, 0 failed, \([0-9.]*\) a second$/\2\t\1 seeds without a violated invariant/p' <<< \
            "$output" ;;
    deploy/wheel*)
        output=$($1 2>&1) || { printf '%s\n' "$output" | tail -5 >&2; return 1; }
        sed -n 's/.*\.whl: \([0-9.]*\) MB, \(.*\)/\1\t\2/p' <<< "$output" ;;
    deploy*)
        output=$($1 2>&1) || { printf '%s\n' "$output" | tail -5 >&2; return 1; }
        sed -n 's/.*test accuracy[^0-9]*\([0-9.]*\) *%.*/\1/p' <<< "$output" | tail -1 \
            | awk '{ printf "%.4f\tafter the last epoch\n", $1 / 100 }' ;;
    tests/bench/*.py*)
        PARAMD_BIN=$bin PARAMD_LIBRARY=$bin/../lib/libparamd.so PYTHONPATH=client/python PYTHONDONTWRITEBYTECODE=1 \
            "$python" $1 ;;
    tests/bench/*.sh*) $1 ;;
    *)  "$bin"/$1 ;;
    esac
}

# report NAME UNIT BAR COMMAND
report() {
    local line value note holds shown=$4 load
    read -r load _ < /proc/loadavg
    [[ $4 == deploy/* || $4 == tests/* ]] || shown=$bin/$4
    line=$(measure "$1" "$4")
    [ $? != 77 ] || { echo "$1: skipped" >&2; return 0; }
    value=${line%%$'\t'*} note=${line#*$'\t'}
    if ! [[ $value =~ ^-?[0-9]+(\.[0-9]+)?$ ]]; then
        echo "$1: could not be measured: $shown" >&2
        return 1
    fi
    holds=$(awk -v value="$value" -v bar="$3" \
        'BEGIN { split(bar, b, " "); print (b[1] == ">=" ? value >= b[2] : value <= b[2]) ? "true" : "false" }')
    printf '{"figure": "%s", "cpu": "%s", "value": %s, "unit": "%s", "bar": "%s", "holds": %s, ' "$1" \
        "${PARAMD_CPU:-auto}" "$value" "$2" "$3" "$holds"
    printf '"command": "%s", "note": "%s", "load": %s}\n' "$shown" "$note" "$load"
}

cpus=("${PARAMD_CPU:-auto}") kind=
if [ "${1:-}" = --cpu ]; then
    IFS=, read -ra cpus <<< "${2:?--cpu: expected instruction sets, for instance avx2,avx512}"
    kind=kernel
    shift 2
fi

names=()
while IFS='|' read -r name _; do
    name=$(trim "$name")
    [ -n "$name" ] && names+=("$name")
done <<< "$figures"
for wanted in "$@"; do
    [[ " ${names[*]} " == *" $wanted "* ]] \
        || { echo "run.sh: $wanted is no figure; there are: ${names[*]}" >&2; exit 2; }
done

cmake --preset release > /dev/null && cmake --build build/release > /dev/null \
    || { echo "run.sh: the release build failed" >&2; exit 1; }

status=0
while IFS='|' read -r name unit bar slow command; do
    name=$(trim "$name")
    [ -n "$name" ] || continue
    if [ $# -gt 0 ]; then [[ " $* " == *" $name "* ]] || continue
    elif [ -n "$kind" ]; then [ "$(trim "$slow")" = "$kind" ] || continue
    else [ "$(trim "$slow")" = slow ] && continue
    fi
    command=$(trim "$command")
    for cpu in "${cpus[@]}"; do
        PARAMD_CPU=$cpu report "$name" "$(trim "$unit")" "$(trim "$bar")" "${command/GOLDEN/$golden}" || status=1
    done
done <<< "$figures"
exit $status
