"""The optimizer for Hugging Face's Trainer."""
from __future__ import annotations

from typing import Any

import torch

from .names import Group
from .optimizer import Optimizer

# Parameters of these modules are not decayed, and biases neither, as Trainer does.
_UNDECAYED = ("norm",)


def groups_of(model: torch.nn.Module, decay: Any) -> list[Group]:
    """Returns two groups of a model's parameters: those that are decayed, and biases and those of norms."""
    norms = {f"{prefix}." if prefix else "" for prefix, module in model.named_modules()
             if any(word in type(module).__name__.lower() for word in _UNDECAYED)}
    decayed: list[tuple[str, torch.Tensor]] = []
    others: list[tuple[str, torch.Tensor]] = []
    for name, param in model.named_parameters():
        owner = name.rpartition(".")[0]
        plain = name.endswith("bias") or f"{owner}." in norms
        (others if plain else decayed).append((name, param))
    return [{"params": decayed, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}]


class TrainerFactory:
    """Makes paramd's optimizer for a Trainer:

        Trainer(..., optimizer_cls_and_kwargs=(TrainerFactory, {"optimizer": "shampoo", "lr": 1e-3}))

    The Trainer gives the model, and with it the names of the parameters. Where `weight_decay` is given, biases and
    parameters of norms are left out of it, as the Trainer's own optimizers do. Trainer clips each rank's gradients
    before they are averaged (max_grad_norm=1.0): set that to 0 and options={"clip_global_norm": 1.0} to clip the
    average.
    """

    def __call__(self, opt_model: torch.nn.Module, **kwargs: Any) -> Optimizer:
        """Returns the optimizer of a model. kwargs: as for paramd.torch.Optimizer."""
        decay = kwargs.pop("weight_decay", None)
        if not decay:
            return Optimizer(opt_model, **kwargs)
        return Optimizer(groups_of(opt_model, decay), model=opt_model, **kwargs)
