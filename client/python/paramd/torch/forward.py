"""Joins a job at the first forward pass of the model, so that the first gradients belong to the job's weights."""
from __future__ import annotations

import warnings
import weakref
from typing import Any, Protocol

import torch


class Joins(Protocol):
    """What joins a job: an Optimizer, or a DiLoCo."""

    param_groups: list[dict[str, Any]]

    def join_with(self, module: torch.nn.Module) -> None:
        """Joins the job at the first forward pass of a module that has parameters of one of the groups."""


# torch.compile warns where every module calls a hook. This hook does nothing at its second call.
_WARNING = "Using `torch.compile.module.` when there are global hooks on modules"


class JoinAtForward:
    """A forward pre-hook that lets an optimizer join its job. It goes with the first call of a module that has one of
    the optimizer's parameters.

    Every module calls it, whichever model the optimizer was made with: torch calls such hooks in front of a module's
    own. So it comes before FSDP's hooks, which gather weights, even if fully_shard is called behind it.
    """

    def __init__(self, optimizer: Joins) -> None:
        self._optimizer = weakref.ref(optimizer, lambda _: self.detach())
        self._foreign: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()     # modules of other optimizers
        warnings.filterwarnings("ignore", _WARNING)
        register: Any = torch.nn.modules.module.register_module_forward_pre_hook
        self._handle: Any = register(_outside_of_graphs(self._call))

    def detach(self) -> None:
        """Removes the hook."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _call(self, module: torch.nn.Module, args: Any) -> None:
        """Joins the job if the module has parameters of the optimizer. torch calls it before every forward pass."""
        optimizer = self._optimizer()
        if optimizer is None or module in self._foreign:
            return
        own = {id(param) for group in optimizer.param_groups for param in group["params"]}
        if any(id(param) in own for param in module.parameters()):
            self.detach()
            optimizer.join_with(module)
        else:
            self._foreign.add(module)


def _outside_of_graphs(function: Any) -> Any:
    """Returns a function that torch.compile does not trace."""
    disable = getattr(getattr(torch, "compiler", None), "disable", None)
    return disable(function) if disable is not None else function
