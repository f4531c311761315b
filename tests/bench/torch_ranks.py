"""Starts the ranks of figures that measure paramd.torch: processes of the figure's own program, on this machine."""
from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable

try:
    import torch
except ImportError:
    torch = None
if torch is None or int(torch.__version__.split(".")[0]) < 2:
    found = "none" if torch is None else torch.__version__
    print(f"expected PyTorch 2 in {sys.executable}, found {found}; PYTHON=FILE chooses another Python", file=sys.stderr)
    sys.exit(77)
import torch.distributed as dist

RANK = int(os.environ.get("RANK", "-1"))        # -1: the program that starts the ranks


def main(measure: Callable[[], None], ranks: int = 2) -> None:
    """Calls measure() in every rank, each a process of this program, beside a daemon: $SHARED and $TCP are its URLs.
    Rank 0 prints the figure."""
    if RANK >= 0:
        measure()
        return
    sys.path.insert(0, "tests/python")
    from conftest import Daemon

    daemon = Daemon()
    with tempfile.TemporaryDirectory() as folder:
        common = {**os.environ, "SHARED": daemon.url, "TCP": daemon.tcp, "WORLD_SIZE": str(ranks),
                  "STORE": f"file://{folder}/store", "OMP_NUM_THREADS": "1"}
        processes = [subprocess.Popen([sys.executable, *sys.argv], env={**common, "RANK": str(rank)})
                     for rank in range(ranks)]
        failed = [process.wait() for process in processes]
    daemon.end()
    if any(failed):
        sys.exit(1)


def join() -> None:
    """Joins the other ranks, in a process group of gloo."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=os.environ["STORE"], rank=RANK,
                            world_size=int(os.environ["WORLD_SIZE"]))


def median_ms(step: Callable[[], float], steps: int) -> float:
    """Returns the median of what step() returns: seconds, of this rank. All ranks begin each step at once."""
    durations = []
    for _ in range(steps):
        dist.barrier()
        durations.append(1e3 * step())
    return statistics.median(durations)
