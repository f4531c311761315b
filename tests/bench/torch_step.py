"""torch_step, peer_ddp: communication and optimizer step of 25 million parameters (25 tensors) for ranks on this
machine: through paramd (SGD with momentum on the server) over DistributedDataParallel with gloo (TCP) and torch's SGD.

    torch_step.py [shared|tcp [RANKS]]

By default the figure is that of two ranks in shared memory; the note has both transports.

The time of paramd is that of Optimizer.step(). DDP communicates within the backward pass: its time is that of the
backward pass and of SGD.step(), less that of a backward pass without communication (in no_sync). Blocks of steps take
turns (turns.py). The figure is the median ratio of neighbouring blocks. At the end all three models must have the same
weights.
"""
from __future__ import annotations

import os
import sys
from functools import partial

import torch_ranks  # first: without PyTorch the program ends here
import turns
from torch_ranks import RANK, median_ms
from turns import seconds

import paramd.torch

torch = torch_ranks.torch
TENSORS, ELEMENTS, STEPS, PAIRS = 25, 1000 * 1000, 3, 9
SGD = {"lr": 1e-3, "momentum": 0.9}


class Weights(torch.nn.Module):
    """A model whose forward and backward passes cost next to nothing: the gradient of a rank is its number plus 1."""

    def __init__(self) -> None:
        super().__init__()
        self.tensors = torch.nn.ParameterList(torch.zeros(1000, ELEMENTS // 1000) for _ in range(TENSORS))

    def forward(self) -> torch.Tensor:
        """Returns a loss."""
        return (RANK + 1) * sum(tensor.sum() for tensor in self.tensors)


class WithDDP:
    """DistributedDataParallel with gloo, and torch's SGD."""

    def __init__(self) -> None:
        self.model = torch.nn.parallel.DistributedDataParallel(Weights())
        self.opt = torch.optim.SGD(self.model.parameters(), **SGD)

    def _backward(self) -> float:
        self.opt.zero_grad()
        loss = self.model()
        return seconds(loss.backward)

    def step(self) -> float:
        """Takes a step. Returns the seconds of its communication and of the optimizer."""
        with self.model.no_sync():
            alone = self._backward()
        return self._backward() + seconds(self.opt.step) - alone

    def weight(self) -> float:
        """Returns a weight."""
        return float(self.model.module.tensors[-1].detach()[-1, -1])


class WithParamd:
    """paramd, with its SGD."""

    def __init__(self, job: str, url: str) -> None:
        self.model = Weights()
        self.opt = paramd.torch.Optimizer(self.model, "sgd", url, job=job, **SGD)

    def step(self) -> float:
        """Takes a step. Returns the seconds of its communication and of the optimizer."""
        self.opt.zero_grad()
        self.model().backward()
        return seconds(self.opt.step)

    def weight(self) -> float:
        """Returns a weight."""
        return float(self.model.tensors[-1].detach()[-1, -1])


def measure() -> None:
    """Measures, as one of the ranks. Rank 0 prints the figure."""
    torch_ranks.join()
    sides = [WithDDP(), WithParamd("shared", os.environ["SHARED"]), WithParamd("tcp", os.environ["TCP"])]
    for side in sides:
        median_ms(side.step, 2)
    rows = turns.take([partial(median_ms, side.step, STEPS) for side in sides], PAIRS)
    found = [side.weight() for side in sides]
    assert max(found) - min(found) < 1e-5 * abs(found[0]), f"the models have different weights: {found}"
    if RANK == 0:
        ms = turns.medians(rows)
        ratios = {name: turns.ratio(rows, i, 0) for i, name in ((1, "shared"), (2, "tcp"))}
        notes = [f"{name} {ratio.median:.3f} ({ratio}), {ms[i]:.0f} ms"
                 for i, (name, ratio) in enumerate(ratios.items(), start=1)]
        print(f"{ratios[sys.argv[1] if len(sys.argv) > 1 else 'shared'].median:.3f}\t{'; '.join(notes)}; DDP "
              f"{ms[0]:.0f} ms; {os.environ['WORLD_SIZE']} ranks, PyTorch {torch.__version__}")


if __name__ == "__main__":
    torch_ranks.main(measure, int(sys.argv[2]) if len(sys.argv) > 2 else 2)
