"""Averages the gradients of DistributedDataParallel through the server: a median of ranks, Adasum and so on."""
from __future__ import annotations

from typing import Any

import torch

from ..errors import invalid
from ..exits import leave, leave_with
from ..param import Param
from ..ticket import STEPPED
from .connection import Settings, options_of
from .names import strip

# A step of this optimizer makes the weights the averaged gradient: 0 times the weights, plus 1 times the gradient.
_RULE = "* asgd lr=1 lambd=1 alpha=0 maximize=yes"


class Averager:
    """A job that averages gradients and does nothing else. The optimizer is any of torch's, on every rank.

        averager = paramd.torch.Averager(model, options={"aggregate": "median"})
        ddp = DistributedDataParallel(model)
        ddp.register_comm_hook(averager, paramd.torch.communication_hook)

    model: the model, before DDP wraps it or behind.
    The other arguments are those of paramd.Client. Use it for what all-reduce cannot do: it is not faster.
    """

    def __init__(self, model: torch.nn.Module, url: str | None = None, **settings: Any) -> None:
        options = {"nonfinite_scope": "parameter", **options_of(settings.pop("options", None))}
        self._names: dict[int, str] = {}
        params = []
        for name, param in model.named_parameters():
            if not param.requires_grad:
                continue
            if param.device.type != "cpu":
                raise invalid(f"parameter {name}: expected gradients in the CPU's memory, got {param.device}", name)
            self._names[id(param)] = f"grad/{strip(name)}"
            params.append(Param(self._names[id(param)], tuple(param.shape)))
        self.client = Settings(url, options=options, **settings).open([_RULE])
        leave_with(self, self.client)
        self.client.declare(params)
        self.client.init({param.name: torch.zeros(tuple(param.shape)) for param in params})

    def average(self, params: list[torch.Tensor], gradients: list[torch.Tensor]) -> None:
        """Replaces gradients of parameters by their average over the ranks, or by NaN if that is not finite. Every
        rank calls it with the same parameters."""
        names = [self._names[id(param)] for param in params]
        sent = {name: gradient.float().contiguous() for name, gradient in zip(names, gradients)}
        into = {name: torch.empty_like(gradient) for name, gradient in sent.items()}
        results = self.client.push_pull(sent, into).wait()
        for name, gradient in zip(names, gradients):
            if results[name].outcome == STEPPED:
                gradient.copy_(into[name])
            else:
                gradient.fill_(float("nan"))

    def close(self) -> None:
        """Leaves the job."""
        leave(self.client)


def communication_hook(state: Averager, bucket: Any) -> torch.futures.Future[torch.Tensor]:
    """A communication hook of DDP that averages a bucket through the server. state: the Averager."""
    state.average(bucket.parameters(), bucket.gradients())
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


communication_hook.__annotations__ = {}         # DDP compares annotations with its classes, and ours are texts
