"""peer_adamw torch|deepspeed: bytes per second of a step of AdamW, over those of another AdamW on this machine's cores.

torch: torch.optim.AdamW(fused=True). deepspeed: DeepSpeedCPUAdam, which compiles itself when it is first used; a Python
without DeepSpeed ends with 77. One tensor of 64 Mi elements, float32. Ours is figure_first_order_bandwidth, as long as
the other steps, in turn with them (turns.py). Both count 28 bytes an element: the gradient, and twice each of weights
and two moments. Theirs change the weights in place; ours write new weights beside the old ones, as the daemon does, so
each element costs ours four bytes more: a write to memory reads it first, unless it goes past the cache.
"""
from __future__ import annotations

import contextlib
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial

import torch_ranks  # first: without PyTorch the program ends here
import turns

torch = torch_ranks.torch
MEBI, STEPS, TURNS, BYTES = 64, 9, 5, 28
BIN = os.environ.get("PARAMD_BIN", "build/release/bin")


def make_optimizer(name: str, weight: torch.nn.Parameter) -> tuple[torch.optim.Optimizer, str]:
    """Returns the other AdamW, and its name with a version."""
    if name == "torch":
        return torch.optim.AdamW([weight], lr=1e-3, fused=True), f"torch {torch.__version__}, fused"
    try:
        with contextlib.redirect_stdout(sys.stderr):        # of its log
            import deepspeed
            from deepspeed.ops.adam import DeepSpeedCPUAdam

            return DeepSpeedCPUAdam([weight], lr=1e-3, adamw_mode=True), f"DeepSpeed {deepspeed.__version__}"
    except ImportError as error:
        print(f"expected DeepSpeed in {sys.executable}: {error}; PYTHON=FILE chooses another Python", file=sys.stderr)
        sys.exit(77)


def theirs_ms(step: Callable[[], object]) -> float:
    """Returns the median duration of their step."""
    return 1e3 * statistics.median(turns.seconds(step) for _ in range(STEPS))


def ours_ms() -> float:
    """Returns the median duration of our step."""
    said = subprocess.run([f"{BIN}/figure_first_order_bandwidth", str(MEBI), "adamw"], check=True, capture_output=True,
                          text=True).stderr
    found = re.search(r"^adamw .*\), ([0-9.]+) ms;", said, re.MULTILINE)
    assert found, f"figure_first_order_bandwidth printed {said!r}"
    return float(found[1])


def main() -> None:
    """Measures and prints the figure."""
    threads = len(os.sched_getaffinity(0))
    torch.set_num_threads(threads)
    weight = torch.nn.Parameter(torch.rand(MEBI << 20))
    weight.grad = torch.rand(MEBI << 20) * 1e-2
    optimizer, name = make_optimizer(sys.argv[1], weight)
    theirs_ms(optimizer.step)
    rows = turns.take([partial(theirs_ms, optimizer.step), ours_ms], TURNS)
    ratio, (theirs, own) = turns.ratio(rows, 0, 1), turns.medians(rows)
    gigabytes = BYTES * (MEBI << 20) / 1e6
    print(f"{ratio.median:.3f}\t{ratio}; {gigabytes / own:.1f} GB/s, {name}: {gigabytes / theirs:.1f} GB/s; "
          f"{threads} threads, {MEBI} Mi elements")


if __name__ == "__main__":
    main()
