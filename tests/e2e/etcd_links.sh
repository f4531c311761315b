#!/bin/bash
# A cluster with etcd in network namespaces: links are cut, owners and members of etcd are killed and stopped, machines
# are lost (etcd_links.py). Skips without etcd, and where this user may not make network namespaces.
#   tests/e2e/etcd_links.sh [--list] [--all] [--ttl SECONDS] [--cuts SECONDS,...] [--seed S] [--random N] [NAME]...
# NAME: which scenarios (--list shows them); without names a set that takes about a minute, with --all every one, and
# each link cut for 1, 15 and 40 s (about an hour). --random: then N more faults, which the seed chooses.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PATH=/usr/bin:/bin:/usr/sbin:/sbin PYTHONDONTWRITEBYTECODE=1
command -v etcd > /dev/null || { echo 'skip: no etcd'; exit 77; }
python=$(tests/python/environment.sh --find)
exec "$python" tests/e2e/etcd_links.py "$@"
