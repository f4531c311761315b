"""Joins a job at the model's first forward pass, so that the first gradients belong to the job's weights."""
from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from .optimizer import Optimizer


class JoinAtForward:
    """A forward pre-hook that lets an optimizer join its job. It goes with the first call.

    A copy of the model (an average of weights, a saved model) has a hook without an optimizer, which does nothing.
    """

    def __init__(self, optimizer: Optimizer | None = None) -> None:
        self._optimizer = weakref.ref(optimizer, lambda _: self.detach()) if optimizer is not None else None
        self._handle: Any = None
        self._foreign: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()     # modules of other optimizers

    def attach(self, model: torch.nn.Module | None) -> None:
        """Registers the hook: in front of others, since FSDP's gathers weights. Without a model, every module calls the
        hook, until one comes that has parameters of the optimizer."""
        if model is None:
            everywhere: Any = torch.nn.modules.module.register_module_forward_pre_hook
            self._handle = everywhere(_outside_of_graphs(self._of_any_module))
            return
        try:
            self._handle = model.register_forward_pre_hook(self, prepend=True)
        except TypeError:               # torch 1.13 has no prepend
            self._handle = model.register_forward_pre_hook(self)

    def detach(self) -> None:
        """Removes the hook."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def __call__(self, module: torch.nn.Module, args: Any) -> None:
        """Joins the job. torch calls it before the first forward pass."""
        optimizer = self._optimizer() if self._optimizer is not None else None
        self.detach()
        if optimizer is not None:
            _outside_of_graphs(optimizer.join_with)(module)

    def _of_any_module(self, module: torch.nn.Module, args: Any) -> None:
        """Joins the job if the module has parameters of the optimizer. torch calls it before every forward pass."""
        optimizer = self._optimizer() if self._optimizer is not None else None
        if optimizer is not None and module not in self._foreign:
            own = {id(param) for group in optimizer.param_groups for param in group["params"]}
            if any(id(param) in own for param in module.parameters()):
                self(module, args)
            else:
                self._foreign.add(module)

    def __reduce__(self) -> Any:
        return JoinAtForward, ()


def _outside_of_graphs(function: Any) -> Any:
    """Returns a function that torch.compile does not trace."""
    disable = getattr(getattr(torch, "compiler", None), "disable", None)
    return disable(function) if disable is not None else function
