"""peer_gloo RANKS: a round of 25 tensors of 4 MiB through paramd over TCP, over the same step by all-reduce of
torch.distributed with gloo over TCP. All ranks and the daemon are on this machine, on the loopback interface.

A round of paramd pushes the gradients and pulls the weights after a step of SGD with momentum on the server. Gloo sums
the gradients in four buckets of at most 25 MiB, all of them under way at once, as DistributedDataParallel does; then
each rank takes torch's fused SGD with momentum. Rounds take turns (turns.py). The figure is the median ratio of
neighbouring blocks of rounds. At the end all weights must be the same.
"""
from __future__ import annotations

import os
import statistics
import sys
from functools import partial

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
import torch_ranks  # first: without PyTorch the program ends here
import turns
from torch_ranks import RANK, median_ms

import paramd

torch = torch_ranks.torch
TENSORS, ELEMENTS, BUCKETS, STEPS, TURNS = 25, 1 << 20, (7, 6, 6, 6), 3, 9
LR, MOMENTUM = 1e-3, 0.9


class WithGloo:
    """All-reduce of the gradients by gloo, and torch's SGD on every rank."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.buckets = [torch.empty(tensors * ELEMENTS) for tensors in BUCKETS]
        self.weights = [torch.nn.Parameter(torch.zeros_like(bucket)) for bucket in self.buckets]
        for weight, bucket in zip(self.weights, self.buckets):
            weight.grad = bucket
        self.opt = torch.optim.SGD(self.weights, lr=LR, momentum=MOMENTUM, fused=True)
        self.reduce_ms: list[float] = []

    def _reduce(self) -> None:
        works = [torch_ranks.dist.all_reduce(bucket, async_op=True) for bucket in self.buckets]
        for work in works:
            work.wait()

    def _update(self) -> None:
        for bucket in self.buckets:
            bucket /= self.ranks
        self.opt.step()

    def step(self) -> float:
        """Takes a step. Returns its seconds."""
        for bucket in self.buckets:
            bucket.fill_(RANK + 1)              # not counted: a backward pass leaves gradients here
        torch_ranks.dist.barrier()
        reduce_s = turns.seconds(self._reduce)
        self.reduce_ms.append(1e3 * reduce_s)
        return reduce_s + turns.seconds(self._update)

    def weight(self) -> float:
        """Returns a weight."""
        return float(self.weights[-1].detach()[-1])


class WithParamd:
    """A round through the daemon."""

    def __init__(self, ranks: int) -> None:
        self.weights = {f"t{i}": torch.zeros(ELEMENTS) for i in range(TENSORS)}
        self.gradients = {name: torch.full((ELEMENTS,), RANK + 1.0) for name in self.weights}
        self.client = paramd.Client(os.environ["TCP"], "gloo", rank=RANK, world_size=ranks,
                                    rules=f"* sgd lr={LR} momentum={MOMENTUM}")
        self.client.declare(self.weights)
        self.client.init(self.weights)

    def step(self) -> float:
        """Takes a step. Returns its seconds."""
        torch_ranks.dist.barrier()
        return turns.seconds(lambda: self.client.push_pull(self.gradients, self.weights).wait())

    def weight(self) -> float:
        """Returns a weight."""
        return float(self.weights["t0"][-1])


def measure() -> None:
    """Measures, as one of the ranks. Rank 0 prints the figure."""
    torch_ranks.join()
    ranks = torch_ranks.dist.get_world_size()
    gloo, ours = WithGloo(ranks), WithParamd(ranks)
    for side in (gloo, ours):
        median_ms(side.step, 2)
    rows = turns.take([partial(median_ms, side.step, STEPS) for side in (gloo, ours)], TURNS)
    assert abs(gloo.weight() - ours.weight()) < 1e-5 * abs(ours.weight()), "the two sides have different weights"
    if RANK == 0:
        ratio, (theirs, own) = turns.ratio(rows, 1, 0), turns.medians(rows)
        print(f"{ratio.median:.3f}\t{ratio}; {ranks} ranks: {own:.0f} ms a round, gloo {theirs:.0f} ms, of which the "
              f"all-reduce is {statistics.median(gloo.reduce_ms):.0f}; PyTorch {torch.__version__}")


if __name__ == "__main__":
    torch_ranks.main(measure, int(sys.argv[1]))
