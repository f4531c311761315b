#!/bin/bash
# Links between the workers and the shards of a cluster that are cut one after another, in network namespaces
# (cluster_links.py). Skips where this user may not make network namespaces.
#   tests/e2e/cluster_links.sh [--shards N] [--seed S] [--heartbeat-timeout SECONDS] [--random N] [SECONDS]...
# SECONDS: how long each link is cut; 0.3 and 1 if none is given. The heartbeat timeout is 0.5 s if it is not given.
# --random: N more cuts, which the seed chooses.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PATH=/usr/bin:/bin:/usr/sbin:/sbin PYTHONDONTWRITEBYTECODE=1
python=$(tests/python/environment.sh --find)
exec "$python" tests/e2e/cluster_links.py "$@"
