"""Recognises DistributedDataParallel, which averages gradients by itself."""
from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import torch


def _ddp() -> type[torch.nn.Module] | None:
    """Returns the class DistributedDataParallel if a process group exists; else no model can be wrapped."""
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return None
    return torch.nn.parallel.DistributedDataParallel


def is_averaged(models: Iterable[torch.nn.Module | None], names: Iterable[str]) -> bool:
    """Returns whether DDP averages the gradients of a model.

    models: the model, and the module whose forward pass has begun: DDP may have wrapped the model meanwhile.
    names: names of parameters before prefixes are stripped: those of a wrapped model all begin with "module.".
    """
    ddp = _ddp()
    if ddp is None:
        return False
    if any(isinstance(module, ddp) for model in models if model is not None for module in model.modules()):
        return True
    if getattr(ddp, "_active_ddp_module", None) is not None:
        return True                     # joining in DDP's forward pass, from a module inside
    listed = list(names)
    return bool(listed) and all(name.startswith("module.") for name in listed)


def warn() -> None:
    """Tells that gradients of ranks other than 0 are not pushed."""
    warnings.warn("DistributedDataParallel averages the gradients already, so rank 0 alone pushes them (contribute="
                  "\"rank0\"). Without DDP the server averages, and no process group is needed", stacklevel=4)


def names_in(params: Any) -> list[str]:
    """Returns the names in a list of pairs (name, parameter), with all prefixes; of anything else none."""
    if isinstance(params, list) and params and isinstance(params[0], tuple):
        return [name for name, _ in params]
    return []
