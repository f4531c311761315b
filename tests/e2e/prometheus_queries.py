#!/usr/bin/env python3
"""Asks a Prometheus that has scraped paramd every query of the Grafana dashboard, and every metric of the alert rules.

prometheus_queries.py http://127.0.0.1:PORT REPOSITORY: exits 1 and names those that return nothing.
"""

import json
import re
import sys
import urllib.parse
import urllib.request
from pathlib import Path


def dashboard_queries(path: Path) -> list[str]:
    """Returns the dashboard's queries, with its variables replaced."""
    queries = []
    for panel in json.loads(path.read_text())["panels"]:
        for target in panel.get("targets", []):
            text = target["expr"].replace("$__rate_interval", "20s")
            queries.append(text.replace("$job", ".*").replace("$instance", ".*"))
    return queries


def alert_metrics(path: Path) -> list[str]:
    """Returns the selectors in the expressions of alert rules: an alert itself returns nothing while all is well."""
    text = re.sub(r"^ *(summary|description):.*$", "", path.read_text(), flags=re.MULTILINE)
    return re.findall(r"\b(?:paramd_[a-z_]+|up)\b(?:\{[^}]*\})?", re.sub(r"#.*", "", text))


def count_series(url: str, query: str) -> int:
    """Returns how many series a query returns now."""
    with urllib.request.urlopen(f"{url}/api/v1/query?{urllib.parse.urlencode({'query': query})}", timeout=10) as answer:
        return len(json.load(answer)["data"]["result"])


def main() -> int:
    """Asks all queries."""
    url, repository = sys.argv[1], Path(sys.argv[2])
    queries = dashboard_queries(repository / "deploy/grafana/paramd.json")
    queries += alert_metrics(repository / "deploy/prometheus/alerts.yml")
    # This run is no cluster, and has no engine.
    queries = [query for query in queries if "paramd_job_shard_info" not in query and "paramd_cluster_" not in query]
    empty = [query for query in queries if count_series(url, query) == 0]
    for query in empty:
        print(f"returns nothing: {query}")
    print(f"{len(queries) - len(empty)} of {len(queries)} queries return data")
    return 1 if empty or len(queries) < 40 else 0


if __name__ == "__main__":
    sys.exit(main())
