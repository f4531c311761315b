"""torch_overlap: time of a training step of 25 million parameters (six layers of 2048 x 2048, 64 rows a rank) for two
ranks on this machine through paramd (SGD with momentum, shared memory), with overlap=True over without.

A step is forward pass, backward pass and Optimizer.step(). Blocks of steps take turns (turns.py). The figure is the
median ratio of neighbouring blocks. At the end both models must have the same weights.
"""
from __future__ import annotations

import os
import statistics

import torch_ranks  # first: without PyTorch the program ends here
import turns
from torch_ranks import RANK, median_ms
from turns import seconds

import paramd.torch

torch = torch_ranks.torch
WIDTH, LAYERS, ROWS, STEPS, PAIRS = 2048, 6, 64, 3, 9


class Training:
    """A model and its optimizer."""

    def __init__(self, overlap: bool) -> None:
        torch.manual_seed(0)
        layers = [torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)]
        self.model = torch.nn.Sequential(*(part for layer in layers for part in (layer, torch.nn.ReLU())))
        self.opt = paramd.torch.Optimizer(self.model, "sgd", os.environ["SHARED"], job=f"overlap-{overlap}", lr=1e-3,
                                          momentum=0.9, overlap=overlap)
        self.rows = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(RANK))
        self.work = 0.0

    def step(self) -> float:
        """Takes a step, and returns its seconds."""
        return seconds(self._step)

    def _step(self) -> None:
        loss = self.model(self.rows).pow(2).mean()
        self.opt.zero_grad()
        self.work = seconds(loss.backward)
        self.opt.step()


def measure() -> None:
    """Measures, as one of the ranks. Rank 0 prints the figure."""
    torch_ranks.join()
    plain, overlapped = Training(False), Training(True)
    for side in (plain, overlapped):
        median_ms(side.step, 2)
    backward = []

    def plain_ms() -> float:
        duration = median_ms(plain.step, STEPS)
        backward.append(1e3 * plain.work)
        return duration

    rows = turns.take([plain_ms, lambda: median_ms(overlapped.step, STEPS)], PAIRS)
    assert all(torch.equal(a, b) for a, b in zip(plain.model.parameters(), overlapped.model.parameters())), \
        "the two models have different weights"
    if RANK == 0:
        ratio = turns.ratio(rows, 1, 0)
        without, with_overlap = turns.medians(rows)
        print(f"{ratio.median:.3f}\t{ratio}; steps of {with_overlap:.0f} ms, without {without:.0f} ms, of which "
              f"the backward pass is {statistics.median(backward):.0f} ms")


if __name__ == "__main__":
    torch_ranks.main(measure)
