"""The optimizer for Hugging Face's Trainer."""
from __future__ import annotations

import sys
import warnings
from typing import Any

import torch

from .hypers import row
from .names import Group
from .optimizer import Optimizer

# Parameters of these modules are not decayed, and biases neither, as Trainer does.
_UNDECAYED = ("norm",)
_ADAMS = ("adam", "adamw")              # optimizers for which the Trainer's own adam_beta1 and so on count


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


def _arguments_of_trainer() -> Any:
    """Returns the TrainingArguments of the Trainer that calls; None: no Trainer does. The Trainer gives a factory the
    model alone, so its arguments are found by its frame."""
    kind = getattr(sys.modules.get("transformers.trainer"), "Trainer", None)
    frame = sys._getframe(1)
    while kind is not None and frame is not None:
        if isinstance(frame.f_locals.get("self"), kind):
            return frame.f_locals["self"].args
        frame = frame.f_back  # type: ignore[assignment]
    return None


def _from_trainer(arguments: Any, optimizer: str) -> dict[str, Any]:
    """Returns the hyperparameters that TrainingArguments give to an optimizer, by torch's names."""
    found = {"lr": arguments.learning_rate, "weight_decay": arguments.weight_decay}
    if optimizer in _ADAMS:
        found.update(betas=(arguments.adam_beta1, arguments.adam_beta2), eps=arguments.adam_epsilon)
    known = row(optimizer).keys
    if found["weight_decay"] and "weight_decay" not in known:
        warnings.warn(f"{optimizer} has no weight_decay: TrainingArguments(weight_decay={found['weight_decay']}) has "
                      "no effect", stacklevel=4)
    return {name: value for name, value in found.items() if name in known}


class TrainerFactory:
    """Makes paramd's optimizer for a Trainer:

        Trainer(..., optimizer_cls_and_kwargs=(TrainerFactory, {"optimizer": "shampoo"}))

    The Trainer gives the model, and with it the names of the parameters. `lr` and `weight_decay` are those of the
    TrainingArguments, and for adam and adamw also `betas` and `eps`, unless they are given here. Where a weight decay
    is given, biases and parameters of norms are left out of it, as the Trainer's own optimizers do. Trainer clips each
    rank's gradients before they are averaged (max_grad_norm=1.0): set that to 0 and options={"clip_global_norm": 1.0}
    to clip the average.
    """

    def __call__(self, opt_model: torch.nn.Module, optimizer: str = "shampoo", **kwargs: Any) -> Optimizer:
        """Returns the optimizer of a model. kwargs: as for paramd.torch.Optimizer."""
        arguments = _arguments_of_trainer()
        if arguments is not None:
            given = {row(optimizer).key(name) for name in kwargs}
            missing = _from_trainer(arguments, optimizer)
            kwargs.update({name: value for name, value in missing.items() if name not in given})
        decay = kwargs.pop("weight_decay", None)
        if decay is None:
            return Optimizer(opt_model, optimizer, **kwargs)
        return Optimizer(groups_of(opt_model, decay), optimizer, model=opt_model, **kwargs)
