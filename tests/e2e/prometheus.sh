#!/bin/bash
# A real Prometheus scrapes a daemon that trains: promtool finds nothing to complain of, the OpenMetrics parser of
# prometheus_client reads every sample, and each query of the Grafana dashboard and each metric of the alert rules
# returns data. The alert rules pass their own tests.
set -euo pipefail
export PATH=/usr/bin:/bin:/usr/sbin:/sbin
cd "$(dirname "$0")/../.."
bin=${PARAMD_BIN:?the folder of paramd}

for program in prometheus promtool curl; do
    command -v $program > /dev/null || { echo "skip: no $program (Debian package prometheus, curl)"; exit 77; }
done
[ -e /usr/share/datasets/fashion-mnist ] || { echo "skip: no Debian package dataset-fashion-mnist"; exit 77; }

scratch=$(mktemp -d /tmp/paramd-prometheus.XXXXXX)
pids=()
end_all() {
    for pid in "${pids[@]}"; do kill "$pid" 2> /dev/null || true; done
    wait 2> /dev/null || true
    rm -rf "$scratch"
}
trap end_all EXIT
fail() { echo "FAILED: $1"; tail -n 20 "$scratch"/*.log; exit 1; }

# await SECONDS WHAT COMMAND... : waits until the command succeeds
await() {
    local until=$((SECONDS + $1)) what=$2
    shift 2
    until "$@" > /dev/null 2>&1; do
        [ $SECONDS -lt $until ] || fail "no $what within its time"
        sleep 0.1
    done
}

# ---- rules ----

promtool test rules deploy/prometheus/alerts_test.yml > "$scratch/rules.log" 2>&1 || fail "promtool test rules"
promtool check config deploy/prometheus/prometheus.yml > "$scratch/config.log" 2>&1 || fail "promtool check config"

# ---- a run ----

"$bin/paramd" --listen "127.0.0.1:0" --port-file "$scratch/port" --http-listen 127.0.0.1:0 \
    --state-dir "$scratch/state" --mirror "$scratch/mirror" --checkpoint-every 20 --clip-global-norm 1 \
    > "$scratch/paramd.log" 2>&1 &
pids+=($!)
await 20 'port of the daemon' test -s "$scratch/port"
http=$(sed -n 's/.*listening for HTTP on //p' "$scratch/paramd.log")
rule='* scalable_shampoo learning_rate=0.05 block_size=64 preconditioning_compute_steps=5'
for rank in 0 1; do
    "$bin/fashion" --url "tcp://127.0.0.1:$(cat "$scratch/port")" --job 'a "quoted" job' --rank $rank --world-size 2 \
        --batch 64 --epochs 1000 --out "$scratch/out" --rule "$rule start_preconditioning_step=5" \
        > "$scratch/worker$rank.log" 2>&1 &
    pids+=($!)
done
cat > "$scratch/prometheus.yml" << END
global: {scrape_interval: 1s}
scrape_configs:
  - job_name: paramd
    honor_labels: true
    static_configs: [{targets: ["$http"]}]
END
prometheus --config.file="$scratch/prometheus.yml" --storage.tsdb.path="$scratch/tsdb" \
    --web.listen-address=127.0.0.1:0 > "$scratch/prometheus.log" 2>&1 &
pids+=($!)

# ---- what is scraped ----

has_checkpoint() { curl -s "http://$http/metrics" | grep -q '^paramd_checkpoints_total{.*result="written"} [1-9]'; }
await 60 'checkpoint' has_checkpoint
curl -sf "http://$http/metrics" > "$scratch/metrics"
promtool check metrics < "$scratch/metrics" > "$scratch/lint.log" 2>&1 || fail "promtool check metrics"
curl -sf -H 'Accept: application/openmetrics-text; version=1.0.0' "http://$http/metrics" > "$scratch/openmetrics"
if python3 -c 'import prometheus_client' 2> /dev/null; then
    python3 - "$scratch/openmetrics" << 'END' || fail "the OpenMetrics parser"
import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families
families = list(text_string_to_metric_families(open(sys.argv[1]).read()))
samples = sum(len(family.samples) for family in families)
jobs = {sample.labels["job"] for family in families for sample in family.samples if "job" in sample.labels}
assert len(families) > 40 and jobs == {'a "quoted" job'}, (len(families), jobs)
print(f"OpenMetrics: {len(families)} families, {samples} samples")
END
else
    echo "not checked: OpenMetrics, without prometheus_client (Debian package python3-prometheus-client)"
fi

prometheus_url() { sed -n 's/.*msg="Listening on" address=/http:\/\//p' "$scratch/prometheus.log"; }
listens() { [ -n "$(prometheus_url)" ]; }
await 30 'Prometheus that listens' listens
asks() { python3 tests/e2e/prometheus_queries.py "$(prometheus_url)" . > "$scratch/queries.log" 2>&1; }
await 60 'data of each query' asks
cat "$scratch/queries.log"
